"""Precompiled headers for NVRTC: the includes at the head of many sources are read once a process.

NVRTC writes the state of its front end into a file and maps it at the address where it was, so a file serves processes
whose heap lies at the same address: that which wrote it, and those that were started alike. It never notices that a
virtual header changed: what it was made from is its name here. Whether it pays is measured: see
:meth:`PrecompiledHeaders.run`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from jitlto import nvrtc, toolkit
from jitlto.build import travel
from jitlto.errors import CompileError, JitltoError
from jitlto.headers import Source
from jitlto.nvrtc import Output, Step
from jitlto.versions import Architecture

#: Fewer sources than this with the same includes do not repay a precompiled header: making one takes about twice as
#: long as a compile, and using it saves half to two thirds of one.
LEAST_SHARERS = 6
_HEAP = 1 << 29  # NVRTC's default of 256 MiB is too small for CUB's headers
_DISK = 1 << 31  # bytes of precompiled headers that one process keeps
_TRIALS = 4  # uses of a precompiled header after which it is judged; one alone may have been held up by others
_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]+[<\"][^>\"]+[>\"][ \t]*(?://.*)?")
_SKIPPED = re.compile(rb"[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*|#[ \t]*pragma[ \t]+once[ \t]*)?")
_RESET = b"#line 1"
_REMARK = "using precompiled header file"


# What NVRTC was seen to forget in a precompiled header (the state of pragmas), or to name after the source that made it
# (what depends on types without linkage).
_LOST = re.compile(rb"#[ \t]*pragma[ \t]+(?!once\b|unroll\b)|\b_Pragma\b|%:|\?\?|\bnamespace\s*\{|\]\s*\([^)]*\)\s*\{")


def may_be_precompiled(headers: Iterable[bytes]) -> bool:
    """Whether headers of an author's own are such that a precompiled one is as good; the toolkit's are known to be."""
    return not any(_LOST.search(content) for content in headers)


def hoist(text: bytes) -> tuple[bytes, bytes]:
    """Split a source into the includes at its head and the rest, which keeps the lines' numbers.

    The two one after the other compile to what ``text`` does.
    """
    lines = text.split(b"\n")
    includes: list[bytes] = []
    first = 0
    for number, line in enumerate(lines):
        bare = line.rstrip(b"\r")
        if bare.rstrip().endswith((b"\\", b"??/")):  # goes on in the next line
            break
        if bare == _RESET:
            first = number + 1
        elif _INCLUDE.fullmatch(bare):
            includes.append(bare + b"\n")
            lines[number] = b""
        elif not _SKIPPED.fullmatch(bare):
            break
    return b"".join(includes), b"#line 1\n" + b"\n".join(lines[first:])


def reserve() -> None:
    """Have NVRTC map its heap for precompiled headers now, where workers that are started alike map it too."""
    with contextlib.suppress(JitltoError), tempfile.TemporaryDirectory(prefix="jitlto-pch-") as directory:
        toolkit.bindings("nvrtc").nvrtcSetPCHHeapSize(_HEAP)
        step = Step("ptx", Architecture(75), ())
        nvrtc.run_text(Source(b"", {"empty.h": b""}), b'#include "empty.h"\n', step, f"--create-pch={directory}/empty")


@dataclass
class _Precompiled:
    """One set of includes for one step.

    Parameters
    ----------
    plain : float or None
        Seconds that the first source took without a file; None if none was compiled so.
    uses : list of float
        Seconds that sources took with a file.
    sample : (Source, bytes) or None
        That source, and what it became.
    descriptor : int or None
        The file, if there is one.
    shared : bool
        Whether another process made it.
    alone : bool
        Whether files of other processes do not serve this one.
    given_up : bool
        Whether no file is to be used.
    """

    plain: float | None = None
    uses: list[float] = field(default_factory=list)
    sample: tuple[Source, bytes] | None = None
    descriptor: int | None = None
    shared: bool = False
    alone: bool = False
    given_up: bool = False

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.descriptor}"

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class PrecompiledHeaders:
    """The precompiled headers of one process.

    They live in open files without a name, so that nothing is left behind by a process that is killed. Processes that
    share a directory find each other's through ``/proc``.

    Parameters
    ----------
    shared : Path, optional
        A directory that processes share which were started alike, see :func:`reserve`.
    disk : int
        Bytes that all files of this process together may take.
    """

    def __init__(self, shared: Path | None = None, disk: int = _DISK) -> None:
        self._shared = shared
        self._disk = disk
        self._entries: dict[str, _Precompiled] = {}
        self._heap_is_set = False
        #: How many were made here and how many compiles used one.
        self.made = self.used = 0

    def run(self, source: Source, step: Step, sharers: int) -> Output:
        """Run one step of a compile, with precompiled headers where they pay, else plainly.

        The first source with its includes is compiled plainly, and its time taken. If ``sharers`` promise enough
        further ones, the second makes the file; from then on it is used, unless several compiles with it turn out no
        faster than the first without. A file that another process has made is used at once.

        Parameters
        ----------
        source : Source
        step : Step
        sharers : int
            How many sources of the build have the same includes.

        Raises
        ------
        CompileError
            As :func:`jitlto.nvrtc.run_step`, in terms of the source as it is.
        """
        prefix, rest = hoist(source.text)
        if not prefix or sharers < LEAST_SHARERS:
            return nvrtc.run_step(source, step)
        head = (nvrtc.PROBE_PRELUDE if step.kind == "probe" else b"") + prefix
        key = self._key(source, head, step)
        entry = self._entries.setdefault(key, _Precompiled())
        if entry.descriptor is None and not entry.given_up and not self._find(entry, key):
            if entry.plain is None:
                begin = time.perf_counter()
                output = nvrtc.run_step(source, step)
                entry.plain, entry.sample = time.perf_counter() - begin, (source, output.data)
                return output
            self._make(entry, key, head, step)
        if entry.descriptor is None:
            return nvrtc.run_step(source, step)
        begin = time.perf_counter()
        try:
            output = nvrtc.run_text(source, head + rest, step, f"--use-pch={entry.path}")
        except CompileError:
            return nvrtc.run_step(source, step)  # for its message, or because it is the file that is at fault
        self._judge(entry, key, time.perf_counter() - begin, served=_REMARK in output.log)
        return Output(_without_remarks(output.log), output.data)

    def _judge(self, entry: _Precompiled, key: str, seconds: float, *, served: bool) -> None:
        self.used += served
        entry.uses.append(seconds)
        slow = entry.plain is not None and len(entry.uses) >= _TRIALS and min(entry.uses) > entry.plain
        if served and not slow:
            return
        entry.close()
        if not served and entry.shared:
            entry.alone = True  # its heap lies elsewhere: make one here
            return
        entry.given_up = True
        if self._shared is not None:
            (self._shared / key).unlink(missing_ok=True)

    def _find(self, entry: _Precompiled, key: str) -> bool:
        """Open the file that another process has made, if there is one."""
        if self._shared is None or entry.alone:
            return False
        try:
            entry.descriptor = os.open((self._shared / key).read_text(), os.O_RDONLY)
        except OSError:
            return False
        entry.shared = True
        return True

    def _key(self, source: Source, head: bytes, step: Step) -> str:
        parts = (
            travel.digest(source.headers),
            hashlib.sha256(head).hexdigest(),
            step.kind,
            str(step.architecture),
            *step.options,
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _make(self, entry: _Precompiled, key: str, head: bytes, step: Step) -> None:
        """Make the file of an entry, check it, forget its name, and tell the others.

        Nothing if another process is at it. A file with which the first source becomes something else than without is
        not used.
        """
        assert entry.sample is not None  # noqa: S101 - a source was compiled plainly before
        source, expected = entry.sample
        entry.sample = None
        held = sum(
            os.fstat(e.descriptor).st_size for e in self._entries.values() if e.descriptor is not None and not e.shared
        )
        if held >= self._disk:
            entry.given_up = True
            return
        with self._alone(entry, key) as alone:
            if not alone:
                entry.sample = (source, expected)
                return
            with tempfile.TemporaryDirectory(prefix="jitlto-pch-") as directory:
                path = Path(directory) / "headers.pch"
                self._create(source, head, step, str(path))
                try:
                    entry.descriptor = os.open(path, os.O_RDONLY)
                except OSError:
                    entry.given_up = True
                    return
            self.made += 1
            entry.shared = False
            if not self._agrees(entry, source, head, step, expected):
                entry.close()
                entry.given_up = True
                return
            if self._shared is not None and not entry.alone:
                with contextlib.suppress(OSError):
                    (self._shared / key).write_text(f"/proc/{os.getpid()}/fd/{entry.descriptor}")

    def _agrees(self, entry: _Precompiled, source: Source, head: bytes, step: Step, expected: bytes) -> bool:
        try:
            output = nvrtc.run_text(source, head + hoist(source.text)[1], step, f"--use-pch={entry.path}")
        except CompileError:
            return False
        return output.data == expected

    @contextlib.contextmanager
    def _alone(self, entry: _Precompiled, key: str) -> Iterator[bool]:
        """Whether no other process is making this file now."""
        if self._shared is None or entry.alone:
            yield True
            return
        lock = filelock.FileLock(self._shared / f"{key}.lock", timeout=0)
        try:
            lock.acquire()
        except (filelock.Timeout, OSError):
            yield False
            return
        with lock:
            yield True

    def _create(self, source: Source, head: bytes, step: Step, path: str) -> None:
        if not self._heap_is_set:
            toolkit.bindings("nvrtc").nvrtcSetPCHHeapSize(_HEAP)
            self._heap_is_set = True
        # An empty program is no output, which run_text would refuse.
        with contextlib.suppress(CompileError):
            nvrtc.run_text(source, head, step, f"--create-pch={path}")


def _without_remarks(log: str) -> str:
    """A log without what NVRTC says of the precompiled header itself."""
    kept = [line for line in log.splitlines() if "precompiled header" not in line]
    return "\n".join(kept).strip()
