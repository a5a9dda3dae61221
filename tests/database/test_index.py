"""The index of a stored family: what it reads row by row is what reading all fragments gives, in few reads."""

import time
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.base.errors import PlanError
from jitlto.base.versions import Architecture
from jitlto.database import FragmentDatabase, writer
from jitlto.database._reader import SqliteReader
from jitlto.database.index import Index
from jitlto.plan.resolve import resolve
from jitlto.plan.supplied import UserSymbols
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind, sorted_values
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from tests.support.index import WholeIndex


def function(name: str) -> Symbol:
    return Symbol(name, SymbolKind.FUNCTION, "(4)(4)")


def made(key: FragmentKey, provides: Iterable[str], requires: Iterable[str], role: Role = Role.DEVICE) -> Fragment:
    entry = "kernel" if role is Role.ENTRYPOINT else ""
    return Fragment(key, role, entry, (), tuple(map(function, provides)), tuple(map(function, requires)), ())


def family(name: str, uses: tuple[str, ...] = ()) -> FamilyRecord:
    groups = tuple(GroupRecord(group, Role.DEVICE, (), None, False) for group in "gh")
    return FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, (), uses)


values = st.sampled_from(["x", "y", "1", "01", "", "a,b=[%]", "\0", "é"])
# Most with one of two values, so that many fragments agree with a configuration.
configurations = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy") | values, max_size=3)
symbols = st.lists(st.sampled_from(["_Zf", "_Zg", "h h"]), max_size=3, unique=True)
# One of the used families is before it, and one after it, in the order of names.
fragments = st.builds(
    made,
    st.builds(FragmentKey.make, st.sampled_from(["f", "f", "a_used", "used"]), st.sampled_from("gh"), configurations),
    symbols,
    symbols,
    st.sampled_from(Role),
)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of ``resolve``; fragments to add are numbers."""
    groups = st.sampled_from([None, "g", "h", "none"])
    functions = symbols.map(lambda names: tuple(map(function, names)))
    made = st.builds(UserSymbols, st.just("user.cu"), functions, functions)
    return {
        "configuration": draw(configurations),
        "entry_group": draw(groups),
        "pinned": draw(st.lists(st.integers(0, 11), max_size=2)),
        "supplied": draw(st.lists(made, max_size=1)),
    }


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(fragments, max_size=14, unique_by=lambda f: f.key),
    st.lists(requests(), min_size=1, max_size=8),
)
def test_look_ups_find_what_reading_everything_finds(
    tmp_path: Path, fragments: list[Fragment], wanted: list[dict[str, Any]]
) -> None:
    families = [family("f", ("a_used", "used")), family("a_used"), family("used")]
    writer.write(tmp_path / "f", families, fragments, {})
    with FragmentDatabase(tmp_path / "f") as database:
        assert database.verify() == 0
        planned = database.index("f").fragments
        whole = WholeIndex(planned)
        values = sorted_values((name, (value,)) for each in planned for name, value in each.key.parameters)
        assert KernelFamily("f", database).parameters == values
        for request in wanted:
            index = database.index("f")  # one that has read nothing yet
            compare(index, whole, request["configuration"])
            request["pinned"] = [planned[number] for number in request["pinned"] if number < len(planned)]
            assert answer(index, **request) == answer(whole, **request)
        assert index.required == whole.required
        assert list(index.entrypoints) == list(whole.entrypoints)
        assert dict(index.providers) == dict(whole.providers)


def compare(index: Index, whole: Index, configuration: dict[str, str]) -> None:
    for group in (None, "g", "none"):
        assert index.entry_keys(group) == whole.entry_keys(group)
        assert index.find_entries(group, configuration) == whole.find_entries(group, configuration)
    for symbol in ("_Zf", "h h", "none"):
        assert index.find_providers(symbol, configuration) == whole.find_providers(symbol, configuration)
        assert index.provider_keys(symbol) == whole.provider_keys(symbol)
        assert index.provider_parameters(symbol) == whole.provider_parameters(symbol)
        assert index.requires(symbol) == whole.requires(symbol)


def answer(index: Index, configuration: dict[str, str], **request: Any) -> object:
    """The fragments of a configuration, or all that its error says."""
    try:
        return resolve(index, configuration, **request)
    except PlanError as error:
        return (type(error), error.code, error.what, error.where, error.hint)


def test_what_is_looked_up_by_key_and_what_is_listed_comes_in_one_order(tmp_path: Path) -> None:
    keys = [FragmentKey.make("f", "g", parameters) for parameters in ({"b": "y"}, {"a": "x", "b": "y"})]
    writer.write(tmp_path / "f", [family("f")], [made(key, (), (), Role.ENTRYPOINT) for key in keys], {})
    with FragmentDatabase(tmp_path / "f") as database:
        assert answer(database.index("f"), {"b": "y"}) == answer(WholeIndex(database.fragments()), {"b": "y"})


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


@pytest.fixture
def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The look-ups in files, each with its table and key, and the tables that are read whole."""
    reads: list[tuple[str, ...]] = []
    find, scan = SqliteReader.find, SqliteReader.scan

    def found(self: SqliteReader, table: str, key: str, value: str, *columns: str) -> tuple[object, ...] | None:
        reads.append((table, value))
        return find(self, table, key, value, *columns)

    def scanned(self: SqliteReader, table: str, *columns: str) -> Iterator[list[bytes]]:
        reads.append((table,))
        return scan(self, table, *columns)

    monkeypatch.setattr(SqliteReader, "find", found)
    monkeypatch.setattr(SqliteReader, "scan", scanned)
    return reads


@pytest.mark.slow
def test_a_whole_configuration_reads_as_many_rows_in_a_large_family_as_in_a_small_one(
    tmp_path: Path, reads_of: list[tuple[str, ...]]
) -> None:
    reads = []
    for size in (3, 30):
        large(tmp_path / f"{size}", size)
        with FragmentDatabase(tmp_path / f"{size}") as database:
            index = database.index("f")
            reads_of.clear()
            resolution = resolve(index, {"a": "2", "b": "1"})
            assert [str(f.key) for f in resolution.fragments] == [
                "f/kernel[a=2,b=1]",
                "f/op[a=2,b=1]",
                "f/own[a=2]",
            ]
            reads.append(len(reads_of))
    assert reads[0] == reads[1] < 12


def crowded(path: Path, count: int) -> None:
    """Write a kernel and a function of it, which define many inline functions each."""
    helpers = tuple(Symbol(f"_Z6helper{n}f", SymbolKind.FUNCTION, "(4)(4)", True) for n in range(count))
    content = [
        made(FragmentKey.make("f", "kernel", {"a": "x"}), (), ("_Zop",), Role.ENTRYPOINT),
        made(FragmentKey.make("f", "op", {"a": "x"}), ("_Zop",), ()),
    ]
    writer.write(path, [family("f")], [replace(f, provides=(*f.provides, *helpers)) for f in content], {})


@pytest.mark.timing
def test_a_plan_of_thousands_of_inline_functions_takes_a_moment(tmp_path: Path) -> None:
    crowded(tmp_path / "f", 6000)
    with FragmentDatabase(tmp_path / "f") as database:
        begin = time.process_time()
        resolve(database.index("f"), {"a": "x"})
        assert time.process_time() - begin < 2  # 0.2 where nothing else runs
