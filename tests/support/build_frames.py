"""The functions of jitlto between ``jitlto build`` and NVRTC, on both sides of a worker's socket.

``python -m tests.support.build_frames`` prints them.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner

from jitlto.build.execution.transport import compile_job
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.cli import cli
from tests.support.families import MINI, write_family
from tests.support.frames import ours


def watch(file: str) -> None:
    """In the process that forks workers: write down how the first compile is reached."""
    from cuda.bindings import nvrtc

    compile_ = nvrtc.nvrtcCompileProgram

    def reached(*arguments: Any) -> Any:
        if not Path(file).exists():
            Path(file).write_text(json.dumps(ours()))
        return compile_(*arguments)

    nvrtc.nvrtcCompileProgram = reached


def build_frames(directory: Path) -> list[str]:
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
            self.preload(watch, str(directory / "frames.json"))
            sending.extend([*ours(), f"build.execution.workers: {submit.__qualname__}"])
        return submit(self, fn, *arguments, **named)

    with mock.patch.object(ProcessExecutor, "submit", submitted):
        command = ["build", str(family.parent), "-o", str(directory / "x.fragdb"), "--no-cache", "-j", "1", "-q"]
        done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    working: list[str] = json.loads((directory / "frames.json").read_text())
    return [*sending[sending.index("cli.build: build") :], *working]


if __name__ == "__main__":
    from tests.support.build_frames import build_frames  # by the name under which a worker finds it

    with tempfile.TemporaryDirectory() as temporary:
        for depth, name in enumerate(build_frames(Path(temporary)), 1):
            print(f"{depth:2} {name}")
