"""A source and its family's include directories, laid out for a preprocessor that reads real files.

nvcc reads a header under a path relative to its working directory, so its output does not depend on where that is, nor
on where the headers came from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.header_places import split_name
from jitlto.record.headers import Source

_HEADERS = "include"
#: The link to the toolkit, beside the family's include directories.
TOOLKIT = "toolkit"
#: The source is beside nothing, and too deep for ``../include/`` to be the family's headers.
SOURCE = "s/o/u/r/c/e"


def lay_out(work: Path, source: Source) -> None:
    """Put a source, which has all headers, and its :func:`include_directories` into an empty directory."""
    paths = header_paths(source.headers)
    for directory in {SOURCE, *include_directories(source.headers), *map(os.path.dirname, paths)}:
        (work / directory).mkdir(parents=True, exist_ok=True)
    (work / SOURCE / nvrtc.program_name(source)).write_bytes(source.text)
    for path, name in paths.items():
        with open(f"{work}/{path}", "wb") as file:  # noqa: PTH123 - there may be thousands
            file.write(source.headers[name])
        # By content and time GCC knows a header with `#pragma once` that is in two places.
        os.utime(f"{work}/{path}", (0, 0))


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
