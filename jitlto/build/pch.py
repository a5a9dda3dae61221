"""Precompiled headers for NVRTC: the includes at the head of many sources are read once a process.

NVRTC writes the state of its front end into a file and maps it at the address where it was, so a file serves the
process that wrote it and no other. It never notices that a virtual header changed: what it was made from is its name
here. Whether it pays is measured: see :meth:`PrecompiledHeaders.run`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jitlto import nvrtc, toolkit
from jitlto.errors import CompileError
from jitlto.headers import Source
from jitlto.nvrtc import Output, Step

#: Fewer sources than this with the same includes do not repay a precompiled header: making one takes about twice as
#: long as a compile, and using it saves half to two thirds of one.
LEAST_SHARERS = 8
_HEAP = 1 << 29  # NVRTC's default of 256 MiB is too small for CUB's headers
_DISK = 1 << 31  # bytes of precompiled headers that one process keeps
_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]+[<\"][^>\"]+[>\"][ \t]*(?://.*)?")
_SKIPPED = re.compile(rb"[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*|#[ \t]*pragma[ \t]+once[ \t]*)?")
_RESET = b"#line 1"
_REMARK = "using precompiled header file"


def hoist(text: bytes) -> tuple[bytes, bytes]:
    """Split a source into the includes at its head and the rest, which keeps the lines' numbers.

    The two one after the other compile to what ``text`` does.
    """
    lines = text.split(b"\n")
    includes: list[bytes] = []
    first = 0
    for number, line in enumerate(lines):
        bare = line.rstrip(b"\r")
        if bare.endswith(b"\\"):  # goes on in the next line
            break
        if bare == _RESET:
            first = number + 1
        elif _INCLUDE.fullmatch(bare):
            includes.append(bare + b"\n")
            lines[number] = b""
        elif not _SKIPPED.fullmatch(bare):
            break
    return b"".join(includes), b"#line 1\n" + b"\n".join(lines[first:])


@dataclass
class _Precompiled:
    """One set of includes for one step: how long the first source took without a file, and the file if there is one."""

    plain: float | None = None
    descriptor: int | None = None
    given_up: bool = False

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.descriptor}"

    def give_up(self) -> None:
        self.given_up = True
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class PrecompiledHeaders:
    """The precompiled headers of one process.

    They live in open files without a name, so that nothing is left behind by a process that is killed.

    Parameters
    ----------
    disk : int
        Bytes that all files together may take.
    """

    def __init__(self, disk: int = _DISK) -> None:
        self._disk = disk
        self._entries: dict[str, _Precompiled] = {}
        self._digests: dict[int, tuple[Mapping[str, bytes], str]] = {}
        self._heap_is_set = False
        #: How many were made and how many compiles used one.
        self.made = self.used = 0

    def run(self, source: Source, step: Step, sharers: int) -> Output:
        """Run one step of a compile, with precompiled headers where they pay, else plainly.

        The first source with its includes is compiled plainly, and its time taken. If ``sharers`` promise enough
        further ones, the second makes the file; from then on it is used, unless a compile with it turns out no
        faster than the first without.

        Parameters
        ----------
        source : Source
        step : Step
        sharers : int
            How many sources of the same includes this process is to expect.

        Raises
        ------
        CompileError
            As :func:`jitlto.nvrtc.run_step`, in terms of the source as it is.
        """
        prefix, rest = hoist(source.text)
        prelude = nvrtc.PROBE_PRELUDE if step.kind == "probe" else b""
        if not prefix or sharers < LEAST_SHARERS:
            return nvrtc.run_step(source, step)
        entry = self._entries.setdefault(self._key(source, prelude + prefix, step), _Precompiled())
        begin = time.perf_counter()
        if entry.plain is None:
            output = nvrtc.run_step(source, step)
            entry.plain = time.perf_counter() - begin
            return output
        if entry.descriptor is None and not entry.given_up:
            self._make(entry, lambda path: self._create(source, prelude + prefix, step, path))
        if entry.given_up:
            return nvrtc.run_step(source, step)
        begin = time.perf_counter()
        try:
            output = nvrtc.run_text(source, prelude + prefix + rest, step, f"--use-pch={entry.path}")
        except CompileError:
            return nvrtc.run_step(source, step)  # for its message, or because it is the file that is at fault
        if _REMARK not in output.log or time.perf_counter() - begin > entry.plain:
            entry.give_up()
        self.used += 1
        return Output(_without_remarks(output.log), output.data)

    def _key(self, source: Source, prefix: bytes, step: Step) -> str:
        known = self._digests.get(id(source.headers))
        if known is None or known[0] is not source.headers:
            digest = Source(b"", source.headers).sha256
            if len(self._digests) > 64:
                self._digests.clear()
            self._digests[id(source.headers)] = known = (source.headers, digest)
        parts = (known[1], hashlib.sha256(prefix).hexdigest(), step.kind, str(step.architecture), *step.options)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _make(self, entry: _Precompiled, create: Callable[[str], None]) -> None:
        """Make the file of an entry and forget its name, or give up."""
        held = sum(os.fstat(e.descriptor).st_size for e in self._entries.values() if e.descriptor is not None)
        if held >= self._disk:
            entry.given_up = True
            return
        with tempfile.TemporaryDirectory(prefix="jitlto-pch-") as directory:
            path = Path(directory) / "headers.pch"
            with contextlib.suppress(CompileError):
                create(str(path))
            try:
                entry.descriptor = os.open(path, os.O_RDONLY)
            except OSError:
                entry.given_up = True
                return
        self.made += 1

    def _create(self, source: Source, prefix: bytes, step: Step, path: str) -> None:
        if not self._heap_is_set:
            toolkit.bindings("nvrtc").nvrtcSetPCHHeapSize(_HEAP)
            self._heap_is_set = True
        # An empty program is no output, which run_text would refuse.
        with contextlib.suppress(CompileError):
            nvrtc.run_text(source, prefix, step, f"--create-pch={path}")


def _without_remarks(log: str) -> str:
    """A log without what NVRTC says of the precompiled header itself."""
    kept = [line for line in log.splitlines() if "precompiled header" not in line]
    return "\n".join(kept).strip()
