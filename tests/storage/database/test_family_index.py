"""The index of a stored family: what it reads row by row is what reading all fragments gives, in few reads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.errors import PlanError
from jitlto.model.family_record import FamilyRecord, GroupRecord
from jitlto.model.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind
from jitlto.model.options import LinkOptions
from jitlto.model.resolve import Index, resolve
from jitlto.model.versions import Architecture
from jitlto.storage.database import FragmentDatabase, writer
from jitlto.storage.database._index_rows import PAGE


def function(name: str) -> Symbol:
    return Symbol(name, SymbolKind.FUNCTION, "(4)(4)")


def made(key: FragmentKey, provides: Iterable[str], requires: Iterable[str], role: Role = Role.DEVICE) -> Fragment:
    entry = "kernel" if role is Role.ENTRYPOINT else ""
    return Fragment(key, role, entry, (), tuple(map(function, provides)), tuple(map(function, requires)), ())


def family(name: str, uses: tuple[str, ...] = ()) -> FamilyRecord:
    groups = tuple(GroupRecord(group, Role.DEVICE, (), None, False) for group in "gh")
    return FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, (), uses)


values = st.sampled_from(["x", "y", "1", "01"])
configurations = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3)
symbols = st.lists(st.sampled_from(["_Zf", "_Zg", "h h"]), max_size=3, unique=True)
fragments = st.builds(
    made,
    st.builds(FragmentKey.make, st.sampled_from(["f", "used"]), st.sampled_from(["g", "h"]), configurations),
    symbols,
    symbols,
    st.sampled_from(Role),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(fragments, max_size=12, unique_by=lambda f: f.key), st.lists(configurations, min_size=1, max_size=4))
def test_look_ups_find_what_reading_everything_finds(
    tmp_path: Path, fragments: list[Fragment], wanted: list[dict[str, str]]
) -> None:
    writer.write(tmp_path / "f", [family("f", ("used",)), family("used")], fragments, {})
    with FragmentDatabase(tmp_path / "f") as database:
        _, planned = database.planned("f")
        whole, (record, index) = Index(planned), database.index("f")
        assert record == database.planned("f")[0]
        assert index.entry_groups() == whole.entry_groups()
        for group in (None, "g", "h", "none"):
            assert sorted(index.entry_keys(group)) == sorted(whole.entry_keys(group))
        for configuration in wanted:
            for group in (None, "g", "none"):
                found = index.find_entries(group, configuration)
                assert sorted(f.key for f in found) == [f.key for f in whole.find_entries(group, configuration)]
            for symbol in ("_Zf", "h h", "none"):
                assert index.find_providers(symbol, configuration) == whole.find_providers(symbol, configuration)
                assert index.provider_keys(symbol) == whole.provider_keys(symbol)
                assert (symbol in index.required) == (symbol in whole.required)
            assert answer(index, configuration) == answer(whole, configuration)
        assert set(index.required) == set(whole.required)
        assert list(index.entrypoints) == list(whole.entrypoints)
        assert dict(index.providers) == dict(whole.providers)


def answer(index: Index, configuration: dict[str, str]) -> object:
    """The fragments of a configuration, or all that its error says."""
    try:
        return resolve(index, configuration)
    except PlanError as error:
        return (type(error), error.code, error.what, error.hint)


def large(path: Path, size: int) -> None:
    """Write kernels of three parameters, each with a function of its own and one of a group that all share."""
    numbers = [str(n) for n in range(size)]
    content = []
    for a, b in product(numbers, numbers):
        kernel = FragmentKey.make("f", "kernel", {"a": a, "b": b})
        content.append(made(kernel, (), ("_Zop", f"_Zown{a}"), Role.ENTRYPOINT))
        content.append(made(FragmentKey.make("f", "op", {"a": a, "b": b}), ("_Zop",), ()))
    content += [made(FragmentKey.make("f", "own", {"a": a}), (f"_Zown{a}",), ()) for a in numbers]
    writer.write(path, [family("f")], content, {})


@pytest.mark.slow
def test_a_whole_configuration_reads_as_many_rows_in_a_large_family_as_in_a_small_one(tmp_path: Path) -> None:
    reads = []
    for size in (3, 30):
        large(tmp_path / f"{size}", size)
        with FragmentDatabase(tmp_path / f"{size}") as database:
            _, index = database.index("f")
            found, bucket = [], database._rows.bucket

            def counted(number: int, found: list[int] = found, bucket: object = bucket) -> bytes:
                found.append(number)
                return bucket(number)  # type: ignore[operator,no-any-return]

            database._rows.bucket = counted  # type: ignore[method-assign]
            resolution = resolve(index, {"a": "2", "b": "1"})
            assert [str(f.key) for f in resolution.fragments] == [
                "f/kernel[a=2,b=1]",
                "f/op[a=2,b=1]",
                "f/own[a=2]",
            ]
            reads.append(len(found))
    assert reads[0] == reads[1] < 12


def test_lists_of_several_pages_are_read_to_their_end(tmp_path: Path) -> None:
    size = 12
    assert size * size > 2 * PAGE
    large(tmp_path / "f", size)
    with FragmentDatabase(tmp_path / "f") as database:
        assert database.verify() == 0
        whole, (_, index) = Index(database.planned("f")[1]), database.index("f")
        assert sorted(index.entry_keys(None)) == whole.entry_keys(None)
        assert index.provider_keys("_Zop") == whole.provider_keys("_Zop")
        for configuration in ({"a": "11"}, {"b": "3"}, {"a": "3", "b": "12"}, {}):
            assert index.find_providers("_Zop", configuration) == whole.find_providers("_Zop", configuration)
            assert answer(index, configuration) == answer(whole, configuration)
