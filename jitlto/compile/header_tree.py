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


class HeaderTrees:
    """Lays out sets of headers.

    Args:
        shared_directory: Where trees are kept for other compiles, and for other processes; by default each compile
            gets files of its own.
    """

    def __init__(self, shared_directory: Path | None) -> None:
        self._shared = shared_directory
        self._last: tuple[Mapping[str, bytes], Path] | None = None

    def lay_out(self, work: Path, headers: Mapping[str, bytes]) -> None:
        """Put the :func:`include_directories` into ``work``."""
        if self._shared is None:
            write_headers(work, headers)
            return
        if self._last is None or self._last[0] is not headers:
            self._last = headers, self._kept(self._shared / f"headers-{digest_headers(headers)}", headers)
        for directory in self._last[1].iterdir():
            (work / directory.name).symlink_to(directory, target_is_directory=True)

    def _kept(self, place: Path, headers: Mapping[str, bytes]) -> Path:
        if not place.exists():
            temporary = Path(tempfile.mkdtemp(dir=place.parent))
            write_headers(temporary, headers)
            with suppress(OSError):  # another process was faster
                temporary.rename(place)
            shutil.rmtree(temporary, ignore_errors=True)
        return place


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


def write_headers(work: Path, headers: Mapping[str, bytes]) -> None:
    """Write headers into their :func:`include_directories`."""
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


def write_source(work: Path, top: Path, source: Source, shared: Path | None = None) -> None:
    """Write a source and the link to the toolkit.

    It lies in the directory that compiles share, if there is one, so that its directories are made once.
    """
    (work / TOOLKIT).symlink_to(top, target_is_directory=True)
    if shared is None:
        (work / SOURCE).mkdir(parents=True)
    else:
        (shared / SOURCE).mkdir(parents=True, exist_ok=True)
        first = Path(SOURCE).parts[0]
        (work / first).symlink_to(shared / first, target_is_directory=True)
    path = work / SOURCE / nvrtc.program_name(source)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")  # another process may be reading the same source
    temporary.write_bytes(source.text)
    temporary.rename(path)
