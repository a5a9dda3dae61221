"""Worker processes: they answer, fail, die and are replaced, and do not import the caller's program."""

import ctypes
import gc
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError, JitltoError
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied
from tests.support.errors import raises
from tests.support.process import ROOT, python, started

_LOCAL = "from jitlto.build.execution.workers import local_executor"


@pytest.mark.slow
def test_results_and_exceptions_come_back_from_workers_in_the_root_directory_that_live_on() -> None:
    with ProcessExecutor(2) as pool:
        futures = [pool.submit(pow, 2, n) for n in range(20)]
        assert [future.result() for future in futures] == [2**n for n in range(20)]
        assert len({pool.submit(os.getpid).result() for _ in range(5)} | {os.getpid()}) <= 3
        assert pool.submit(os.getcwd).result(timeout=60) == "/"
        with raises(JitltoError, "jitlto", "what", where="where", hint="hint"):
            pool.submit(_refuse).result()


def _refuse() -> None:
    raise JitltoError("what", where="where", hint="hint")


def test_a_call_behind_the_one_that_ends_its_worker_is_made_by_another() -> None:
    with ProcessExecutor(1) as pool:
        dying, *others = [pool.submit(_sleep_and_exit), *(pool.submit(pow, 2, n) for n in range(20))]
        assert [future.result(timeout=60) for future in others] == [2**n for n in range(20)]
        with raises(WorkerDied, None, "exit status 7"):
            dying.result(timeout=60)


def _sleep_and_exit() -> None:
    time.sleep(0.1)
    os._exit(7)


@pytest.mark.slow
def test_cancelling_ends_workers_and_their_files_at_once() -> None:
    pool = ProcessExecutor(2)
    left = Path(pool.submit(tempfile.mkdtemp).result(timeout=60))
    slow = pool.submit(time.sleep, 600)
    assert pool.submit(pow, 2, 3).result(timeout=60) == 8  # not behind the slow one
    waiting = [pool.submit(time.sleep, 600) for _ in range(4)]
    begin = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - begin < 30
    assert all(future.cancelled() for future in waiting)
    assert isinstance(slow.exception(timeout=60), WorkerDied)
    assert not left.exists()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(os.getpid)


@pytest.mark.slow
def test_the_processor_time_of_all_that_workers_start_is_told() -> None:
    """Also of what they do not wait for, such as the templates of snapshots."""
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    with ProcessExecutor(1) as pool:
        pool.submit(_leave_busy_process, 0.7).result(timeout=60)
    assert sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before > 0.7


def _leave_busy_process(seconds: float) -> None:
    begin = time.process_time()
    if (process := os.fork()) == 0:
        while time.process_time() - begin < seconds:
            pass
        os._exit(0)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)


@pytest.mark.slow
def test_a_daemon_that_a_worker_starts_keeps_nobody_waiting() -> None:
    """As a compiler's cache does, which then lives on."""
    with ProcessExecutor(1) as pool:
        daemon: int = pool.submit(_start_daemon).result(timeout=60)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    os.kill(daemon, signal.SIGKILL)


def _start_daemon() -> int:
    return subprocess.Popen(["/bin/sleep", "60"], start_new_session=True).pid


