"""What a worker tells of one compile: the unit, and where the time went."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass

from jitlto.build.compilers.compiled_source import Job, Unit
from jitlto.build.execution import transport


@dataclass(frozen=True, slots=True)
class Report:
    """A unit with its circumstances, which are no part of it.

    Parameters
    ----------
    unit : Unit
        What was compiled.
    seconds : float
        Wall time of the compile.
    worker : str
        Host and process.
    """

    unit: Unit
    seconds: float
    worker: str


def compile_reported(job: Job) -> Report:
    """Compile a job in this process, see :func:`jitlto.build.execution.transport.compile_job`."""
    begin = time.perf_counter()
    unit = transport.compile_job(job)
    return Report(unit, time.perf_counter() - begin, f"{socket.gethostname()}:{os.getpid()}")
