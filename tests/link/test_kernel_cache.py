"""The kernel cache: what is found is what was linked; it is linked once; no directory makes anything fail or hang."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base import events
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import LinkError, NotCachedError
from jitlto.base.versions import Version
from jitlto.cuda import nvjitlink
from jitlto.link import linker
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily, load
from tests.conftest import BuildFamily
from tests.support.families import MINI
from tests.support.kernels import entry, get_or_link
from tests.support.process import ROOT, python

PROCESSES = int(os.environ.get("JITLTO_TEST_PROCESSES", "8"))
KILLS = int(os.environ.get("JITLTO_TEST_KILLS", "6"))
LARGE = 1 << 30
TWICE = {"data_type": "float", "op_name": "twice"}
SQUARE = {"data_type": "float", "op_name": "square"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def plan(mini: KernelFamily) -> Plan:
    return mini.plan(arch="sm_90", **TWICE)


@pytest.fixture
def another(mini: KernelFamily) -> Plan:
    return mini.plan(arch="sm_90", **SQUARE)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set environment variables and read them again, as a new process does."""

    def given(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        session.default.reset()

    yield given
    monkeypatch.undo()
    session.default.reset()


class Process:
    """What one process is to a cache: its own store, its own threads' flights, and the links it made.

    Locks of one process exclude each other as those of several do: a claim is on the open file.
    """

    def __init__(self, directory: Path, size: int = LARGE, *, patience: float = 60, seconds: float = 0) -> None:
        self.store = CacheDir(directory, size)
        self.cache = KernelCache(self.store, patience=patience)
        self.links = 0
        self.seconds = seconds  # that a link takes longer

    def ask(self, plan: Plan) -> LinkedKernel:
        def link() -> LinkedKernel:
            self.links += 1
            time.sleep(self.seconds)
            return plan.link(use_cache=False)

        return self.cache.get_or_link(plan.link_key, link, plan.database.path)


def entries(directory: Path) -> list[Path]:
    return sorted(p for p in (directory / KERNELS).rglob("*") if p.is_file())


def state(directory: Path) -> dict[str, tuple[int, int, int, int, bytes]]:
    """Everything about every file and folder, but for the time of access."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content)
    return found


def change(before: dict[str, int]) -> dict[str, int]:
    return {name: n - before[name] for name, n in events.counters().items() if n != before[name]}


# --- what is found is what was linked ---


@pytest.mark.slow
@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
@pytest.mark.parametrize("options", [{}, {"ptxas": ["-v"]}, {"max_registers": 32, "fast_math": True}])
def test_what_is_found_is_what_was_linked(
    mini: KernelFamily, directory: Path, link_mode: str, options: dict[str, object]
) -> None:
    if link_mode == "ptx" and "fast_math" in options:
        pytest.skip("an option of the compile, where PTX is linked")
    for arch in ("sm_80", "sm_90a"):
        plan = mini.plan(arch=arch, link_mode=link_mode, link_options=options, **TWICE)
        truth = plan.link(use_cache=False)
        first, second = Process(directory), Process(directory)
        linked, found = first.ask(plan), second.ask(plan)
        assert (first.links, second.links) == (1, 0)
        assert (linked.layer, found.layer) == ("link", "disk")
        assert found == linked
        assert (found.entry, found.architecture, found.log) == (linked.entry, linked.architecture, linked.log)
        assert found.cubin == linked.cubin == truth.cubin
        if "ptxas" in options:
            assert "registers" in found.log
        else:
            assert found == truth


def test_the_default_cache_is_below_the_users_cache_directory(
    environment: Callable[..., None], tmp_path: Path, plan: Plan
) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path / "user"))
    assert plan.link().layer == "link"
    assert len(entries(tmp_path / "user" / "cubins")) == 1
    assert (tmp_path / "user" / "cubins").stat().st_mode & 0o777 == 0o700
    assert plan.link().layer == "disk"


# --- many threads, many processes ---


def fleet(argument: str) -> None:
    """Fork processes that ask for plans in threads, all at the same moment; print what came of it as JSON.

    Run as a program of its own: it forks before it has any thread. ``kill_after`` seconds after the start, the first
    process is killed.
    """
    given = json.loads(argument)
    family = load(given["family"], given["database"])
    plans = [family.plan(arch="sm_90", **configuration) for configuration in given["configurations"]]
    digests = [plan.digest for plan in plans]
    folder = Path(given["folder"])
    starts = os.open(folder / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    gate, opened = os.pipe()
    children = []
    for number in range(given["processes"]):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            os.close(opened)
            os.read(gate, 1)  # ends when the parent closes the gate

            def ask(plan: Plan) -> str:
                def link() -> LinkedKernel:
                    os.write(starts, b".")
                    return plan.link(use_cache=False)

                kernel = session.default.kernel_cache.get_or_link(plan.link_key, link, plan.database.path)
                return hashlib.sha256(kernel.cubin).hexdigest()

            with ThreadPoolExecutor(given["threads"]) as pool:
                asked = [[pool.submit(ask, plan) for plan in plans] for _ in range(given["threads"])]
                seen = [[future.result() for future in each] for each in asked]
            result = {"counters": dict(events.counters()), "cubins": seen}
            (folder / f"result{number}").write_text(json.dumps(result))
            os._exit(0)
        finally:
            os._exit(1)
    begin = time.monotonic()
    os.close(opened)
    if given["kill_after"] is not None:
        time.sleep(given["kill_after"])
        os.kill(children[0], signal.SIGKILL)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    ended = [number for number, status in enumerate(statuses) if status == 0]
    results = [json.loads((folder / f"result{number}").read_text()) for number in ended]
    summary = {
        "digests": digests,
        "statuses": statuses,
        "links": (folder / "starts").stat().st_size,
        "seconds": time.monotonic() - begin,
        "results": results,
    }
    print(json.dumps(summary))


def sail(
    family: KernelFamily,
    folder: Path,
    configurations: list[dict[str, str]],
    processes: int,
    threads: int,
    kill_after: float | None = None,
    **variables: str,
) -> dict:  # type: ignore[type-arg]
    """Run :func:`fleet` with an empty cache directory."""
    folder.mkdir(exist_ok=True)
    given = {
        "family": family.name,
        "database": str(family.database.path),
        "configurations": configurations,
        "folder": str(folder),
        "processes": processes,
        "threads": threads,
        "kill_after": kill_after,
    }
    code = "import sys; from tests.link.test_kernel_cache import fleet; fleet(sys.argv[1])"
    done = python("-c", code, json.dumps(given), **{"JITLTO_CACHE_DIR": str(folder / "user")} | variables)
    assert done.returncode == 0, done.stderr
    summary: dict = json.loads(done.stdout)  # type: ignore[type-arg]
    summary["log"] = done.stderr
    return summary


def right_cubins(family: KernelFamily, configurations: list[dict[str, str]]) -> list[str]:
    plans = [family.plan(arch="sm_90", **configuration) for configuration in configurations]
    return [hashlib.sha256(plan.link(use_cache=False).cubin).hexdigest() for plan in plans]


def test_processes_and_threads_that_ask_at_once_link_each_kernel_once(search: KernelFamily, tmp_path: Path) -> None:
    configurations = list(search.configurations())[:80:8]
    threads = 8
    asked = sail(search, tmp_path / "fleet", configurations, PROCESSES, threads)
    assert asked["statuses"] == [0] * PROCESSES
    total: Counter[str] = Counter()
    truth = right_cubins(search, configurations)
    for result in asked["results"]:
        total.update(result["counters"])
        assert result["cubins"] == [truth] * threads
    assert (total["linked"], asked["links"]) == (10, 10)
    assert "doing it here too" not in asked["log"]
    # And nothing is linked, in the next process, on what is now a warm directory.
    (tmp_path / "fleet" / "starts").unlink()
    again = sail(search, tmp_path / "fleet", configurations, 1, 1)
    assert again["links"] == 0
    assert again["results"][0]["counters"]["linked"] == 0
    assert again["results"][0]["counters"]["found_on_disk"] == 10
    assert again["results"][0]["cubins"] == [truth]


@pytest.mark.slow
def test_a_process_killed_while_it_links_costs_one_link_more_and_hangs_nobody(
    mini: KernelFamily, tmp_path: Path
) -> None:
    configurations = [TWICE, SQUARE, {"data_type": "double", "op_name": "twice"}]
    truth = right_cubins(mini, configurations)
    chance = random.Random(3)  # noqa: S311 - the same kills every time
    for number in range(KILLS):
        asked = sail(mini, tmp_path / f"{number}", configurations, 3, 1, kill_after=chance.uniform(0, 0.2))
        assert asked["statuses"][1:] == [0, 0]
        assert asked["links"] <= len(configurations) + 1
        assert asked["seconds"] < 20
        for result in asked["results"]:
            assert result["cubins"] == [truth]


HOLD = """
import os, sys, time
from pathlib import Path
from jitlto.base.cache_dir import CacheDir
claim = CacheDir(Path(sys.argv[1]), 1 << 30).claim(sys.argv[2])
assert claim.is_locked
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def hold(directory: Path) -> Iterator[Callable[[Plan], subprocess.Popen[str]]]:
    """A process that claims a plan's digest and sleeps."""
    holders = []

    def start(plan: Plan) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(directory), plan.digest]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        holder = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()


