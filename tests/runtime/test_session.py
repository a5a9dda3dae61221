"""Sessions: what a process has one of, a test has its own of; a reset or a fork begins anew."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import jitlto
from jitlto.base import events
from jitlto.base.config import Config
from jitlto.base.errors import LinkError
from jitlto.base.events import Event, Kind
from jitlto.cuda import device
from jitlto.link.kernel_cache import KernelCache
from jitlto.runtime import recording, session
from jitlto.runtime.discovery.registry import Registry
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support.errors import raises

TWICE = {"data_type": "float", "op_name": "twice"}


def settings(directory: Path, **variables: str) -> Config:
    return Config.read({"JITLTO_CACHE_DIR": str(directory / "cache"), **variables})


@dataclass(eq=False)
class Stand:
    """A launcher where there is no device to load it on."""

    linked: Any
    load_seconds: float = 0.0
    tier: str = "lto"


class Family(KernelFamily):
    """A family whose kernels are linked, and not loaded."""

    def _launcher(self, chosen: Any, linked: Any, plan: Any) -> Any:
        return Stand(linked)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "current", lambda: None)


@pytest.mark.slow
def test_a_session_has_its_own_settings_caches_and_counters(mini_path: Path, tmp_path: Path) -> None:
    own, before = Session(settings(tmp_path)), events.counters()
    mini = jitlto.load("mini", mini_path, session=own)
    assert mini.plan(arch="sm_90", **TWICE).link().layer == "link"
    assert mini.plan(arch="sm_90", **TWICE).link().layer == "disk"
    assert (tmp_path / "cache" / "cubins" / "kernels").is_dir()
    counts = own.events.counters()
    assert (counts["planned"], counts["requested"], counts["linked"], counts["found_on_disk"]) == (2, 2, 1, 1)
    assert events.counters() == before
    other = Session(settings(tmp_path / "other"))
    assert jitlto.load("mini", mini_path, session=other).plan(arch="sm_90", **TWICE).link().layer == "link"


def test_a_reset_begins_anew_but_for_subscribers(mini_path: Path, tmp_path: Path) -> None:
    own = Session(settings(tmp_path, JITLTO_DATABASE_PATH=str(mini_path)))
    heard: list[Event] = []
    own.events.subscribe(heard.append)
    registry, cache, mini = own.registry, own.kernel_cache, jitlto.family("mini", session=own)
    own.reset()
    assert own.registry is not registry
    assert own.kernel_cache is not cache
    assert jitlto.family("mini", session=own) is not mini
    mini.plan(arch="sm_90", **TWICE)  # whoever holds the family goes on
    assert [event.kind for event in heard] == [Kind.PLANNED]


@pytest.mark.parametrize("opens", ["kernel_cache", "registry", "families"])
def test_what_is_opened_during_a_reset_is_not_kept(
    opens: str, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Session(settings(tmp_path, JITLTO_DATABASE_PATH=str(mini_path)))
    begun, go_on = threading.Event(), threading.Event()
    kind, step = {"kernel_cache": (KernelCache, "__init__"), "registry": (Registry, "__init__")}.get(
        opens, (Registry, "find")
    )
    original = getattr(kind, step)

    def slow(*args: Any, **named: Any) -> Any:
        begun.set()
        go_on.wait(10)
        return original(*args, **named)

    def use() -> object:
        return jitlto.family("mini", session=own) if opens == "families" else getattr(own, opens)

    monkeypatch.setattr(kind, step, slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(use)
        assert begun.wait(10)
        reset = pool.submit(own.reset)
        time.sleep(0.05)
        go_on.set()
        reset.result(10)
        assert first.result(10) is not use()
        assert use() is use()


@pytest.mark.slow
def test_a_session_whose_settings_say_so_records_all_its_plans_and_no_others(mini_path: Path, tmp_path: Path) -> None:
    used = tmp_path / "used.jsonl"
    own = Session(settings(tmp_path, JITLTO_RECORD=str(used)))
    for each in (own, Session(settings(tmp_path))):
        jitlto.load("mini", mini_path, session=each).plan(arch="sm_90", **TWICE).link()
        jitlto.load("mini", mini_path, session=each).plan(arch="sm_80", **TWICE)
    assert [plan.arch.sm for plan in recording.read(used)] == ["sm_90"]
    assert own.is_recording  # what is not planned cannot be recorded
    own.reset()
    jitlto.load("mini", mini_path, session=own).plan(arch="sm_80", **TWICE).link()
    assert [plan.arch.sm for plan in recording.read(used)] == ["sm_90", "sm_80"]


def test_a_kernel_is_recorded_though_it_may_not_be_linked(mini_path: Path, tmp_path: Path) -> None:
    own = Session(settings(tmp_path, JITLTO_MODE="cached"))
    mini = jitlto.load("mini", mini_path, session=own)
    with own.recording(tmp_path / "used.jsonl"), raises(jitlto.base.errors.NotCachedError):
        mini.plan(arch="sm_90", **TWICE).link()
    assert len(recording.read(tmp_path / "used.jsonl")) == 1
    assert not own.is_recording


@pytest.mark.usefixtures("no_device")
def test_a_link_that_fails_is_remembered_and_another_failure_is_not(
    mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family("mini", jitlto.load("mini", mini_path).database, Session(settings(tmp_path)))
    plan = family.plan(arch="sm_90", **TWICE)
    calls: list[type[Exception]] = []

    def fail(error: type[Exception]) -> None:
        def link(_: object) -> Any:
            calls.append(error)
            raise error("refused")

        monkeypatch.setattr(KernelCache, "linker", property(lambda _: link))

    fail(OSError)
    for _ in range(2):
        with pytest.raises(OSError, match="refused"):
            family.load(plan)
    fail(LinkError)
    for _ in range(2):
        with raises(LinkError):
            family.load(plan)
    assert calls == [OSError, OSError, LinkError]
    monkeypatch.undo()
    monkeypatch.setattr(device, "current", lambda: None)
    with raises(LinkError):
        family.load(plan)


@pytest.mark.slow
@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("kind", [Kind.REQUESTED, Kind.LINKED, Kind.LOADED])
def test_a_subscriber_may_ask_for_the_kernel_that_it_hears_of(mini_path: Path, tmp_path: Path, kind: str) -> None:
    own = Session(settings(tmp_path))
    family = Family("mini", jitlto.load("mini", mini_path).database, own)
    plan = family.plan(arch="sm_90", **TWICE)
    asked: list[object] = []

    def ask(event: Event) -> None:
        if event.kind == kind and not asked:
            asked.append(None)
            asked.append(family.load(plan))

    own.events.subscribe(ask)
    thread = threading.Thread(target=lambda: asked.append(family.load(plan)), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert asked[1] is asked[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("make", [lambda: session.default, Session], ids=["default", "own"])
def test_a_forked_process_holds_no_lock_of_its_parents_threads(make: Callable[[], Session]) -> None:
    own = make()
    held = [own._lock, own.loading, own.events._lock]
    for lock in held:
        lock.acquire()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            own.events.emit(Kind.LINKED, "f/k[]")
            threading.Thread(target=lambda: own.kernel_cache).start()
            with own.flights.of("key") as flight:
                flight.value = own.config.mode
            os._exit(0 if flight.value and own.registry.files() == [] else 1)
        finally:
            os._exit(2)
    for lock in held:
        lock.release()
    assert os.waitpid(child, 0)[1] == 0
