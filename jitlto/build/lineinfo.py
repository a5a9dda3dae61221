"""The twin of a database with line information, for profilers: see :mod:`jitlto.database.twin`."""

import hashlib
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jitlto.base.errors import DatabaseError
from jitlto.base.files import digest_of
from jitlto.build.execution.request import CompileRequest
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.compile.headers import split_name
from jitlto.compile.nvrtc_program import program_name
from jitlto.database.twin import SOURCES, TwinManifest, twin_directory
from jitlto.families.declaration import FamilyDeclaration

_PLAIN = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)  # a path below a directory


def check_writable(database: Path) -> None:
    """Check that the twin of a database may be written.

    Raises:
        DatabaseError: If something else has its name.
    """
    directory = twin_directory(database)
    if directory.exists() and TwinManifest.read(directory) is None:
        what, hint = "exists and is not the twin of a database: not overwritten", "give another name with -o"
        raise DatabaseError(what, code="database-overwrite", where=str(directory), hint=hint)


def build_twin(families: Iterable[FamilyDeclaration], database: Path, **how: Any) -> Path:
    """Build the twin of a database that was built from ``families``, and return its directory.

    Args:
        families: As they were built.
        database: The database.
        how: As for :func:`jitlto.build.pipeline.build`.

    Raises:
        JitltoError: As for :func:`jitlto.build.pipeline.build`, or if the twin cannot be written.
    """
    check_writable(database)
    directory = twin_directory(database)
    rendered = RenderedFamilies(map(_with_lineinfo, families))
    # Beside it, so that it can be renamed.
    work = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        made = work / "new"
        made.mkdir()
        build(rendered, made / database.name, **how)
        own: dict[str, dict[str, str]] = defaultdict(dict)  # by family: the file of each name
        for request in rendered.requests:
            _write(request, own[request.key.family], made / SOURCES)
        files = {name: dict(own[name]) for name in rendered.records}
        for name, record in rendered.records.items():
            for used in record.uses:
                files[name] = own[used] | files[name]
        TwinManifest(digest_of(database) or "", files).write(made)
        if directory.exists():
            directory.rename(work / "old")
        made.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return directory


def _with_lineinfo(family: FamilyDeclaration) -> FamilyDeclaration:
    return replace(family, link=family.link.merge({"lineinfo": True}), uses=tuple(map(_with_lineinfo, family.uses)))


def _write(request: CompileRequest, names: dict[str, str], directory: Path) -> None:
    """Write the files of a fragment: the source, as it was compiled, and the headers that belong to the family."""
    family, source = request.key.family, request.closure
    path = names.setdefault(program_name(source), f"{family}/{request.key.group}/{request.key.file_name}")
    texts = {path: source.text}
    for name in (each for each in request.own_closure.headers if each in source.headers):
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
        plain = name if _PLAIN.fullmatch(name) else f"headers/{digest[:16]}/{name.rpartition('/')[2]}"
        path = names.setdefault(name, f"{family}/{plain}")
        names.setdefault(split_name(name)[1], path)  # as nvcc is given it
        texts[path] = source.headers[name]
    for path, text in texts.items():
        if not (target := directory / path).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
