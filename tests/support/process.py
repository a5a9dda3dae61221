"""Python processes of their own, which find this checkout."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The root of the checkout.
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What a process printed, and its exit status."""

    returncode: int
    data: bytes
    stderr: str

    @property
    def stdout(self) -> str:
        return self.data.decode()


def environment(**variables: str) -> dict[str, str]:
    """The variables of this process, with the checkout on Python's path, and further ones."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | variables


def python(
    *arguments: str | Path, cwd: Path | None = None, stdin: str = "", seconds: float = 300, **variables: str
) -> Result:
    """Run Python with these arguments and environment variables."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=stdin.encode(),
        capture_output=True,
        cwd=cwd,
        env=environment(**variables),
        timeout=seconds,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr.decode())


def output_of(
    code: str, *arguments: str | Path, cwd: Path | None = None, seconds: float = 300, **variables: str
) -> str:
    """Run Python code that has to succeed; returns what it prints."""
    done = python("-c", code, *arguments, cwd=cwd, seconds=seconds, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started(
    *arguments: str | Path, variables: dict[str, str] | None = None, **how: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start Python, with its output piped; it is killed in the end.

    ``how`` is passed on to :class:`subprocess.Popen`.
    """
    command = [sys.executable, *map(str, arguments)]
    how = {"stdout": subprocess.PIPE, "text": True} | how
    with subprocess.Popen(command, env=environment(**variables or {}), **how) as process:
        try:
            yield process
        finally:
            process.kill()
