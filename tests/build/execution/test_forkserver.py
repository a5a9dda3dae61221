"""The process that forks workers: what it has loaded they have too, and whatever happens to it is told as a status."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from jitlto.build.execution import workers
from jitlto.build.execution.forkserver import ForkServer
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied
from tests.support.errors import raises


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer(workers.serve, "/nowhere", environment={})
    yield made
    made.close()


def test_a_fork_ends_with_its_socket_and_its_status_is_told_once(server: ForkServer) -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        process = server.fork(theirs.fileno())
        assert os.getpgid(process) == process
        assert server.poll(process) is None
        ours.send_bytes(b"")  # the request to stop
        assert server.wait(process) == 0
    assert server.is_alive


def test_a_fork_killed_by_a_signal_has_its_number_as_a_status(server: ForkServer) -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        process = server.fork(theirs.fileno())
        os.killpg(process, signal.SIGKILL)
        assert server.wait(process) == -signal.SIGKILL


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
