"""A source and its family's include directories, laid out for a preprocessor that reads real files.

nvcc reads a header under a path relative to its working directory, so its output does not depend on where that is, nor
on where the headers came from. A large tree is written once for all processes that compile together.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.header_places import split_name
from jitlto.record.headers import Source, digest_headers

_HEADERS = "include"
#: The link to the toolkit, beside the family's include directories.
TOOLKIT = "toolkit"
#: The source is beside nothing, and too deep for ``../include/`` to be the family's headers.
SOURCE = "s/o/u/r/c/e"


def lay_out(work: Path, source: Source, shared: Path | None = None) -> None:
    """Put a source and its :func:`include_directories` into ``work``.

    Args:
        work: An empty directory.
        source: With all headers.
        shared: A directory where headers are kept for other compiles, and for other processes.
    """
    (work / SOURCE).mkdir(parents=True)
    (work / SOURCE / nvrtc.program_name(source)).write_bytes(source.text)
    if shared is None:
        _write_headers(work, source.headers)
        return
    place = shared / f"headers-{digest_headers(source.headers)}"
    if not place.exists():
        temporary = Path(tempfile.mkdtemp(dir=shared))
        _write_headers(temporary, source.headers)
        with suppress(OSError):  # another process was faster
            temporary.rename(place)
        shutil.rmtree(temporary, ignore_errors=True)
    for directory in place.iterdir():
        (work / directory.name).symlink_to(directory, target_is_directory=True)


def include_directories(headers: Mapping[str, bytes]) -> list[str]:
    """The family's include directories in order, each so deep that a header above it has a place of its own."""
    places = [split_name(name) for name in headers]
    above = max((path.count("../") for _, path in places if path.startswith("../")), default=0)
    count = 1 + max((root for root, _ in places), default=0)
    return [f"{_HEADERS}{number or ''}{'/^' * above}" for number in range(count)]


def header_paths(headers: Mapping[str, bytes]) -> dict[str, str]:
    """The name of each header by its path."""
    directories = include_directories(headers)
    places = {name: split_name(name) for name in headers}
    return {os.path.normpath(f"{directories[root]}/{path}"): name for name, (root, path) in places.items()}


def _write_headers(work: Path, headers: Mapping[str, bytes]) -> None:
    for root in include_directories(headers):
        (work / root).mkdir(parents=True)
    paths = header_paths(headers)
    for directory in {os.path.dirname(path) for path in paths}:  # noqa: PTH120 - there may be thousands
        (work / directory).mkdir(parents=True, exist_ok=True)
    for path, name in paths.items():
        place = f"{work}/{path}"
        with open(place, "wb") as file:  # noqa: PTH123 - as above
            file.write(headers[name])
        # By content and time GCC knows a header with `#pragma once` that is in two places.
        os.utime(place, (0, 0))
