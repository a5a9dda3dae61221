"""The lookup cache: the next process finds its kernel without opening a database, and never another kernel."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from jitlto.base import events
from jitlto.base.errors import DatabaseError, PlanError
from jitlto.link import requests
from jitlto.link.requests import request_key
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import Chosen
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.fuzz_targets import rows, with_rows
from tests.support.process import output_of

TWICE = {"data_type": "float", "op_name": "twice"}

pytestmark = pytest.mark.usefixtures("empty_cache", "capability")


class Found(NamedTuple):
    """What stands for a launcher where there is no device to load it on."""

    chosen: Chosen
    linked: Any
    plan: Any
    load_seconds: float = 0.0
    tier: str = "lto"

    def wait(self) -> Any:
        return self

    def later(self, job: Callable[[], object]) -> None:
        job()


class Family(KernelFamily):
    """A family whose kernels are found and linked, and not loaded."""

    def _launcher(self, chosen: Chosen, linked: Any, plan: Any) -> Any:
        return Found(chosen, linked, plan)


@pytest.fixture
def path(mini_path: Path, tmp_path: Path) -> Path:
    """A database of ``mini``."""
    copied = tmp_path / "mini.fragdb"
    shutil.copy(mini_path, copied)
    return copied


def process(path: Path) -> Family:
    """The family, as a process that begins sees it."""
    session.default.reset()
    return Family("mini", session.default.registry.file(path))


@pytest.fixture(autouse=True)
def _no_registry_is_left() -> Iterator[None]:
    yield
    session.default.reset()


def launcher(path: Path, **configuration: Any) -> Any:
    return process(path).launcher(**(configuration or TWICE))


def test_the_next_process_opens_no_database_and_finds_the_same_kernel(path: Path, opened: list[Path]) -> None:
    first = launcher(path)
    assert (first.linked.layer, len(opened)) == ("link", 1)
    counts = events.counters()
    family = process(path)
    second = family.launcher(**TWICE)
    assert second.chosen == first.chosen
    assert second.linked.cubin == first.linked.cubin
    assert (second.linked.layer, len(opened)) == ("disk", 1)
    after = events.counters()
    assert {name: after[name] - counts[name] for name in after if after[name] != counts[name]} == {
        "found_on_disk": 1,
        "loaded": 1,
    }
    # Whoever asks for the plan gets the one that was linked.
    plan = second.plan()
    assert (plan.digest, plan.chosen, plan.target.sm) == (first.chosen.digest, first.chosen, "sm_90")
    assert len(opened) == 2
    assert family.launcher(**TWICE) is second
    assert family.launcher(op_name="twice", data_type="float") is second


def test_each_way_to_spell_a_value_finds_the_kernel(path: Path, opened: list[Path]) -> None:
    import numpy as np

    expected = launcher(path).chosen
    for spelled in (np.float32, np.dtype("f4"), "float32"):
        assert launcher(path, data_type=spelled, op_name="twice").chosen == expected
    assert len(opened) == 1


def test_a_file_that_names_the_digest_of_another_leaves_nothing_under_it(path: Path, tmp_path: Path) -> None:
    forged = Path(shutil.copy(path, tmp_path / "forged.fragdb"))
    content = rows(forged)
    one, two = (row[2] for row in content if row[0] == "fragment" and "op[data_type=float" in row[1])
    one["images"], two["images"] = two["images"], one["images"]
    with_rows(forged, content)
    with contextlib.closing(sqlite3.connect(path)) as whole, contextlib.closing(sqlite3.connect(forged)) as connection:
        connection.executemany("UPDATE meta SET value = ?2 WHERE name = ?1", whole.execute("SELECT * FROM meta"))
        connection.commit()
    other = launcher(forged)
    with raises(DatabaseError, "database-damaged"):
        process(forged).database.verify()
    assert launcher(path).chosen == process(path).plan(arch="sm_90", **TWICE).chosen != other.chosen


@pytest.mark.slow
def test_a_replaced_database_is_read_anew(path: Path, build_family: BuildFamily, opened: list[Path]) -> None:
    old = launcher(path)
    stale = process(path)
    other = build_family(MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "3.0f * ({{expr}})")}, "other")
    os.replace(other.path, path)  # noqa: PTH105 - as a build does
    new = launcher(path)
    assert (new.linked.layer, new.chosen.digest != old.chosen.digest) == ("link", True)
    # And who had loaded the family before is told, or goes on with what it has found.
    assert stale.launcher(**TWICE).chosen == old.chosen
    with raises(DatabaseError, "database-replaced", where=str(path), hint="load the family again"):
        stale.plan(arch="sm_90", **TWICE)


def test_an_equal_database_is_known_wherever_it_lies(path: Path, tmp_path: Path, opened: list[Path]) -> None:
    first = launcher(path)
    moved = tmp_path / "elsewhere" / "other.fragdb"
    moved.parent.mkdir()
    shutil.copy(path, moved)
    again = launcher(moved)
    assert (again.chosen, again.linked.layer, len(opened)) == (first.chosen, "disk", 1)


@pytest.mark.slow
def test_damage_gives_the_same_kernel_or_an_error(path: Path, opened: list[Path]) -> None:
    first = launcher(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 509):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert launcher(path).chosen == first.chosen
        except DatabaseError as error:
            assert str(path) in str(error)
    path.write_bytes(whole[:512] + bytes(len(whole) - 512))  # no digest that could be read
    with raises(DatabaseError, "database-damaged", where=str(path)):
        launcher(path)


def test_a_database_that_is_gone_is_said(path: Path) -> None:
    family = process(path)
    launcher(path)
    family = process(path)
    path.unlink()
    with raises(DatabaseError, "database-not-found", where=str(path)):
        family.plan(arch="sm_90", **TWICE)
    with raises(DatabaseError, "database-not-found", where=str(path)):
        process(path)


def test_another_nvjitlink_makes_a_process_plan(
    path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for expected in (1, 1):
        launcher(path)
        assert len(opened) == expected
    monkeypatch.setattr(session, "installed_release", lambda _: "12.0")
    for expected in (2, 3):  # what was linked with another one than the next process finds is no answer
        launcher(path)
        assert len(opened) == expected
    monkeypatch.setattr(session, "installed_release", lambda _: None)
    for expected in (4, 5):  # it cannot be told which one that is
        launcher(path)
        assert len(opened) == expected


def test_a_cubin_that_is_gone_is_linked_again(path: Path, empty_cache: Path, opened: list[Path]) -> None:
    first = launcher(path)
    shutil.rmtree(empty_cache / "cubins" / KERNELS)
    again = launcher(path)
    assert (again.linked.layer, again.linked.cubin, len(opened)) == ("link", first.linked.cubin, 2)
    assert launcher(path).linked.layer == "disk"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["databases", "requests"])
def test_a_damaged_entry_is_a_miss(path: Path, empty_cache: Path, kind: str, opened: list[Path]) -> None:
    first = launcher(path)
    (entry,) = (p for p in (empty_cache / "cubins" / kind).rglob("*") if p.is_file())
    whole = entry.read_bytes()
    damages = [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(0, len(whole), 7)]
    for number, damaged in enumerate([*damages, whole[:-1], b"", b"{}"], 2):
        entry.write_bytes(damaged)
        again = launcher(path)
        assert (again.chosen, again.linked.cubin) == (first.chosen, first.linked.cubin)
        assert len(opened) == number
        assert entry.read_bytes() == whole


def settings(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session.default.reset()


def test_all_that_an_answer_depends_on_is_in_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {
        "database": "0" * 64, "family": "mini", "entry": None, "link_mode": "lto", "link_options": {},
        "configuration": TWICE, "capability": (9, 0), "linker": "13.0",
    }  # fmt: skip

    def key(**other: Any) -> str | None:
        return request_key(**asked | other)

    seen = {"as it is": key()}
    others: list[tuple[str, object]] = [
        ("database", "0" * 63 + "1"), ("family", "maxi"), ("entry", "kern"), ("link_mode", "ptx"),
        ("link_options", {"max_registers": 1}), ("link_options", {"max_registers": True}),
        ("link_options", {"max_registers": "1"}), ("link_options", {"ftz": True}),
        ("configuration", TWICE | {"op_name": "square"}), ("configuration", {"data_type": "float"}),
        ("configuration", TWICE | {"x": "float"}), ("capability", (9, 1)), ("capability", (10, 0)), ("linker", "13.1"),
    ]  # fmt: skip
    seen |= {f"{name}={value}": key(**{name: value}) for name, value in others}
    with monkeypatch.context() as patch:
        patch.setattr(requests, "__version__", "99")
        seen["version"] = key()
    assert len(set(seen.values())) == len(seen)
    assert key(configuration=dict(reversed(TWICE.items()))) == seen["as it is"]


@pytest.mark.parametrize(
    "options",
    [{("a",): 1}, {b"x": 1}, {"ptxas": object()}, {"max_registers": {1}}],
    ids=["tuple", "bytes", "object", "set"],
)
def test_what_cannot_be_asked_is_planned_and_refused(path: Path, options: dict[Any, Any]) -> None:
    for _ in range(2):
        with pytest.raises(PlanError):
            process(path).launcher(link_options=options, **TWICE)


def test_a_device_that_changes_meanwhile_makes_no_answer(path: Path, capability: SimpleNamespace) -> None:
    def switch(event: events.Event) -> None:
        if event.kind == events.Kind.PLANNED:
            capability.compute_capability = (10, 0)

    stop = events.subscribe(switch)
    try:
        assert process(path).launcher(**TWICE).linked.target == "sm_100"
    finally:
        stop()
    capability.compute_capability = (9, 0)
    assert launcher(path).linked.target == "sm_90"


def test_threads_that_find_one_kernel_get_one_launcher_loaded_once(path: Path) -> None:
    launcher(path)
    family = process(path)
    counts = events.counters()
    barrier = threading.Barrier(8)

    def ask(number: int) -> Any:
        barrier.wait()
        entry = "kern" if number % 2 else None
        return family.launcher(entry=entry, **TWICE) if number % 4 else family.load(family.plan(arch="sm_90", **TWICE))

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(ask, range(8)))
    assert len({id(each) for each in got}) == 1
    assert events.counters()["linked"] == counts["linked"]


def test_a_launcher_keeps_no_family_alive(path: Path) -> None:
    launcher(path)
    family = process(path)
    found, gone = family.launcher(**TWICE), weakref.ref(family)
    session.default.reset()
    del family
    assert gone() is None  # without the cyclic collector
    assert found.plan().digest == found.chosen.digest  # type: ignore[operator]


COLD = """
import json, sys
from types import SimpleNamespace
from jitlto import load
from jitlto.cuda import device
device.current = lambda: SimpleNamespace(compute_capability=(9, 0))
device.place = lambda: 0
from jitlto.runtime.family import KernelFamily
KernelFamily._launcher = lambda self, chosen, linked, plan: SimpleNamespace(
    chosen=chosen, linked=linked, load_seconds=0.0, tier="lto", later=lambda job: job()
)
before = {*sys.modules}
found = load("mini", sys.argv[1]).launcher(data_type="float", op_name="twice")
chosen, linked = found.chosen, found.linked
print(json.dumps([chosen.digest, linked.layer, sorted(sys.modules), sorted({*sys.modules} - before)]))
"""


@pytest.mark.slow
def test_finding_a_kernel_loads_no_planner_no_linker_and_no_sqlite(mini_path: Path, tmp_path: Path) -> None:
    def run() -> Any:
        return json.loads(output_of(COLD, mini_path, JITLTO_CACHE_DIR=str(tmp_path / "cache")))

    cold, warm = run(), run()
    assert warm[0] == cold[0]
    assert (cold[1], warm[1]) == ("link", "disk")
    slow = {
        "sqlite3", "fcntl", "dataclasses", "msgspec", "cuda.bindings.nvjitlink",
        "jitlto.database", "jitlto.record.fragment",
        "jitlto.plan.planner", "jitlto.plan.plan", "jitlto.cuda.nvjitlink",
    }  # fmt: skip
    assert slow <= {*cold[2]}
    started = {*json.loads(subprocess.run([sys.executable, "-c", MODULES], capture_output=True, check=True).stdout)}
    assert slow & {*warm[2]} - started == set()
    # The import of ``load`` has loaded the modules that find a kernel; a family loads the compiled core, if it is used.
    found = [name for name in warm[3] if name.startswith("jitlto")]
    assert found in ([], ["jitlto.launch._launch"])


# What an interpreter loads before it does anything, and what the standard library's own modules there bring along.
MODULES = "import hashlib, json, pathlib, sys; print(json.dumps(sorted(sys.modules)))"
