"""The kernel cache: what is found is what was linked; it is linked once; no directory makes anything fail or hang."""

import hashlib
import os
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
from jitlto.runtime.family import KernelFamily
from tests.support.families import built
from tests.support.fleet import TEN, sail

PROCESSES = int(os.environ.get("JITLTO_TEST_PROCESSES", "4"))
LARGE = 1 << 30
TWICE = {"data_type": "float", "op_name": "twice"}
SQUARE = {"data_type": "float", "op_name": "square"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


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
        assert (found.entry, found.architecture, found.log) == (linked.entry, linked.architecture, linked.log)
        assert found.cubin == linked.cubin == truth.cubin
        if "ptxas" in options:
            assert "registers" in found.log
        else:
            assert (found.entry, found.log) == (truth.entry, truth.log)


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
    # Equal digests mean equal cubins, in processes that hash in another order than this one too.
    how = {"hosts": 1, "PYTHONHASHSEED": "1", "JITLTO_STORE": ""}
    asked = sail(ten.location, "ten", tmp_path, processes=PROCESSES, **how)
    assert [result["cubins"] for result in asked.results] == [truth] * PROCESSES
    assert (asked.counters["linked"], "doing it here too" in asked.log) == (10, False)
    # And nothing is linked, in the next process, on what is now a warm directory.
    again = sail(ten.location, "ten", tmp_path, processes=1, **how)
    assert (again.counters["linked"], again.counters["found_on_disk"]) == (0, 10)
    process = Process(directory, seconds=0.1)
    with ThreadPoolExecutor(8) as pool:
        assert len({kernel.cubin for kernel in pool.map(process.ask, [plans[0]] * 8)}) == process.links == 1


# --- directories that are not as they should be ---


# --- settings ---


def test_no_cache_keeps_nothing_and_makes_nothing(environment: Callable[..., None], tmp_path: Path, plan: Plan) -> None:
    environment(JITLTO_CACHE_DIR=str(tmp_path / "user"), JITLTO_CACHE="off")
    assert [plan.link().layer, plan.link().layer] == ["link", "link"]
    assert not (tmp_path / "user").exists()


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["on", "off"])
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


def test_who_may_not_link_waits_for_nobody_who_does(tmp_path: Path, plan: Plan) -> None:
    store = CacheDir(tmp_path / "cache", LARGE)
    cache = KernelCache(store, may_link=False, patience=3)
    with store.locked(plan.digest, 0, "links"), pytest.raises(NotCachedError):
        begin = time.monotonic()
        cache.get_or_link(plan.link_key, plan.link, plan.database.path)
    assert time.monotonic() - begin < 2


# --- the digest ---
