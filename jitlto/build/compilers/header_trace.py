"""The headers that a compile reads, from NVRTC's time trace.

The trace is exact: it has every opened header, and none from branches that are not taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from jitlto.build.compilers.base import CompileJob
from jitlto.cuda import nvrtc
from jitlto.cuda.nvrtc import Program, Step
from jitlto.errors import CompileError
from jitlto.model.headers import Source
from jitlto.model.versions import Version
from jitlto.storage.files import temporary_directory

#: The first release whose time trace names headers.
TRACES_HEADERS = Version(13, 0)
#: Time limit in seconds: a trace costs a compile of the includes, which for expensive ones is more than it saves.
_PATIENCE = 0.4


def traced_headers(job: CompileJob, text: bytes) -> frozenset[str] | None:
    """Return the names of the headers that are read when ``text`` is compiled for any of a job's architectures.

    Return None if the trace is empty or takes too long.
    """
    if not hasattr(os, "fork"):
        return None
    found: set[str] = set()
    # Each step defines different macros, which may select headers.
    for step in (Step.from_options(kind, a, job.options) for a in job.architectures for kind in nvrtc.STEPS):
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
    return frozenset(found)


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
