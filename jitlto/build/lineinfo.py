"""The twin of a database with line information, for profilers: see :mod:`jitlto.database.twin`."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from jitlto.base.errors import DatabaseError
from jitlto.base.files import digest_of
from jitlto.build.cache.cache import Cache
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.execution.request import CompileRequest
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.compile.header_places import split_name
from jitlto.compile.nvrtc_program import program_name
from jitlto.database.twin import SOURCES, TwinManifest, twin_directory
from jitlto.families.declaration import FamilyDeclaration

_HEADERS = "headers"  # for those whose names are no paths below a directory
_PLAIN = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)


def with_lineinfo(family: FamilyDeclaration) -> FamilyDeclaration:
    """Return a family that is compiled and linked with line information."""
    return replace(family, link=family.link.merge({"lineinfo": True}), uses=tuple(map(with_lineinfo, family.uses)))


def check_writable(database: Path) -> None:
    """Check that the twin of a database may be written.

    Raises:
        DatabaseError: If something else has its name.
    """
    directory = twin_directory(database)
    if directory.exists() and TwinManifest.read(directory) is None:
        what, hint = "exists and is not the twin of a database: not overwritten", "give another name with -o"
        raise DatabaseError(what, code="database-overwrite", where=str(directory), hint=hint)


def build_twin(
    families: Iterable[FamilyDeclaration],
    database: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    cache: Cache | None = None,
    observer: Observer = NO_OBSERVER,
    allow_incomplete: bool = False,
) -> Path:
    """Build the twin of a database that was built from ``families``, and return its directory.

    Args:
        families: As they were built.
        database: The database.
        jobs, executor, cache, observer, allow_incomplete: As for :func:`jitlto.build.pipeline.build`.

    Raises:
        JitltoError: As for :func:`jitlto.build.pipeline.build`, or if the twin cannot be written.
    """
    check_writable(database)
    directory = twin_directory(database)
    rendered = RenderedFamilies(tuple(map(with_lineinfo, families)))
    # Beside it, so that it can be renamed.
    work = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        made = work / "new"
        made.mkdir()
        build(
            rendered,
            made / database.name,
            jobs=jobs,
            executor=executor,
            cache=cache,
            observer=observer,
            allow_incomplete=allow_incomplete,
        )
        files: dict[str, dict[str, str]] = {}
        written: dict[str, bytes] = {}
        uses = {name: (name, *record.uses) for name, record in rendered.records.items()}
        for family, others in uses.items():
            names = files[family] = {}
            # Its own files first, for a name that another family has too.
            for request in sorted(rendered.requests, key=lambda request: request.key.family != family):
                if request.key.family in others:
                    _add(request, names, written)
        for path, text in written.items():
            target = made / SOURCES / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        TwinManifest(digest_of(database) or "", files).write(made)
        if directory.exists():
            directory.rename(work / "old")
        made.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return directory


def _add(request: CompileRequest, names: dict[str, str], written: dict[str, bytes]) -> None:
    """Add the files of a fragment: the source, as it was compiled, and the headers that belong to the family."""
    key, source = request.key, request.closure
    path = f"{key.family}/{key.group}/{key.file_name}"
    written.setdefault(names.setdefault(program_name(source), path), source.text)
    for name in request.own_closure.headers:
        if name in source.headers:
            path = names.setdefault(name, _header_path(key.family, name))
            names.setdefault(split_name(name)[1], path)  # as nvcc is given it
            written.setdefault(path, source.headers[name])


def _header_path(family: str, name: str) -> str:
    if _PLAIN.fullmatch(name):
        return f"{family}/{name}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{family}/{_HEADERS}/{digest[:16]}/{name.rpartition('/')[2]}"
