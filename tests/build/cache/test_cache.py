"""The build cache: entries are found while their headers are unchanged, and damaged entries are misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.cache_dir import CacheDir
from jitlto.base.versions import Architecture, Version
from jitlto.build.cache.cache import Cache, Inputs, decode_compiled, encode_compiled
from jitlto.build.cache.keys import CompileConfig, sha256
from jitlto.compile.compiler import CompiledSource
from jitlto.compile.header_search import HeaderSearch
from jitlto.record.fragment import FragmentKey, ImageKind, Symbol, SymbolKind
from tests.support.toolchains import FakeToolchain

COMPILED = CompiledSource(
    "nvrtc",
    Version(13, 0),
    Architecture(75),
    Version(9, 0),
    (Symbol("k", SymbolKind.KERNEL, "(8)"),),
    (Symbol("f", SymbolKind.FUNCTION, "(4)(4)", True),),
    (("k", ((8, 8), (4, 4))),),
    ((ImageKind.LTOIR, Architecture(90, "a"), bytes(range(256))), (ImageKind.PTX, Architecture(75), b".version 9.0")),
    ("a.cuh", "caf\udce9.cuh"),
    "a warning",
)
KEY = FragmentKey("f", "g")
SOURCE = '#include "a.cuh"\n'


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(CacheDir(tmp_path / "cache", 1 << 30))


def config(root: Path) -> CompileConfig:
    """Create the configuration of one build, which reads every header once."""
    search = HeaderSearch([root])
    return CompileConfig(FakeToolchain(), search, search, (Architecture(75),), ("-DN=1",), (ImageKind.LTOIR,))


def keep(cache: Cache, root: Path) -> None:
    made = config(root)
    cache.put(made.source_key(SOURCE), made.manifest(SOURCE, ["a.cuh"]), COMPILED)


def found(cache: Cache, root: Path, source: str = SOURCE) -> CompiledSource | None:
    made = config(root)
    return cache.find(made.source_key(source), made)


def test_the_cache_returns_a_compiled_source_while_its_headers_are_unchanged(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "a.cuh"
    header.write_text("one")
    keep(cache, tmp_path)
    assert found(cache, tmp_path) == replace(COMPILED, reads=())
    assert found(cache, tmp_path, SOURCE + "//") is None
    header.write_text("two")
    assert found(cache, tmp_path) is None
    header.write_text("one")
    assert found(cache, tmp_path) is not None
    header.unlink()
    assert found(cache, tmp_path) is None


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"toolchain": "nvrtc"}\n', encode_compiled(COMPILED)[:-1], b"\x91" * 9999]
)
def test_a_damaged_entry_is_a_miss(cache: Cache, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.cuh").write_text("one")
    keep(cache, tmp_path)
    (path,) = (path for path in (cache.store.directory / "compiled").rglob("*") if path.is_file())
    kind, first, rest = path.relative_to(cache.store.directory).parts
    cache.store.put(kind, first + rest, data)
    assert found(cache, tmp_path) is None
    keep(cache, tmp_path)
    assert found(cache, tmp_path) is not None


@pytest.mark.slow
@given(st.integers(0, 600), st.binary(max_size=3))
def test_decoding_damaged_bytes_gives_a_compiled_source_or_none(at: int, data: bytes) -> None:
    entry = encode_compiled(COMPILED)
    assert isinstance(decode_compiled(entry[:at] + data + entry[at + len(data) :]), CompiledSource | None)


def test_an_architecture_that_does_not_exist_is_damage() -> None:
    assert decode_compiled(encode_compiled(replace(COMPILED, target=Architecture(75, "x")))) is None


def test_costs_add_up_and_damaged_ones_are_none(cache: Cache) -> None:
    cache.record_costs({"a": 1.5})
    cache.record_costs({"b": 2})
    assert cache.costs() == {"a": 1.5, "b": 2.0}
    cache.store.put("costs", sha256(b"costs"), b'{"a": "long"}')
    assert cache.costs() == {}


def record(cache: Cache, source: str, manifest: bytes = b"", *, key: FragmentKey = KEY, checkout: str = "here") -> None:
    cache.record_history({key: Inputs(checkout, {"source": source}, manifest)})


def test_a_history_comes_back_with_names_that_are_not_utf8(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.cuh").write_text("one")
    manifest = config(tmp_path).manifest(SOURCE, ["caf\udce9.cuh"])
    cache.put("00" * 32, manifest, COMPILED)
    record(cache, "text", manifest, checkout="caf\udce9")
    state = config(tmp_path).search.sha256("caf\udce9.cuh")
    expected = {"source": "text", "headers": {"caf\udce9.cuh": state}}
    assert cache.history(KEY, "caf\udce9") == Cache(cache.store).history(KEY, "caf\udce9") == expected
    assert cache.history(FragmentKey("f", "g2"), "caf\udce9") is None


def test_histories_of_several_builds_are_joined_and_the_latest_counts(cache: Cache) -> None:
    other = FragmentKey.make("f", "g", {"n": "1"})
    cache.put("00" * 32, b"", COMPILED)
    cache.record_history({})
    inputs = {KEY: Inputs("here", {"source": "one"}, b""), other: Inputs("here", {"source": "other"}, b"")}
    cache.record_history(inputs)
    record(cache, "two")
    record(cache, "theirs", checkout="there")
    found = [cache.history(KEY, "here"), cache.history(other, "here"), cache.history(KEY, "there")]
    assert found == [{"source": text, "headers": {}} for text in ("two", "other", "theirs")]


def test_a_history_that_is_as_before_writes_nothing_unless_it_was_pruned(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("00" * 32, b"", COMPILED)
    record(cache, "one")
    monkeypatch.setattr(cache.store, "put", lambda *_: pytest.fail("it is written"))
    record(cache, "one")
    monkeypatch.undo()
    for path in cache.store.entries("history").values():
        if b"source" in path.read_bytes():
            path.unlink()
    assert cache.history(KEY, "here") is None
    record(cache, "one")
    assert cache.history(KEY, "here") is not None


@pytest.mark.parametrize("damaged", [b"", b"[]", b'{"f/g[]": 1}', b'{"f/g[]": {"source": 1}}', b"\xff", b"[" * 9999])
def test_a_damaged_history_is_none(cache: Cache, damaged: bytes) -> None:
    cache.put("00" * 32, b"", COMPILED)
    record(cache, "one")
    assert cache.history(KEY, "here") is not None
    for path in list((cache.store.directory / "history").glob("*/*")):
        whole = cache.store.get("history", path.parent.name + path.name)
        assert whole is not None
        cache.store.put("history", path.parent.name + path.name, damaged)
        assert cache.history(KEY, "here") is None
        cache.store.put("history", path.parent.name + path.name, whole)


def test_every_state_of_the_headers_that_was_compiled_is_found(cache: Cache, tmp_path: Path) -> None:
    states = ["one", "two", "three"]
    for text in (*states, "two"):
        (tmp_path / "a.cuh").write_text(text)
        made = config(tmp_path)
        key, manifest = made.source_key(SOURCE), made.manifest(SOURCE, ["a.cuh"])
        cache.put(key, manifest, replace(COMPILED, log=text))
    for text in states:
        (tmp_path / "a.cuh").write_text(text)
        again = found(cache, tmp_path)
        assert again is not None
        assert again.log == text


def test_headers_are_walked_once_for_sources_with_equal_directives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cuh").write_text("one")
    made = config(tmp_path)
    first = made.closure(SOURCE), made.own_closure(SOURCE)
    monkeypatch.setattr(HeaderSearch, "_reach", None)
    for again in (SOURCE, f"{SOURCE}// another\n"):
        assert [made.closure(again).headers, made.own_closure(again).headers] == [each.headers for each in first]
        assert made.closure(again).headers is first[0].headers
        assert made.closure(again).text == again.encode()


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from([
            '#include "a.cuh"', "#include <b.cuh>", "#define A <b.cuh>", "#include A", "#if __has_include(<b.cuh>)",
            "#ifdef X", "#else", "#endif", "int x;", "/*", "*/", "// c", "#include \\", 'R"(', ')"', "#undef A", "",
        ]),
        max_size=6,
    ),
    st.lists(st.sampled_from(["int y;", "", "// d", "  float z;", "a ? b : c;"]), max_size=4),
)  # fmt: skip
def test_other_lines_change_no_header(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], others: list[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "a.cuh").write_text("#include <b.cuh>\n")
    (root / "b.cuh").write_text("#pragma once\n")
    known = config(root)
    for text in ("\n".join(lines), "\n".join([*others, *lines]), "\n".join([*lines, *others])):
        fresh = config(root)
        assert known.closure(text) == fresh.search.closure(text.encode())
        assert known.own_closure(text) == fresh.own.closure(text.encode())
        assert known.manifest(text, ["a.cuh"]) == fresh.manifest(text, ["a.cuh"])