@pytest.mark.timing
@pytest.mark.slow
def test_who_waits_too_long_says_so_and_links(
    directory: Path, plan: Plan, hold: Callable[[Plan], subprocess.Popen[str]], caplog: pytest.LogCaptureFixture
) -> None:
    process = Process(directory, patience=1.5)
    hold(plan)
    before, begin = events.counters(), time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(process.ask, [plan] * 4))
    assert 1.5 < time.monotonic() - begin < 4
    assert process.links == 1
    assert all(kernel == plan.link(use_cache=False) for kernel in kernels)
    assert caplog.text.count("waiting for another process that links mini/kern") == 1
    assert caplog.text.count("doing it here too") == 1
    assert change(dict(before)) == {"linked": 1, "waited": 4}
    # It is there now, and nobody waits for the holder any longer.
    begin = time.monotonic()
    assert Process(directory).ask(plan).layer == "disk"
    assert time.monotonic() - begin < 1


@pytest.mark.timing
@pytest.mark.slow
def test_the_death_of_a_holder_ends_the_wait(
    directory: Path, plan: Plan, hold: Callable[[Plan], subprocess.Popen[str]]
) -> None:
    process = Process(directory)
    holder = hold(plan)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(process.ask, plan)
        time.sleep(0.1)
        holder.kill()
        holder.wait()
        begin = time.monotonic()
        assert asking.result(10).layer == "link"
    assert time.monotonic() - begin < 2
    # The dead process's lock file is still there, and means nothing.
    assert list((directory / "locks").iterdir())
    assert Process(directory).ask(plan).layer == "disk"