@pytest.mark.slow
def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """A program read from standard input has no ``__main__`` file that a worker could import again."""
    script = "from jitlto.build.execution.workers import ProcessExecutor\n"
    script += "print(ProcessExecutor(1).submit(pow, 2, 8).result())"
    done = python("-", stdin=script, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "256"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_error_about_a_killed_worker_names_the_signal(number: signal.Signals) -> None:
    with ProcessExecutor(1) as pool, raises(WorkerDied, "build-worker-died", number.name, hint="memory") as caught:
        pool.submit(_kill_self, number).result(timeout=60)
    assert isinstance(caught.value, BuildError)


def _kill_self(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@pytest.mark.slow
def test_unpicklable_values_are_errors_and_kill_no_worker() -> None:
    with ProcessExecutor(1) as pool:
        pid = pool.submit(os.getpid).result(timeout=60)
        with pytest.raises(TypeError, match="lock"):
            pool.submit(threading.Lock).result(timeout=60)
        with pytest.raises((AttributeError, TypeError)):
            pool.submit(lambda: 1).result(timeout=60)
        assert pool.submit(os.getpid).result(timeout=60) == pid


def test_sockets_are_closed_also_that_to_a_process_that_was_killed() -> None:
    gc.collect()  # what earlier tests left
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with ProcessExecutor(1) as pool:
            worker, parent = (pool.submit(each).result(timeout=60) for each in (os.getpid, os.getppid))
            os.kill(parent, signal.SIGKILL)
            while alive(worker):  # which ends with its parent
                time.sleep(0.01)
            assert pool.submit(pow, 2, 8).result(timeout=60) == 256
        del pool
        gc.collect()
    assert [str(each.message) for each in caught] == []


@pytest.mark.slow
def test_workers_find_no_driver_and_other_libraries_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours")
    with ProcessExecutor(1) as pool:
        with pytest.raises(OSError, match=r"no-driver/libcuda\.so\.1"):
            pool.submit(ctypes.CDLL, "libcuda.so.1").result(timeout=60)
        searched = pool.submit(os.getenv, "LD_LIBRARY_PATH").result(timeout=60)
    assert searched.endswith("no-driver:/ours")


#: A parent that prints the process numbers of its worker and of what that has started, and then waits for the worker.
PARENT = """
import os, subprocess, sys, time
from jitlto.build.execution.workers import ProcessExecutor
from tests.build.execution import test_workers
pool = ProcessExecutor(1)
print(pool.submit(os.getpid).result(), *pool.submit(test_workers.start_child).result(), flush=True)
future = pool.submit(getattr(test_workers, sys.argv[1]))
time.sleep(0.5)
print("done" if future.done() else "busy", flush=True)
future.result()
"""


def start_child() -> list[int]:
    return [subprocess.Popen(["/bin/sleep", "600"]).pid]


def sleep() -> None:
    time.sleep(600)


def compile_for_long() -> None:
    from jitlto.base.versions import Architecture
    from jitlto.compile import nvrtc_program as nvrtc
    from jitlto.record.fragment import ImageKind
    from jitlto.record.headers import Source

    # Takes NVRTC minutes.
    text = (
        b"__device__ unsigned f(unsigned a) {"
        + b"a = a * (a + 3) + (a >> 7); if (a & 64) a ^= 77;" * 60000
        + b"return a; }"
    )
    nvrtc.run_step(Source(text, {}), nvrtc.Step(ImageKind.PTX, Architecture(75), ()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("work", ["sleep", "compile_for_long"])
def test_workers_and_their_files_end_with_a_parent_that_is_killed(work: str, tmp_path: Path) -> None:
    with started("-c", PARENT, work, variables={"TMPDIR": str(tmp_path)}) as parent:
        assert parent.stdout is not None
        processes = [int(word) for word in parent.stdout.readline().split()]
        assert parent.stdout.readline() == "busy\n"
        assert all(map(alive, processes))
        assert list(tmp_path.iterdir())
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 2
        while (any(map(alive, processes)) or list(tmp_path.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(alive, processes))
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_local_workers_and_their_files_end_with_the_program(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(1, b'hello from site'); print('and again')")
    (tmp_path / "tmp").mkdir()
    script = f"import os\n{_LOCAL}\nos.write(2, b'%d\\n' % local_executor().submit(os.getpid).result())"
    places = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = python("-c", script, PYTHONPATH=places, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("hello from site") == 1  # the worker's; the program's own went to its output
    assert not alive(int(done.stderr.split()[-1]))
    assert not list((tmp_path / "tmp").iterdir())
