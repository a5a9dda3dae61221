"""Line information for profilers: families that are compiled with it, and the sources that line tables name."""

import posixpath
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from jitlto.base import files
from jitlto.build.execution.request import CompileRequest
from jitlto.compile.headers import split_name
from jitlto.compile.nvrtc_program import program_name
from jitlto.families.declaration import FamilyDeclaration


def with_lineinfo(family: FamilyDeclaration) -> FamilyDeclaration:
    """Return a family whose fragments have line information."""
    return replace(family, link=family.link.merge({"lineinfo": True}))


def write_sources(requests: Iterable[CompileRequest], database: Path) -> Path:
    """Write what a database was compiled from beside it; return the directory, ``STEM.sources``.

    A profiler finds rendered sources, and the families' headers, by their names in line tables.

    Raises:
        JitltoError: If they cannot be written.
    """
    directory, texts = database.with_suffix(".sources"), dict[str, bytes]()
    for request in requests:
        for name, text in _texts(request).items():
            texts.setdefault(f"{request.key.family}/{name}", text)
    try:
        for name, text in texts.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(text)
    except OSError as error:
        raise files.unwritable(error, directory, "give another name with -o") from error
    return directory


def _texts(request: CompileRequest) -> dict[str, bytes]:
    """Return the source of a fragment and its family's headers, by the paths that end with their names."""
    source = request.closure
    texts = {f"{request.key.group}/{program_name(source.text)}": source.text}
    for name in sorted(source.headers.keys() & request.own_closure.headers.keys()):
        text, plain = source.headers[name], split_name(name)[1]
        is_found = request.config.own.find(plain) == text  # otherwise another header has the plain name
        texts[posixpath.normpath(f"/{plain if is_found else name}")[1:]] = text
    return texts
