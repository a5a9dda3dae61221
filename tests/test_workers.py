"""Worker processes: they answer, fail, die and are replaced, and import nothing of the caller's program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jitlto.build.workers import ProcessExecutor, WorkerDied
from jitlto.errors import JitltoError


def test_results_and_exceptions_come_back() -> None:
    with ProcessExecutor(2) as pool:
        futures = [pool.submit(pow, 2, n) for n in range(20)]
        assert [future.result() for future in futures] == [2**n for n in range(20)]
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        with pytest.raises(JitltoError, match="what"):
            pool.submit(_refuse).result()


def _refuse() -> None:
    raise JitltoError("what", where="where", hint="hint")


def test_workers_live_on_from_call_to_call_and_are_other_processes() -> None:
    with ProcessExecutor(1) as pool:
        pids = {pool.submit(os.getpid).result() for _ in range(5)}
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_a_worker_that_dies_is_said_and_replaced() -> None:
    with ProcessExecutor(1) as pool:
        with pytest.raises(WorkerDied, match="7"):
            pool.submit(os._exit, 7).result(timeout=60)
        assert pool.submit(pow, 2, 10).result(timeout=60) == 1024


def test_what_a_worker_prints_does_not_mix_with_its_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with ProcessExecutor(1) as pool:
        assert pool.submit(print, "noise").result() is None
        assert pool.submit(os.write, 1, b"more noise").result() == 10
        assert pool.submit(pow, 3, 3).result() == 27
    assert "noise" in capfd.readouterr().err


def test_cancelling_ends_workers_at_once() -> None:
    pool = ProcessExecutor(2)
    slow = [pool.submit(time.sleep, 600) for _ in range(4)]
    time.sleep(0.5)
    begin = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - begin < 30
    for future in slow:
        assert future.cancelled() or isinstance(future.exception(), WorkerDied)


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """A program read from standard input has no ``__main__`` file that a worker could import again."""
    script = "from jitlto.build.workers import ProcessExecutor\nprint(ProcessExecutor(1).submit(pow, 2, 8).result())"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=120, cwd=tmp_path,
        env=environment, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "256"), done.stderr
