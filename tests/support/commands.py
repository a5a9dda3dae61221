"""Commands as tests run them: in this process by default, and in one of their own where the process is what counts."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto import cli
from jitlto.runtime import session
from tests.support.process import Result, python


def jitlto(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result:
    """Run a command in this process, as if it were a fresh one with these environment variables."""
    runner = CliRunner()
    with _as_fresh_process(cwd, variables), runner.isolation() as (out, err, _), _log_to(sys.stderr):
        status = cli.run([str(argument) for argument in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(status, out.getvalue(), err.getvalue().decode())


def jitlto_process(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result:
    """Run a command in a process of its own: for signals, encodings, tracebacks and what is imported."""
    return python("-m", "jitlto", *arguments, cwd=cwd, **variables)


def succeeds(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command that has to succeed; returns what it printed."""
    done = jitlto(*arguments, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(done: Result, status: int, *words: str) -> None:
    """Expect one readable message with these words (names, values, error codes), this exit status, and no traceback."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.lower().count("error:") >= 1
    missing = [word for word in words if word not in done.stderr]
    assert not missing, f"{missing} not in: {done.stderr}"


@contextmanager
def _as_fresh_process(cwd: Path | None, variables: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        session.default.reset()
        try:
            yield
        finally:
            session.default.reset()


@contextmanager
def _log_to(stream: object) -> Iterator[None]:
    """Warnings on standard error, as Python logs them where nobody has set up logging."""
    handler = logging.StreamHandler(stream)  # type: ignore[type-var]
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("jitlto")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
