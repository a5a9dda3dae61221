"""Rendering in a process of its own, which is ended when a template takes more time or memory than it may.

The process stays for later renderings, and ends with the program that started it. Requests and answers are JSON.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from jitlto.base.errors import RenderError

# What rendering one combination may take. Tests lower them.
SECONDS = 10  # of processor time
MEMORY = 1 << 30  # bytes, beyond what the process takes before
LENGTH = 16 << 20  # characters of a source, and of an entry of params
LIMIT_HINT = "look for a loop, a repetition, a width or a recursion that is larger than it was meant to be"
_COMMAND = (
    "import sys; sys.path[:] = {path!r}; from jitlto.families.rendering.worker import serve; serve(int(sys.argv[1]))"
)


class Request(TypedDict):
    """A template to render with several combinations."""

    template: str
    syntax: str  # jinja or cmake
    folders: Sequence[str]  # in which templates may lie
    entries: Sequence[str]  # of params
    combinations: Sequence[Mapping[str, str]]
    stop: bool  # at the first combination that fails


class Answer(TypedDict, total=False):
    """The text that a combination gives, and its ``params``; or what went wrong."""

    text: str
    digest: str  # of the text without comments and blanks
    params: list[str]
    read: dict[str, str | None]  # SHA-256 of the files read so far by their names; None for one that is not there
    used: list[str]  # names that the template or ``params`` looked up so far
    what: str
    code: str
    hint: str
    where: str  # file and line of a template
    entry: str  # the entry of ``params`` that fails, where it is not the template


class _Renderer:
    """The process that renders; for one thread at a time."""

    def __init__(self) -> None:
        path = [str(Path(entry).absolute()) for entry in sys.path]
        answers, low = os.pipe()
        theirs = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)  # not that of a standard stream which is closed here
        os.close(low)
        try:
            # Not its standard output, to which other programs' start-up code may print.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND.format(path=path), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs,),
                process_group=0,  # an interrupt is for the program that we belong to
            )
        except BaseException:
            os.close(answers)
            raise
        finally:
            os.close(theirs)
        self._answers = open(answers, "rb")  # noqa: SIM115, PTH123 - closed with the process

    def render(self, request: Request) -> list[Answer]:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - a pipe
        # Paths may be relative, and our directory may have changed since the process was started.
        context = {"directory": _directory(), "seconds": SECONDS, "memory": MEMORY, "length": LENGTH}
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            stdin.write(json.dumps([request, context]).encode() + b"\n")
            stdin.flush()
        answers: list[Answer] = []
        for _ in request["combinations"]:
            line = self._answers.readline()
            if not line.endswith(b"\n"):
                return [*answers, self._describe_death(request["template"])]
            answers.append(json.loads(line))
            if "what" in answers[-1] and request["stop"]:
                break
        return answers

    def _describe_death(self, template: str) -> Answer:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        status = self._process.poll()
        if status == -signal.SIGXCPU:
            what = f"rendering takes more than {SECONDS} s of processor time"
        elif status is not None and status < 0:
            what = f"rendering takes too much memory or crashes its process (signal {-status})"
        else:
            what = f"the process that renders templates ended with exit status {status}"
        return {"what": what, "code": "render-limit", "hint": LIMIT_HINT, "where": template}

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        with self._answers, contextlib.suppress(BrokenPipeError), self._process:  # a request that it did not read
            pass

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None


def _directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it has been removed
        return "/"


_spare: dict[int, _Renderer] = {}  # by process, for a fork must not use that of its parent


def prepare() -> None:
    """Start the process, so that it is ready when the first template is rendered."""
    if os.getpid() not in _spare:
        with contextlib.suppress(OSError):  # which rendering reports
            _spare[os.getpid()] = _Renderer()


def render(request: Request) -> list[Answer]:
    """Render a template with several combinations.

    Returns:
        list of Answer: For each combination in order; the last one is an error where ``stop`` is set, or where the
            process had to be ended.

    Raises:
        RenderError: If there can be no such process.
    """
    try:
        renderer = _spare.pop(os.getpid(), None)
        if renderer is not None and not renderer.is_alive:
            renderer.close()
            renderer = None
        renderer = renderer or _Renderer()
    except OSError as error:
        what = f"cannot start a process that renders templates: {error.strerror}"
        raise RenderError(what, where=request["template"], hint="free some memory, or end other processes") from error
    answers: list[Answer] = []
    try:
        answers = renderer.render(request)
    finally:
        if not answers or not renderer.is_alive or _spare.setdefault(os.getpid(), renderer) is not renderer:
            renderer.close()
    return answers


@atexit.register
def _close_spare() -> None:
    renderer = _spare.pop(os.getpid(), None)
    if renderer is not None:
        renderer.close()
