"""The process that forks workers: what it has loaded they have too, and whatever happens to it is told as a status."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitlto.build.execution.forkserver import ForkServer
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied
from tests.support.errors import raises


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    made = ForkServer(str(tmp_path / "shared"), {})
    yield made
    made.close()


def test_a_fork_ends_with_its_socket_and_its_status_stays_known(server: ForkServer) -> None:
    process, pipe = server.fork()
    assert os.getpgid(process) == process
    assert server.status(process, wait=False) is None
    pipe.close()
    assert server.status(process, wait=True) == -signal.SIGKILL
    assert server.status(process, wait=False) == -signal.SIGKILL
    assert server.is_alive


def test_a_server_that_is_closed_ends_its_forks(server: ForkServer) -> None:
    forks = [server.fork() for _ in range(2)]
    server.close()
    assert all(pipe.poll(10) for _, pipe in forks)  # their ends
    assert not server.is_alive


@pytest.mark.slow
def _is_loaded(name: str) -> bool:
    return name in sys.modules


@pytest.mark.slow
def test_workers_have_what_was_loaded_before_they_were_forked() -> None:
    with ProcessExecutor(1) as pool:
        pool.preload(divmod, 1, 0)  # whoever needs it will say what is wrong
        pool.preload(__import__, "wave")
        assert pool.submit(_is_loaded, "wave").result(timeout=60)
        assert not pool.submit(_is_loaded, "chunk").result(timeout=60)


@pytest.mark.slow
def test_workers_end_with_the_server_and_the_next_call_starts_another() -> None:
    with ProcessExecutor(1) as pool:
        pool.preload(__import__, "wave")
        first, worker = pool.submit(os.getppid).result(timeout=60), pool.submit(time.sleep, 600)
        time.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        with raises(WorkerDied, None, "SIGKILL"):
            worker.result(timeout=60)
        assert pool.submit(os.getppid).result(timeout=60) != first
        assert pool.submit(_is_loaded, "wave").result(timeout=60)
