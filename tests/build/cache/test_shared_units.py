"""Units in shared stores: a fresh machine compiles nothing, and never takes what was made with other headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.cache_dir import CacheDir
from jitlto.base.versions import Architecture, Version
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig, entry_key
from jitlto.compile.compiler import CompiledSource
from jitlto.compile.header_search import HeaderSearch
from jitlto.record.fragment import ImageKind
from tests.support.memory_stores import MemoryStores
from tests.support.toolchains import FakeToolchain

SOURCE = '#include "a.cuh"\n'
MANY = 7  # machines with different headers


class Machine:
    """A machine with a header of its own, whose cache directory is empty in each build."""

    def __init__(self, place: Path, stores: MemoryStores, header: str) -> None:
        self.place, self.stores, self.header = place, stores, header
        self.builds = 0

    def build(self, *, seen: MemoryStores | None = None) -> tuple[str, bool]:
        """Return what the compile would print and whether it was run.

        Args:
            seen: What the machine finds in the stores, if others have written since.
        """
        self.builds += 1
        search = HeaderSearch([self.place])
        config = CompileConfig(FakeToolchain(self.header), search, search, (Architecture(75),), (), (ImageKind.LTOIR,))
        directory = CacheDir(self.place / f"{self.header}-{self.builds}", 1 << 30)
        cache = Cache(directory, seen or self.stores)
        source_key = config.source_key(SOURCE)
        key = entry_key(source_key, config.closure(SOURCE).sha256)
        taken = cache.find_shared({key: (source_key, config)})
        if key in taken:
            assert Cache(directory).find(source_key, config) == taken[key].compiled
            return taken[key].compiled.log, False
        if seen is not None:
            assert cache.shared is not None
            cache.shared.stores = self.stores
        manifest = config.manifest(SOURCE, ["a.cuh", "<host.h>"])
        compiled = make_compiled(self.header)
        cache.share(key, manifest, cache.put(source_key, manifest, compiled), 1.5)
        return self.header, True


def make_compiled(log: str) -> CompiledSource:
    image = (ImageKind.LTOIR, Architecture(75), log.encode())
    return CompiledSource("fake", Version(1, 0), Architecture(75), Version(9, 0), (), (), (), (image,), (), log)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "a.cuh").write_text("one")
    return tmp_path


def test_another_machine_takes_a_unit_and_has_it_in_its_directory(place: Path) -> None:
    stores = MemoryStores()
    assert Machine(place, stores, "glibc").build() == ("glibc", True)
    assert Machine(place, stores, "glibc").build() == ("glibc", False)


def test_a_unit_of_other_headers_is_not_taken(place: Path) -> None:
    stores = MemoryStores()
    Machine(place, stores, "glibc").build()
    (place / "a.cuh").write_text("two")
    assert Machine(place, stores, "glibc").build() == ("glibc", True)
    assert Machine(place, stores, "musl").build() == ("musl", True)


@pytest.mark.slow
@given(st.lists(st.sampled_from([f"h{n}" for n in range(MANY)]), max_size=30))
def test_machines_with_different_headers_keep_their_own_units(
    tmp_path_factory: pytest.TempPathFactory, order: list[str]
) -> None:
    place, stores = tmp_path_factory.mktemp("machines"), MemoryStores()
    (place / "a.cuh").write_text("one")
    machines = {header: Machine(place, stores, header) for header in order}
    for position, header in enumerate(order):
        assert machines[header].build() == (header, header not in order[:position])
    assert all(count == 1 for count in stores.writes.values())


@pytest.mark.slow
@given(st.data())
def test_machines_that_write_at_once_lose_work_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place, stores = tmp_path_factory.mktemp("machines"), MemoryStores()
    (place / "a.cuh").write_text("one")
    headers = [f"h{n}" for n in range(4)]
    machines = {header: Machine(place, stores, header) for header in headers}
    for _ in range(len(headers)):  # in each round, one of those that write at once is first
        seen = stores.copy()
        for header in data.draw(st.permutations(headers)):
            assert machines[header].build(seen=seen)[0] == header
    assert [machines[header].build() for header in headers] == [(header, False) for header in headers]


@pytest.mark.slow
@given(st.data())
def test_a_store_that_lost_objects_is_filled_again_and_never_gives_a_wrong_unit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place, stores = tmp_path_factory.mktemp("machines"), MemoryStores()
    (place / "a.cuh").write_text("one")
    machines = {header: Machine(place, stores, header) for header in ("x", "y", "z")}
    for _ in range(3):
        for machine in machines.values():
            assert machine.build()[0] == machine.header
        for name in data.draw(st.lists(st.sampled_from(sorted(stores.objects)), unique=True)):
            stores.objects.pop(name)
    for machine in machines.values():
        machine.build()
    assert [machine.build() for machine in machines.values()] == [(header, False) for header in machines]


@pytest.mark.parametrize("damaged", [b"", b"\x93", b"\x93\xa1x\x01\xa0", b"{}", b"\x91" * 9999])
def test_an_object_that_is_no_unit_is_a_miss(place: Path, damaged: bytes) -> None:
    stores = MemoryStores()
    Machine(place, stores, "glibc").build()
    for kind, key in stores.objects:
        if kind == "compiled":
            stores.objects[kind, key] = damaged
    assert Machine(place, stores, "glibc").build() == ("glibc", True)


def test_a_manifest_under_another_name_is_not_believed(place: Path) -> None:
    stores = MemoryStores()
    Machine(place, stores, "glibc").build()
    for kind, key in stores.objects:
        if kind == "headers":
            stores.objects[kind, key] = b""  # of which every line holds
    assert Machine(place, stores, "glibc").build() == ("glibc", True)


def test_costs_and_histories_stay_on_the_machine(place: Path) -> None:
    stores = MemoryStores()
    cache = Cache(CacheDir(place / "cache", 1 << 30), stores)
    cache.record_costs({"f/g[]": 2.0})
    cache.record_history({})
    assert not stores.objects
