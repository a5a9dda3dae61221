"""The headers that a compile reads, from NVRTC's time trace.

The trace is exact: it has every opened header, and none from branches that are not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import CompileError
from jitlto.base.files import temporary_directory
from jitlto.base.lock import locked
from jitlto.base.versions import Version
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc_program import Program, Step
from jitlto.record.headers import Source, digest_headers

#: The first release whose time trace names headers.
TRACES_HEADERS = Version(13, 0)
#: Time limit in seconds: a trace costs a compile of the includes, which for expensive ones is more than it saves.
_PATIENCE = 0.4
_ASKS_BY_MACRO = re.compile(rb"__has_include(?:_next)?[ \t]*(?:\([ \t]*)?[^\s(<\"]|%:|\?\?=")


class HeaderTraces:
    """The traces of this process, and of other processes with the same directory.

    Args:
        shared: A private directory that the processes share, or None.
    """

    def __init__(self, shared: Path | None) -> None:
        self._shared = shared
        self._known: dict[str, frozenset[str] | None] = {}

    def find(self, job: CompileJob, text: bytes, steps: Sequence[Step]) -> frozenset[str] | None:
        """Return the names of the headers that these steps read when they compile ``text`` with a job's headers.

        Return None if that is unclear, or takes too long to find out.
        """
        parts = (text.decode("utf-8", "surrogateescape"), digest_headers(job.source.headers), *map(str, steps))
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
        if key not in self._known:
            self._known[key] = self._find(key, job, text, steps)
        return self._known[key]

    def _find(self, key: str, job: CompileJob, text: bytes, steps: Sequence[Step]) -> frozenset[str] | None:
        if self._shared is None:
            return _trace_headers(job, text, steps)
        path = self._shared / f"trace-{key}"
        with locked(path.with_suffix(".lock"), _PATIENCE * len(steps), "finds out which headers are read"):
            try:
                if path.exists():
                    names = json.loads(path.read_bytes())
                    return None if names is None else frozenset(names)
                traced = _trace_headers(job, text, steps)
                files.write(path, json.dumps(traced if traced is None else sorted(traced)).encode(), sync=False)
            except OSError:  # the disk is full
                return None
        return traced


def _trace_headers(job: CompileJob, text: bytes, steps: Sequence[Step]) -> frozenset[str] | None:
    if not hasattr(os, "fork"):
        return None
    found: set[str] = set()
    for step in steps:
        with temporary_directory("jitlto-trace-") as directory:
            # In a child, because NVRTC 13.0 to 13.5 corrupts its memory after some traces in one process.
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    _trace(job, text, step, directory)
                os._exit(0)
            if not _ended(child):
                return None
            names = _names(Path(directory) / "trace.json") & job.source.headers.keys()
        if not names:
            return None
        found |= names
    # An existence check through a macro may depend on a header that is not read.
    return None if any(_ASKS_BY_MACRO.search(job.source.headers[name]) for name in found) else frozenset(found)


def _trace(job: CompileJob, text: bytes, step: Step, directory: str) -> None:
    with contextlib.suppress(CompileError):
        program = Program.whole(Source(text, job.source.headers))
        nvrtc.run_program(program, job.source.headers, step, f"--fdevice-time-trace={directory}/trace")


def _ended(child: int) -> bool:
    """Return whether a child ends in time; kill it if not."""
    deadline = time.monotonic() + _PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.002)
    return True


def _names(path: Path) -> set[str]:
    try:
        events = json.loads(path.read_bytes())["traceEvents"]
    except (OSError, ValueError, KeyError):
        return set()
    return {e["args"]["detail"] for e in events if e.get("name") == "Processing Header File"}
