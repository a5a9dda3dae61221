"""The functions of jitlto between a call and the CUDA library that answers it: ``python -m tests.support.frames``.

From ``family.launcher(**configuration)`` to nvJitLink, and from ``jitlto build`` to NVRTC, on both sides of a worker's
socket.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

from click.testing import CliRunner

from jitlto.build.execution.transport import compile_job
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.cli import cli
from jitlto.cuda import device
from jitlto.runtime import family as families
from tests.support.families import MINI, built, write_family

_PACKAGE = Path(families.__file__).parents[1]


class _ReachedError(Exception):
    """The library would be called now."""


def frames_to_nvjitlink(call: Callable[[], object]) -> list[str]:
    """Return the functions of jitlto, outermost first, that lead from a call to the first use of a linker."""
    from cuda.bindings import nvjitlink

    found: list[str] = []

    def reached(*_: object) -> object:
        found.extend(ours())
        raise _ReachedError

    with mock.patch.object(nvjitlink, "create", reached), contextlib.suppress(_ReachedError):
        call()
    return found


def ours() -> list[str]:
    """Return the functions of jitlto above the caller, outermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            name = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
            found.append(f"{name}: {frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


def launcher_frames(directory: Path) -> list[str]:
    """Return those from a family's launcher, of a kernel that no cache has, on a machine that seems to have a GPU."""
    mini = built(directory, MINI, "mini")
    capability = SimpleNamespace(compute_capability=(9, 0))
    with mock.patch.object(device, "current", lambda: capability), mock.patch.object(device, "place", lambda: 0):
        return frames_to_nvjitlink(lambda: mini.launcher(data_type="float", op_name="twice"))


def watch(file: str) -> None:
    """In a worker: write down how the first compile is reached."""
    from cuda.bindings import nvrtc

    compile_ = nvrtc.nvrtcCompileProgram

    def reached(*arguments: Any) -> Any:
        if not Path(file).exists():
            Path(file).write_text(json.dumps(ours()))
        return compile_(*arguments)

    nvrtc.nvrtcCompileProgram = reached


def compile_frames(directory: Path) -> list[str]:
    """Return the functions from the command to where it gives the first job to a worker, and from there to NVRTC."""
    # Of so few sources that none begins from a snapshot, whose process makes the same call of NVRTC.
    single = {
        "kern.json": '{"data_type": ["float"]}',
        "op.json": '{"data_type": "float", "op_name": "twice", "expr": "a"}',
    }
    family = write_family(directory, MINI | single)
    sending: list[str] = []
    submit = ProcessExecutor.submit

    def submitted(self: ProcessExecutor, fn: Any, /, *arguments: Any, **named: Any) -> Any:
        if fn is compile_job and not sending:
            submit(self, watch, str(directory / "frames.json")).result()
            sending.extend([*ours(), f"build.execution.workers: {submit.__qualname__}"])
        return submit(self, fn, *arguments, **named)

    with mock.patch.object(ProcessExecutor, "submit", submitted):
        command = ["build", str(family.parent), "-o", str(directory / "x.fragdb"), "--no-cache", "-j", "1", "-q"]
        done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    working: list[str] = json.loads((directory / "frames.json").read_text())
    return [*sending[sending.index("cli.build: build") :], *working]


if __name__ == "__main__":
    from tests.support.frames import compile_frames  # by the name under which a worker finds it

    for find in (launcher_frames, compile_frames):
        with tempfile.TemporaryDirectory() as temporary:
            for depth, name in enumerate(find(Path(temporary)), 1):
                print(f"{depth:2} {name}")
