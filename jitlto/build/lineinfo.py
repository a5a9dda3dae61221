"""The twin of a database with line information, for profilers: see :mod:`jitlto.database.twin`."""

import posixpath
import tempfile
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
from jitlto.database.twin import SOURCES, mark_twin, read_original, twin_directory
from jitlto.families.declaration import FamilyDeclaration, change_all


def check_writable(database: Path) -> None:
    """Check that the twin of a database may be written.

    Raises:
        DatabaseError: If something else has its name.
    """
    directory = twin_directory(database)
    if directory.exists() and read_original(directory) is None:
        what = "exists, and is not a twin of this version of jitlto: not overwritten"
        hint = "give another name with -o, or remove the directory if it is the twin of an earlier version"
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
    rendered = RenderedFamilies(change_all(families, _with_lineinfo))
    # Beside it, so that it can be renamed.
    with tempfile.TemporaryDirectory(
        prefix=f"{directory.name}.", dir=directory.parent, ignore_cleanup_errors=True
    ) as work:
        made = Path(work, "new")
        made.mkdir()
        build(rendered, made / database.name, **how)
        for request in rendered.requests:
            _write(request, made / SOURCES / request.key.family)
        mark_twin(made, digest_of(database) or "")
        if directory.exists():
            directory.rename(Path(work, "old"))
        made.rename(directory)
    return directory


def _with_lineinfo(family: FamilyDeclaration) -> FamilyDeclaration:
    return replace(family, link=family.link.merge({"lineinfo": True}))


def _write(request: CompileRequest, directory: Path) -> None:
    """Write the files of a fragment, by the names in its line table: the source, and the family's headers."""
    source = request.closure
    texts = {f"{request.key.group}/{program_name(source.text)}": source.text}
    for name in sorted(source.headers.keys() & request.own_closure.headers.keys()):
        text, plain = source.headers[name], split_name(name)[1]
        is_found = request.config.own.find(plain) == text  # otherwise another header has the plain name
        texts[posixpath.normpath(f"/{plain if is_found else name}")[1:]] = text
    for path, text in texts.items():
        if not (target := directory / path).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
