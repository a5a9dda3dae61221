"""Shared stores: what one machine has linked, the others find; a store that fails costs its patience."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import NotCachedError
from jitlto.plan.cache_entry import LinkedKernel, LinkKey
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.stores.shared import SharedStore
from tests.support.errors import raises
from tests.support.families import built
from tests.support.fleet import TEN, Report, sail
from tests.support.store_server import FaultyStore, faulty_store
from tests.support.stores import write_key

pytestmark = pytest.mark.timing

NOWHERE = Path("/nowhere.fragdb")
PROCESSES = int(os.environ.get("JITLTO_TEST_PROCESSES", "8"))


def key(name: str = "kern") -> LinkKey:
    """The key of a kernel that nothing links."""
    content = json.dumps({"entry": name, "arch": "sm_90"}, sort_keys=True).encode()
    return LinkKey(content, f"ten/{name}", (("data_type", "float"),), hashlib.sha256(content).hexdigest())


class Host:
    """A machine: its own cache directory, and the links that were made there."""

    def __init__(self, directory: Path, name: str, **variables: str) -> None:
        store = {"JITLTO_STORE": (directory / "store").as_uri(), "JITLTO_STORE_PATIENCE": "5"}  # others work too
        where = {"JITLTO_CACHE_DIR": str(directory / name)}
        self.session = Session(Config.read(where | store | variables))
        self.links = 0

    @property
    def shared(self) -> SharedStore:
        shared = self.session.kernel_cache.shared
        assert shared is not None
        return shared

    def ask(self, name: str = "kern", link: Callable[[], object] = lambda: None) -> LinkedKernel:
        def made() -> LinkedKernel:
            self.links += 1
            link()
            return LinkedKernel(b"code of " + name.encode(), name, "sm_90", "", 0.0)

        return self.session.kernel_cache.get_or_link(key(name), made, NOWHERE)

    def flush(self) -> None:
        assert self.shared.flush(10)

    def counts(self) -> dict[str, int]:
        return {kind: count for kind, count in self.session.events.counters().items() if count}


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., Host]:
    def make(name: str, **variables: str) -> Host:
        return Host(tmp_path, name, **variables)

    (tmp_path / "store").mkdir()
    return make


def objects(directory: Path, kind: str) -> list[Path]:
    return sorted(path for path in (directory / "store" / "v1" / kind).rglob("*") if path.is_file())


# --- what is found is what another machine has linked ---


def test_a_kernel_that_one_host_has_linked_is_found_by_the_next_and_kept_there(host: Callable[..., Host]) -> None:
    first, second = host("first"), host("second")
    linked = first.ask()
    first.flush()
    found, again = second.ask(), second.ask()
    assert (linked.layer, found.layer, again.layer) == ("link", "store", "disk")
    assert linked.cubin == found.cubin == again.cubin
    assert (first.counts(), second.counts()) == ({"linked": 1}, {"found_in_store": 1, "found_on_disk": 1})


# --- settings ---


def test_where_linking_is_forbidden_kernels_are_found_in_stores(host: Callable[..., Host], tmp_path: Path) -> None:
    first, second = host("first"), host("second", JITLTO_MODE="cached")
    with raises(NotCachedError, where="ten/kern"):
        second.ask()
    first.ask()
    first.flush()
    assert second.ask().layer == "store"


# --- stores that fail ---


def test_a_store_that_cannot_be_used_costs_no_wait_and_no_error(host: Callable[..., Host], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    first = host("first", JITLTO_STORE=(tmp_path / "file" / "store").as_uri())
    begin = time.monotonic()
    assert [first.ask(name).layer for name in ("one", "two")] == ["link", "link"]
    assert time.monotonic() - begin < 1


# --- a real server ---


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FaultyStore]:
    """A bucket behind a round trip of 5 ms, signed."""
    key = write_key(tmp_path / "key")
    with faulty_store() as between:
        between.set(latency=0.005)
        for name, value in between.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("JITLTO_STORE_KEY", str(key))
        monkeypatch.setenv("JITLTO_STORE_SIGNERS", f"{key}.pub")
        yield between


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("ten"), TEN, "ten")


@pytest.mark.slow
def test_a_fleet_links_each_kernel_at_most_once_a_host_and_a_second_fleet_none(
    ten: KernelFamily, faulty: FaultyStore, tmp_path: Path
) -> None:
    plans = [ten.plan(arch="sm_90", **configuration) for configuration in ten.configurations()]
    truth = {plan.digest: hashlib.sha256(plan.link(use_cache=False).cubin).hexdigest() for plan in plans}
    path = ten.database.path

    def fleet(name: str) -> Report:
        # The cores of this machine stand for all hosts, so replies may be late.
        how = {"hosts": 4, "processes": PROCESSES, "JITLTO_STORE_PATIENCE": "30"}
        report = sail(path, "ten", tmp_path / name, **how)  # type: ignore[arg-type]
        assert [result["cubins"] for result in report.results] == [truth] * PROCESSES, report.log
        return report

    first, second = fleet("first"), fleet("second")
    hosts = min(4, PROCESSES)
    linked = first.counters["linked"]
    assert 10 <= linked <= 10 * hosts, first.log
    assert second.counters["linked"] == 0, second.log
    assert (first.counters["found_in_store"], second.counters["found_in_store"]) == (10 * hosts - linked, 10 * hosts)


def own(faulty: FaultyStore) -> dict[str, str]:
    """The settings of a host that uses the bucket."""
    given = {name: os.environ[name] for name in ("JITLTO_STORE_KEY", "JITLTO_STORE_SIGNERS")}
    return {"JITLTO_STORE": faulty.url, "JITLTO_STORE_PATIENCE": "5", **given}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"fault": "refuse"}, {"fault": "silent"}, {"fault": "status", "status": 503}])
def test_a_store_that_dies_in_the_middle_costs_its_patience_once(
    faulty: FaultyStore, host: Callable[..., Host], fault: dict[str, Any]
) -> None:
    first = host("first", **own(faulty) | {"JITLTO_STORE_PATIENCE": "0.2"})
    first.shared.open_soon()
    time.sleep(0.5)
    assert [first.ask(name).layer for name in ("one", "two")] == ["link", "link"]
    first.flush()
    assert faulty.counts()["PUT"] >= 2
    faulty.set(latency=0.005, **fault)
    begin = time.monotonic()
    assert {first.ask(f"later {number}").layer for number in range(20)} == {"link"}
    assert time.monotonic() - begin < 0.2 + 1
    assert first.ask("one").layer == "disk"
