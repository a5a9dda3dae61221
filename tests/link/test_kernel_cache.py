"""The kernel cache: what is found is what was linked; it is linked once; no directory makes anything fail or hang."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jitlto.base import events
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import NotCachedError
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily, load
from tests.support.families import built
from tests.support.fleet import TEN, sail
from tests.support.kernels import get_or_link
from tests.support.process import ROOT, python

PROCESSES = int(os.environ.get("JITLTO_TEST_PROCESSES", "4"))
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


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("ten"), TEN, "ten")


def test_processes_and_threads_that_ask_at_once_link_each_kernel_once(
    ten: KernelFamily, tmp_path: Path, directory: Path
) -> None:
    plans = [ten.plan(arch="sm_90", **configuration) for configuration in ten.configurations()]
    truth = {plan.digest: hashlib.sha256(plan.link(use_cache=False).cubin).hexdigest() for plan in plans}
    # Equal digests mean equal cubins, in processes that hash in another order too.
    for seed, name in (("1", "first"), ("2", "second")):
        asked = sail(
            ten.location, "ten", tmp_path / name, hosts=1, processes=PROCESSES, PYTHONHASHSEED=seed, JITLTO_STORE=""
        )
        assert [result["cubins"] for result in asked.results] == [truth] * PROCESSES
        assert (asked.counters["linked"], "doing it here too" in asked.log) == (10, False)
    # And nothing is linked, in the next process, on what is now a warm directory.
    again = sail(ten.location, "ten", tmp_path / name, hosts=1, processes=1, JITLTO_STORE="")
    assert (again.counters["linked"], again.counters["found_on_disk"]) == (0, 10)
    process = Process(directory, seconds=0.1)
    with ThreadPoolExecutor(8) as pool:
        assert len({kernel.cubin for kernel in pool.map(process.ask, [plans[0]] * 8)}) == process.links == 1


HOLD = """
import os, sys, time
from pathlib import Path
from jitlto.base.cache_dir import CacheDir
with CacheDir(Path(sys.argv[1]), 1 << 30).locked(sys.argv[2], 0, "links") as waited:
    assert waited == 0
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
    with store.locked(another.digest, 0, "links") as waited:
        assert waited == 0
    store.put(KERNELS, another.digest, b"x")
    store.prune_if_due()
    assert store.prune(-1) == 0
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


# --- the digest ---
