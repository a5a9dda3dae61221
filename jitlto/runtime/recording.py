"""Recording: write the plans that a program uses to a file, so that they can be linked ahead on any machine.

The file has one line of JSON per plan; several processes may append to it at once. Recording never makes a program
fail.

>>> with jitlto.runtime.session.recording("used.jsonl"):
...     plan.link()
>>> [used.request.configuration for used in jitlto.runtime.recording.read("used.jsonl")]
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.errors import JitltoError
from jitlto.base.events import Event, Kind
from jitlto.base.versions import Architecture
from jitlto.plan.plan import Plan, Request

_BEGIN = b'{"arch":['  # of every line, for its names are sorted
_log = logging.getLogger(__name__)


class UsedPlan(Struct, frozen=True):
    """A plan that a program used.

    Args:
        request: The request that it answers.
        arch: Its target architecture.
    """

    request: Request
    arch: Architecture
    recorded: Literal[3] = 3

    def to_line(self) -> bytes:
        """Encode as one line of JSON, with the newline; equal plans make equal lines."""
        return msgspec.json.encode(self, order="sorted") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> UsedPlan:
        """Read a line.

        Raises:
            ValueError: If it is not a recorded plan, or was written by a different version.
        """
        try:
            read = decoder(cls).decode(line)
            for _, data, kind in read.request.supplied:
                if kind is None:
                    data.decode()  # a source
            return read
        except RecursionError as error:
            raise ValueError(f"not a recorded plan: {error}") from error


def read(path: str | os.PathLike[str]) -> list[UsedPlan]:
    """Read the plans of a recorded file, each once, in the order of first use.

    Truncated or damaged lines are skipped, and a warning is logged.

    Raises:
        JitltoError: If the file cannot be read, or has lines but no recorded plan.
    """
    hint = "record one with this version: JITLTO_RECORD=FILE PROGRAM"
    try:
        lines = dict.fromkeys(line for line in files.read(path).split(b"\n") if line.strip())
    except OSError as error:
        raise JitltoError(
            f"cannot be read: {error.strerror or error}", code="jitlto-unreadable-file", where=str(path), hint=hint
        ) from error
    used = []
    for line in lines:
        with contextlib.suppress(ValueError):
            used.append(UsedPlan.from_line(line))
    if bad := len(lines) - len(used):
        if not used:
            raise JitltoError("not a file of recorded plans", code="jitlto-malformed-file", where=str(path), hint=hint)
        _log.warning("%s: %d of its lines cut off, damaged or of another version of jitlto, and skipped", path, bad)
    return used


class Recorder:
    """A subscriber to events that appends the plans in use to a file, each once.

    If the file cannot be written, one warning is logged.

    Args:
        path: The file; it is created if it is missing, and appended to if it exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # so that a later chdir has no effect
        self._seen: dict[str, object] = {}
        self._broken = False

    def __call__(self, event: Event) -> None:
        if event.kind == Kind.REQUESTED and isinstance(event.plan, Plan):
            self.record(event.plan)

    def record(self, plan: Plan) -> None:
        """Add a plan, unless it was added before."""
        # No lock, which a fork could leave locked: setdefault lets one thread in.
        mine = object()
        if self._seen.setdefault(plan.digest, mine) is not mine:
            return
        if plan.request is None:
            _log.warning("%r is not recorded: a Python function cannot be recorded", plan)
            return
        try:
            _append(self._path, UsedPlan(plan.request, plan.target).to_line())
        except OSError as error:
            if not self._broken:
                _log.warning("%s: plans are not recorded: %s", self._path, error.strerror or error)
            self._broken = True


def _append(path: Path, line: bytes) -> None:
    """Append a line in one write, so that lines of several processes do not mix."""
    descriptor = files.open_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        size = status.st_size
        # Compare only the bytes that are there: a process that died in the first line has written a part of it.
        begin = os.pread(descriptor, 2 * len(_BEGIN), 0).lstrip(b"\n")[: len(_BEGIN)] if size else b""
        if not _BEGIN.startswith(begin):
            raise OSError("the file holds something else")
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # a process that died in a line did not end it
        if os.write(descriptor, line) != len(line):
            raise OSError("the file takes no more")
    finally:
        os.close(descriptor)
