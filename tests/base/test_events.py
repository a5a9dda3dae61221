"""Events: counts and events say what happened, and whoever listens harms nothing."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jitlto.base import events
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import LinkError
from jitlto.base.events import KINDS, Event, Kind
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan
from tests.support.kernels import entry, get_or_link


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(CacheDir(tmp_path / "cache", 1 << 30))


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    """The events of a test."""
    told: list[Event] = []
    stop = events.subscribe(told.append)
    yield told
    stop()


def ask(cache: KernelCache, plan: Plan) -> LinkedKernel:
    return get_or_link(cache, plan)


def told(heard: list[Event]) -> list[str]:
    return [event.kind for event in heard]


def test_a_link_and_a_find_are_told_and_counted(cache: KernelCache, plan: Plan, heard: list[Event]) -> None:
    before = events.counters()
    kernels = [ask(cache, plan) for _ in range(3)]
    after = events.counters()
    assert told(heard) == [Kind.LINKED, Kind.FOUND_ON_DISK, Kind.FOUND_ON_DISK]
    assert after["linked"] - before["linked"] == 1
    assert after["found_on_disk"] - before["found_on_disk"] == 2
    assert after["waited"] == before["waited"]
    for event, kernel in zip(heard, kernels, strict=True):
        assert event == Event(event.kind, "mini/kern[data_type=float]", plan.digest, kernel.seconds)
    assert heard[0].seconds > heard[1].seconds > 0


def test_a_find_in_a_pack_is_told_as_such(tmp_path: Path, cache: KernelCache, plan: Plan, heard: list[Event]) -> None:
    packs.write(tmp_path / "family.pack", {KERNELS: {plan.digest: entry(plan)}})
    kernel = get_or_link(cache, plan, tmp_path / "family.fragdb")
    assert kernel.layer == "pack"
    assert told(heard) == [Kind.FOUND_IN_PACK]


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError, LinkError, RecursionError])
def test_a_subscriber_that_raises_harms_nobody(
    cache: KernelCache, plan: Plan, heard: list[Event], caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    def fail(event: Event) -> None:
        raise error("a subscriber's own trouble")

    after: list[Event] = []
    stops = [events.subscribe(fail), events.subscribe(after.append)]
    try:
        assert ask(cache, plan).layer == "link"
        assert ask(cache, plan).layer == "disk"
    finally:
        for stop in stops:
            stop()
    assert heard == after
    assert len(heard) == 2
    assert "a subscriber's own trouble" in caplog.text


@pytest.mark.slow
def test_counters_count_every_kind_from_every_thread() -> None:
    assert tuple(events.counters()) == KINDS
    before = events.counters()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: events.default.emit(KINDS[n % len(KINDS)], "f/k[]"), range(1000 * len(KINDS))))
    after = events.counters()
    assert {after[name] - before[name] for name in after} == {1000}
    assert before != after  # what was given out does not move


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_counts_its_own_events() -> None:
    events.default.emit(Kind.LINKED, "f/k[]")
    child = os.fork()
    if child == 0:
        try:
            begun = sum(events.counters().values())
            events.default.emit(Kind.LINKED, "f/k[]")
            os._exit(0 if (begun, events.counters()["linked"]) == (0, 1) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