@pytest.mark.slow
def test_a_wait_for_one_kernel_holds_up_no_other(
    directory: Path, plan: Plan, another: Plan, hold: Callable[[Plan], subprocess.Popen[str]]
) -> None:
    process = Process(directory, patience=1.5)
    hold(plan)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(process.ask, plan)
        time.sleep(0.05)
        assert pool.submit(process.ask, another).result(2) == another.link(use_cache=False)
        assert not waiting.done()
        assert waiting.result(10) == plan.link(use_cache=False)


@pytest.mark.slow
def test_threads_get_the_first_ones_refusal_each_in_a_copy_of_its_own(directory: Path, plan: Plan) -> None:
    cache, cause = KernelCache(CacheDir(directory, LARGE)), ValueError("cause")
    inside, calls = threading.Event(), []

    def refuse() -> LinkedKernel:
        calls.append(1)
        inside.wait(10)
        time.sleep(0.1)
        raise LinkError("refused", where="here", hint="do that", log="a log") from cause

    def ask(_: int) -> LinkError:
        with pytest.raises(LinkError) as caught:
            cache.get_or_link(plan.link_key, refuse, plan.database.path)
        return caught.value

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, n) for n in range(8)]
        time.sleep(0.1)
        inside.set()
        failures = [each.result(10) for each in asked]
    assert len(calls) == 1
    assert len({id(failure) for failure in failures}) == 8
    assert {str(failure) for failure in failures} == {"here: refused [link]\n  hint: do that"}
    assert {failure.log for failure in failures} == {"a log"}
    assert all(failure.__cause__ is cause for failure in failures)
    # A refusal is not kept: what is asked for next is tried again, and nothing is locked.
    assert get_or_link(cache, plan) == plan.link(use_cache=False)


@pytest.mark.slow
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError, SystemExit])
def test_one_threads_interruption_is_not_anothers(
    directory: Path, plan: Plan, interruption: type[BaseException]
) -> None:
    cache = KernelCache(CacheDir(directory, LARGE))
    inside, go = threading.Event(), threading.Event()

    def interrupted() -> LinkedKernel:
        inside.set()
        go.wait(10)
        raise interruption

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(cache.get_or_link, plan.link_key, interrupted, plan.database.path)
        assert inside.wait(10)
        others = [pool.submit(get_or_link, cache, plan) for _ in range(2)]
        time.sleep(0.05)
        go.set()
        assert all(other.result(10) == plan.link(use_cache=False) for other in others)
        assert isinstance(first.exception(10), interruption)


@pytest.mark.slow
def test_a_claim_ends_after_its_entry_is_there(directory: Path, plan: Plan) -> None:
    process, other = Process(directory), CacheDir(directory, LARGE)
    missing = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            claim = other.claim(plan.digest)
            if claim is not None:
                # Nobody links it now: either nobody has begun, or it is there. It is looked for first: links are
                # forgotten before it is cleared away.
                if other.get(KERNELS, plan.digest) is None and process.links:
                    missing.append(1)
                claim.release()
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(10):
        process.ask(plan)
        time.sleep(0.005)
        process.links = 0
        other.clear()
    ended.set()
    watcher.join(10)
    assert not missing


def fork_while_linking(database: str) -> None:
    """Fork while a thread links; the child asks for the same kernel and for another. Run as a program of its own."""
    family = load("mini", database)
    plan, another = family.plan(arch="sm_90", **TWICE), family.plan(arch="sm_90", **SQUARE)
    truth = [plan.link(use_cache=False), another.link(use_cache=False)]
    inside = threading.Event()

    def slow() -> LinkedKernel:
        inside.set()
        time.sleep(1)
        return plan.link(use_cache=False)

    thread = threading.Thread(
        target=lambda: session.default.kernel_cache.get_or_link(plan.link_key, slow, plan.database.path)
    )
    thread.start()
    inside.wait(10)
    # A thread that is always telling events, and one that is always at the cache: a fork meets them with locks held.
    ended = threading.Event()

    def busy() -> None:
        while not ended.is_set():
            events.default.emit(events.Kind.PLANNED, "x")
            assert session.default.kernel_cache

    teller = threading.Thread(target=busy)
    teller.start()
    for number in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                # The first child waits for its parent's link; the later ones are about the locks alone.
                kernels = [another.link(), plan.link()] if number == 0 else [another.link()]
                expected = [truth[1], truth[0]] if number == 0 else [truth[1]]
                os._exit(0 if kernels == expected else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    ended.set()
    teller.join()
    thread.join()
    print(json.dumps(dict(events.counters())))


@pytest.mark.slow
def test_a_fork_while_another_thread_links_waits_for_the_parent_and_for_no_ghost(
    mini_path: Path, tmp_path: Path
) -> None:
    code = "import sys; from tests.link import test_kernel_cache as t; t.fork_while_linking(sys.argv[1])"
    command = ("-W", "ignore::DeprecationWarning", "-c", code, mini_path)
    done = python(*command, seconds=60, JITLTO_CACHE_DIR=str(tmp_path / "user"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["linked"] == 1


# --- directories that are not as they should be ---


def two_ask(directory: Path, *plans: Plan) -> tuple[int, int]:
    """Two threads of each of two processes ask for plans at once, and get what a link gives; each one's links."""
    first, second = Process(directory, patience=2, seconds=0.1), Process(directory, patience=2, seconds=0.1)
    together = threading.Barrier(4)

    def ask(process: Process, plan: Plan) -> LinkedKernel:
        together.wait(30)
        return process.ask(plan)

    begin = time.monotonic()
    for plan in plans:
        truth = plan.link(use_cache=False)
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, process, plan) for process in (first, second) for _ in range(2)]
            assert all(each.result(30) == truth for each in asked)
    assert time.monotonic() - begin < 2 * len(plans)
    return first.links, second.links


def ran(*command: str) -> None:
    subprocess.run(command, capture_output=True, timeout=30, check=True)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a small file system; skips where that is not permitted."""
    mounted = []

    def mount(options: str) -> Path:
        place = tmp_path / "mounted"
        place.mkdir(exist_ok=True)
        try:
            ran("mount", "-t", "tmpfs", "-o", options, "none", str(place))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted: {error}")
        mounted.append(place)
        return place

    yield mount
    for place in reversed(mounted):
        ran("umount", "-l", str(place))


@pytest.mark.timing
def test_a_lock_file_of_nobody_is_in_nobodys_way(directory: Path, plan: Plan) -> None:
    process = Process(directory)
    (directory / "locks").mkdir()
    (directory / "locks" / f"{plan.digest[:3]}.lock").write_text("12345\nelsewhere\n")
    begin = time.monotonic()
    assert process.ask(plan).layer == "link"
    assert time.monotonic() - begin < 2
    assert Process(directory).ask(plan).layer == "disk"


@pytest.mark.timing
@pytest.mark.slow
def test_a_full_disk_costs_links_and_one_warning(
    tmpfs: Callable[[str], Path], plan: Plan, another: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmpfs("size=16k,mode=0700")
    (place / "ballast").write_bytes(bytes(8192))
    with pytest.raises(OSError, match="No space"), (place / "more").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    (place / "cubins").mkdir(mode=0o700)
    first, second = two_ask(place / "cubins", plan, another)
    assert first <= 2
    assert second <= 2
    assert caplog.text.count("no more entries can be stored") == 2  # once for each of the two
    assert not any(p.is_file() and p.stat().st_size for p in (place / "cubins").rglob("*"))
    # Room again: it is used, without a restart.
    process = Process(place / "cubins")
    (place / "ballast").unlink()
    (place / "more").unlink()
    assert process.ask(plan).layer == "link"
    assert Process(place / "cubins").ask(plan).layer == "disk"


@pytest.mark.timing
@pytest.mark.slow
def test_a_disk_without_inodes_costs_links_and_one_warning(
    tmpfs: Callable[[str], Path], plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmpfs("size=1m,nr_inodes=3,mode=0700")
    (place / "cubins").mkdir(mode=0o700)
    first, second = two_ask(place / "cubins", plan)
    assert first <= 1
    assert second <= 1
    assert caplog.text.count("no more entries can be stored") <= 2


def limited(database: str) -> None:
    """Ask where no file may grow beyond some bytes. Run as a program of its own."""
    plan = load("mini", database).plan(arch="sm_90", **TWICE)
    truth = plan.link(use_cache=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    with ThreadPoolExecutor(4) as pool:
        asked = list(pool.map(lambda _: plan.link(), range(4)))
    assert all(kernel == truth for kernel in asked)
    print(events.counters()["linked"])


@pytest.mark.slow
def test_files_that_may_not_grow_cost_a_link_and_one_warning(mini_path: Path, tmp_path: Path) -> None:
    code = "import sys; from tests.link.test_kernel_cache import limited; limited(sys.argv[1])"
    done = python("-c", code, mini_path, seconds=60, JITLTO_CACHE_DIR=str(tmp_path / "user"))
    assert done.returncode == 0, done.stderr
    assert 1 <= int(done.stdout) <= 4  # one at a time; who comes when the first has landed links too
    assert done.stderr.count("no more entries can be stored") == 1
    assert not [p for p in (tmp_path / "user" / "cubins" / KERNELS).rglob("*") if p.is_file()]


@pytest.mark.slow
def test_a_read_only_file_system_is_one_warning_and_no_cache(
    tmpfs: Callable[[str], Path],
    environment: Callable[..., None],
    plan: Plan,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = tmpfs("size=1m,mode=0700")
    environment(JITLTO_CACHE_DIR=str(place))
    assert plan.link().layer == "link"
    ran("mount", "-o", "remount,ro", str(place))
    environment()
    before = state(place)
    assert [plan.link().layer for _ in range(2)] == ["link", "link"]
    assert caplog.text.count("cannot be written") == 1
    assert state(place) == before
    environment(JITLTO_CACHE="readonly")  # which finds what is there
    assert plan.link().layer == "disk"
    assert state(place) == before


@pytest.mark.slow
def test_a_store_that_becomes_read_only_while_in_use_costs_links_and_one_warning(
    tmpfs: Callable[[str], Path], plan: Plan, another: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmpfs("size=1m,mode=0700")
    process = Process(place)
    process.ask(plan)
    ran("mount", "-o", "remount,ro", str(place))
    assert process.ask(plan).layer == "disk"
    assert [process.ask(another).layer for _ in range(2)] == ["link", "link"]
    assert caplog.text.count("no more entries can be stored") == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["writable by others", "somebody else's", "a file", "a dangling link", "a loop"])
def test_a_directory_that_is_not_this_users_own_is_one_warning_and_no_cache(
    environment: Callable[..., None],
    tmp_path: Path,
    plan: Plan,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    place = tmp_path / "user" / "cubins"
    place.parent.mkdir()
    if fault == "writable by others":
        place.mkdir()
        place.chmod(0o777)
    elif fault == "somebody else's":
        if os.getuid():
            pytest.skip("only root can give a directory away")
        place.mkdir(mode=0o700)
        os.chown(place, 12345, 12345)
    elif fault == "a file":
        place.write_text("x")
    else:
        place.symlink_to(tmp_path / "nowhere" if fault == "a dangling link" else place)
    environment(JITLTO_CACHE_DIR=str(place.parent))
    before, truth = events.counters(), plan.link(use_cache=False)
    start, link = threading.Barrier(8), linker.link_plan

    def ask(_: int) -> LinkedKernel:
        start.wait(10)
        return plan.link()

    def link_slowly(store: CacheDir | None, plan: Plan) -> LinkedKernel:
        time.sleep(0.3)  # until the last thread has asked
        return link(store, plan)

    monkeypatch.setattr(linker, "link_plan", link_slowly)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [truth] * 8
    # All eight asked before there was a cache, and there was but one: what they asked for together was linked together.
    assert change(dict(before)) == {"requested": 8, "linked": 1, "waited": 7}
    assert caplog.text.count("is ignored") == 1
    if place.is_dir():
        assert not list(place.iterdir())


@pytest.mark.slow
def test_a_cache_is_opened_once_whatever_number_of_threads_ask_first(
    environment: Callable[..., None], tmp_path: Path
) -> None:
    for _ in range(20):
        environment(JITLTO_CACHE_DIR=str(tmp_path))
        start = threading.Barrier(8)

        def first(start: threading.Barrier = start) -> KernelCache:
            start.wait(10)
            return session.default.kernel_cache

        with ThreadPoolExecutor(8) as pool:
            assert len({id(each.result(10)) for each in [pool.submit(first) for _ in range(8)]}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", ["the cache", "the entries", "the locks", "its parent"])
def test_a_directory_removed_while_in_use_is_made_again(
    tmp_path: Path, plan: Plan, another: Plan, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    directory = tmp_path / "parent" / "cache"
    process, other = Process(directory), Process(directory)
    process.ask(plan)
    gone = {
        "the cache": directory, "the entries": directory / "kernels", "the locks": directory / "locks",
        "its parent": directory.parent,
    }[at]  # fmt: skip
    shutil.rmtree(gone)
    for each in (process, other):
        assert each.ask(plan) == plan.link(use_cache=False)
        assert each.ask(another) == another.link(use_cache=False)
    assert process.links + other.links <= 4
    assert directory.stat().st_mode & 0o777 == 0o700
    assert Process(directory).ask(another).layer == "disk"
    assert caplog.text == ""


@pytest.mark.slow
def test_a_directory_removed_again_and_again_costs_links_alone(directory: Path, plan: Plan, another: Plan) -> None:
    process, ended = Process(directory), threading.Event()

    def remove() -> None:
        while not ended.is_set():
            shutil.rmtree(directory, ignore_errors=True)
            time.sleep(0.001)

    truth = [plan.link(use_cache=False), another.link(use_cache=False)]
    remover = threading.Thread(target=remove)
    remover.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [(n % 2, pool.submit(process.ask, (plan, another)[n % 2])) for n in range(40)]
            assert all(each.result(120) == truth[which] for which, each in asked)
    finally:
        ended.set()
        remover.join(10)


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize("target", ["nowhere", "a file", "a directory", "itself"])
@pytest.mark.parametrize("place", ["entry", "its folder", "entries", "lock", "locks"])
def test_links_and_other_things_in_the_place_of_files_harm_nothing(
    tmp_path: Path, directory: Path, plan: Plan, caplog: pytest.LogCaptureFixture, place: str, target: str
) -> None:
    store = CacheDir(directory, LARGE)
    entry = Path(store._path(KERNELS, plan.digest))
    path = {
        "entry": entry, "its folder": entry.parent, "entries": directory / KERNELS,
        "lock": directory / "locks" / f"{plan.digest[:3]}.lock", "locks": directory / "locks",
    }[place]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not ours")
    elsewhere = {"nowhere": outside / "none", "a file": outside / "file", "a directory": outside, "itself": path}
    path.symlink_to(elsewhere[target])
    first, second = two_ask(directory, plan)
    assert first <= 1
    assert second <= 1
    assert caplog.text.count("WARNING") <= 2  # one for each of the two
    assert (outside / "file").read_text() == "not ours"
    if place == "entry":
        assert not path.is_symlink()
        assert Process(directory).ask(plan).layer == "disk"


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "fifo", "unreadable"])
def test_no_lock_file_but_something_else_costs_a_link_at_most(directory: Path, plan: Plan, kind: str) -> None:
    locks = CacheDir(directory, LARGE).directory / "locks"
    locks.mkdir()
    path = locks / f"{plan.digest[:3]}.lock"
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.touch(mode=0)
    first, second = two_ask(directory, plan)
    assert first <= 1
    assert second <= 1


# --- settings ---


@pytest.mark.slow
def test_a_read_only_cache_finds_and_changes_nothing(directory: Path, plan: Plan, another: Plan) -> None:
    Process(directory).ask(plan)
    (entry,) = entries(directory)
    os.utime(entry, (0, 0))  # long unused: a store that may would touch it
    before = state(directory)
    store = CacheDir(directory, 0, readonly=True)
    cache = KernelCache(store)
    assert get_or_link(cache, plan).layer == "disk"
    assert get_or_link(cache, another).layer == "link"
    claim = store.claim(another.digest)
    assert claim is not None
    claim.release()
    store.put(KERNELS, another.digest, b"x")
    store.prune_if_due()
    assert store.clear() == 0
    assert state(directory) == before


def test_a_read_only_cache_that_is_not_there_is_not_made(
    environment: Callable[..., None], tmp_path: Path, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path / "user"), JITLTO_CACHE="readonly")
    assert [plan.link().layer, plan.link().layer] == ["link", "link"]
    assert not (tmp_path / "user").exists()
    assert caplog.text == ""


def test_no_cache_keeps_nothing_and_makes_nothing(environment: Callable[..., None], tmp_path: Path, plan: Plan) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path / "user"), JITLTO_CACHE="off")
    assert [plan.link().layer, plan.link().layer] == ["link", "link"]
    assert not (tmp_path / "user").exists()


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["on", "readonly", "off"])
def test_where_linking_is_forbidden_the_error_names_all_that_is_needed_to_link_it(
    environment: Callable[..., None], tmp_path: Path, plan: Plan, cache: str
) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path / "user"), JITLTO_MODE="cached", JITLTO_CACHE=cache)
    before = events.counters()
    with pytest.raises(NotCachedError) as caught:
        plan.link()
    for named in ("mini/kern[data_type=float]", "data_type=float, op_name=twice", plan.digest, "jitlto warm"):
        assert named in str(caught.value)
    assert change(dict(before)) == {"requested": 1}
    if cache != "off":
        environment(JITLTO_MODE="link", JITLTO_CACHE="on")
        plan.link()
        environment(JITLTO_MODE="cached", JITLTO_CACHE=cache)
        assert plan.link().layer == "disk"


# --- the bound ---


@pytest.mark.slow
def test_the_bound_holds_and_what_was_used_longest_ago_goes_first(directory: Path, mini: KernelFamily) -> None:
    plans = [mini.plan(arch=f"sm_{n}", **TWICE) for n in (75, 80, 86, 87, 89, 90, 100, 120)]
    bound = 4 * max(len(entry(plan)) for plan in plans)
    process = Process(directory, bound)
    for number, plan in enumerate(plans):
        process.ask(plan)
        assert process.store.usage().size <= bound
        path = Path(process.store._path(KERNELS, plan.digest))
        os.utime(path, (number * 10_000, number * 10_000))
        if number == 2:
            assert process.ask(plans[0]).layer == "disk"  # which makes it the last used
    left = [n for n, plan in enumerate(plans) if process.cache.find(plan.digest, plan.database.path)]
    assert left[0] == 0
    assert left[1:] == list(range(len(plans)))[-len(left) + 1 :]
    assert len(left) >= 3


@pytest.mark.slow
def test_a_cache_too_small_for_what_is_asked_gives_the_right_kernels(directory: Path, mini: KernelFamily) -> None:
    plans = [mini.plan(arch=f"sm_{n}", **TWICE) for n in (75, 80, 86, 87, 89, 90)]
    truth = {plan.digest: plan.link(use_cache=False) for plan in plans}
    bound = 2 * max(len(plan.link_key.encode(truth[plan.digest])) for plan in plans)
    caches = [KernelCache(CacheDir(directory, bound)) for _ in range(3)]
    chance = random.Random(4)  # noqa: S311 - the same order every time

    def ask(cache: KernelCache, plan: Plan) -> bool:
        kernel = truth[plan.digest]
        return cache.get_or_link(plan.link_key, lambda: kernel, plan.database.path) == kernel

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, chance.choice(caches), chance.choice(plans)) for _ in range(600)]
        assert all(each.result(30) for each in asked)
    assert CacheDir(directory, bound).usage().size <= bound * 19 // 16 + bound


@pytest.mark.slow
def test_the_size_is_set_by_the_environment(
    environment: Callable[..., None], tmp_path: Path, mini: KernelFamily
) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path), JITLTO_CACHE_SIZE="10K")
    for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90"):
        mini.plan(arch=arch, **TWICE).link()
    store = session.default.kernel_cache.store
    assert store is not None
    assert 0 < store.usage().size <= 10 << 10


def test_an_entry_larger_than_the_bound_is_not_kept_and_harms_nothing(directory: Path, plan: Plan) -> None:
    process = Process(directory, 1000)
    assert [process.ask(plan).layer for _ in range(2)] == ["link", "link"]
    assert entries(directory) == []


@pytest.mark.slow
def test_the_directory_is_not_walked_at_every_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CacheDir(tmp_path / "store", 1 << 20)
    walks = []
    monkeypatch.setattr(CacheDir, "_files", lambda store, whole=CacheDir._files: walks.append(1) or whole(store))
    for number in range(1000):
        store.put(KERNELS, hashlib.sha256(bytes(number)).hexdigest(), bytes(4096))
        store.prune_if_due()
        if number % 10 == 0:
            size = sum(f.stat().st_size for f in entries(store.directory))
            assert size <= (1 << 20) * 17 // 16 + 8192
    assert len(walks) <= 1000 * 4096 // (1 << 16) + 2


def test_the_bound_is_kept_when_nobody_waits_for_it(
    directory: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, other = Process(directory), Process(directory)
    walking, walked = threading.Event(), threading.Event()

    def slow() -> None:
        walking.set()
        walked.wait(10)

    monkeypatch.setattr(process.store, "prune_if_due", slow)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(process.ask, plan)
        assert walking.wait(10)
        claim = other.store.claim(plan.digest)
        assert claim is not None
        claim.release()
        assert process.ask(plan).layer == "disk"
        walked.set()
        assert asking.result(10).layer == "link"


@pytest.mark.slow
def test_lock_files_do_not_accumulate(directory: Path) -> None:
    store = CacheDir(directory, LARGE)
    for number in range(6000):
        claim = store.claim(hashlib.sha256(str(number).encode()).hexdigest())
        assert claim is not None
        claim.release()
    assert len(list((directory / "locks").iterdir())) <= 4096
    assert store.usage().size == 0


def test_pruning_leaves_what_another_process_is_writing(directory: Path) -> None:
    store, key = CacheDir(directory, 100), hashlib.sha256(b"x").hexdigest()
    store.put(KERNELS, key, bytes(500))
    half = Path(store._path(KERNELS, key)).with_name(".half")
    half.write_bytes(bytes(500))
    assert store.prune() == 1
    assert store.clear() == 0
    assert half.exists()


# --- the digest ---


KEYS = """
import json, os, sys, time
from jitlto.runtime.family import load
os.umask(int(sys.argv[4]))
time.sleep(0.01)
family = load("mini", sys.argv[1])
configurations = json.loads(sys.argv[2])
source = "template <> __device__ float mini::op<float>(float a) { return a - 1.0f; }"
own = family.planner(data_type="float").add_source(source, "own.cu").plan(arch="sm_90")
plans = [family.plan(arch="sm_90", link_options=json.loads(sys.argv[3]), **c) for c in configurations]
print(json.dumps([plan.digest for plan in [own, *plans]]))
"""


@pytest.mark.slow
def test_nothing_of_the_machine_or_the_process_is_in_the_digest(mini_path: Path, tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere" / "other.fragdb"
    copied.parent.mkdir()
    copied.write_bytes(mini_path.read_bytes())
    options = {"max_registers": 32, "ftz": True, "ptxas": ["-v"]}
    seen = set()
    for number, (database, backwards) in enumerate([(mini_path, False), (copied, True)]):
        home = tmp_path / f"home{number}"
        home.mkdir()
        order = (lambda items: list(reversed(list(items)))) if backwards else list
        given = json.dumps([dict(order(c.items())) for c in (TWICE, SQUARE)])
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "HOME": str(home), "PYTHONHASHSEED": str(number + 1), "USER": f"user{number}",
            "TZ": ("UTC", "Asia/Tokyo")[number], "LANG": ("C", "C.UTF-8")[number], "TMPDIR": str(home),
            "HOSTNAME": f"host{number}", "JITLTO_CACHE_DIR": str(home / "cache"),
        }  # fmt: skip
        arguments = [str(database), given, json.dumps(dict(order(options.items()))), ("18", "63")[number]]
        done = subprocess.run(
            [sys.executable, "-c", KEYS, *arguments],
            cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        seen.add(done.stdout)
    (digests,) = seen
    assert len(set(json.loads(digests))) == 3


@pytest.mark.slow
def test_every_input_of_a_link_changes_the_digest(
    build_family: BuildFamily, mini: KernelFamily, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(**changes: object) -> str:
        return mini.plan(**({"arch": "sm_90"} | TWICE | changes)).digest  # type: ignore[arg-type]

    def supplied(text: str) -> str:
        source = f"template <> __device__ float mini::op<float>(float a) {{ return {text}; }}"
        return mini.planner(data_type="float").add_source(source).plan(arch="sm_90").digest

    options = {
        "fast_math": True, "ftz": True, "prec_div": False, "fma": False, "max_registers": 40, "optimization": 0,
        "split_compile": 1, "ptxas": ["-v"],
    }  # fmt: skip
    seen = {"as it is": plan.digest}
    seen |= {f"{name}={value}": of(link_options={name: value}) for name, value in options.items()}
    seen["other ptxas"] = of(link_options={"ptxas": ["--warn-on-spills"]})
    seen["max_registers=41"] = of(link_options={"max_registers": 41})
    seen |= {arch: of(arch=arch) for arch in ("sm_80", "sm_90a", "sm_100", "sm_100a", "sm_100f")}
    seen |= {"mode": of(link_mode="ptx"), "value": of(op_name="square"), "kernel": of(data_type="double")}
    seen |= {"own": supplied("a"), "other": supplied("a + 0.0f")}
    entry = replace(plan.entry, entry="another")
    seen["entry"] = replace(plan, resolution=replace(plan.resolution, entry=entry)).digest
    for constant in ("3.0f", "3.5f"):
        text = MINI["op.cu.jinja"].replace("return {{expr}};", f"return ({{{{expr}}}}) * {constant};")
        with load("mini", build_family(MINI | {"op.cu.jinja": text}, "changed").path).database as database:
            seen[constant] = KernelFamily("mini", database).plan(arch="sm_90", **TWICE).digest
    version = nvjitlink.version()
    for newer in (Version(version.major, 90), Version(version.major, 91)):
        monkeypatch.setattr(nvjitlink, "version", partial(Version, newer.major, newer.minor))
        seen[f"nvJitLink {newer}"] = of()
    doubled = {what for what, digest in seen.items() if Counter(seen.values())[digest] > 1}
    assert doubled == set()


def test_equal_digests_mean_equal_cubins(search: KernelFamily, tmp_path: Path) -> None:
    configurations = list(search.configurations())[1::19]
    runs = [sail(search, tmp_path / f"{n}", configurations, 1, 1, PYTHONHASHSEED=str(n)) for n in (1, 2)]
    assert [run["links"] for run in runs] == [len(configurations)] * 2
    assert runs[0]["digests"] == runs[1]["digests"]
    assert len(set(runs[0]["digests"])) == len(configurations)
    assert runs[0]["results"][0]["cubins"] == runs[1]["results"][0]["cubins"]


def test_found_kernels_are_logged_for_who_looks_and_for_nobody_else(
    directory: Path, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "jitlto"):
        Process(directory).ask(plan)
        Process(directory).ask(plan)
    assert caplog.text == ""
    with caplog.at_level(logging.INFO, "jitlto"):
        Process(directory).store.clear()
        Process(directory).ask(plan)
    assert "linked mini/kern[data_type=float] for sm_90 in" in caplog.text
