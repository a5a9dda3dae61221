"""The build cache: entries are found while their headers are unchanged, and damaged entries are misses."""

from dataclasses import replace
from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.base.versions import Architecture, Version
from jitlto.build.cache.cache import Cache, Layer, Unit, decode, encode_unit
from jitlto.build.cache.keys import CompileConfig
from jitlto.compile.compiler import CompiledSource
from jitlto.compile.headers import HeaderSearch
from jitlto.record.fragment import ImageKind, Symbol, SymbolKind
from tests.support.memory_stores import MemoryStores
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
UNIT = Unit(COMPILED, {"<host.h>": "1"})
SOURCE = '#include "a.cuh"\n'


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(CacheDir(tmp_path / "cache", 1 << 30))


def config(root: Path, host: str = "host") -> CompileConfig:
    """Create the configuration of one build, which reads every header once."""
    (root / "system").mkdir(exist_ok=True)
    (root / "system" / "host.h").write_text(host)
    search = HeaderSearch([root], system=[root / "system"], as_written=True)
    base = Architecture(75)
    return CompileConfig(FakeToolchain(), search, search, (base,), ("-DN=1",), ((ImageKind.LTOIR, base),))


def keep(cache: Cache, root: Path, log: str = "a warning", host: str = "host") -> None:
    made = config(root, host)
    source = made.search.closure(SOURCE.encode())
    headers = made.found_headers(source, ["a.cuh", "<0>/host.h"])
    assert list(headers) == ["<0>/host.h"]
    cache.put("compiled", made.key(source), encode_unit(Unit(replace(COMPILED, log=log), headers)))


def found(cache: Cache, root: Path, source: str = SOURCE, host: str = "host") -> tuple[str, Layer] | None:
    """Return the log of a compiled source and where it was."""
    made = config(root, host)
    key = made.key(made.search.closure(source.encode()))
    unit = cache.find_units({key: made}).get(key)
    return None if unit is None else (unit[0].compiled.log, unit[1])


def test_the_cache_returns_a_compiled_source_while_its_headers_are_unchanged(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "a.cuh"
    header.write_text("one")
    keep(cache, tmp_path)
    assert found(cache, tmp_path) == ("a warning", Layer.DIRECTORY)
    assert found(cache, tmp_path, SOURCE + "//") is None
    header.write_text("two")
    assert found(cache, tmp_path) is None
    header.write_text("one")
    assert found(cache, tmp_path) is not None
    header.unlink()
    assert found(cache, tmp_path) is None


def test_a_source_is_compiled_again_if_the_options_of_its_cubins_change(tmp_path: Path) -> None:
    made = config(tmp_path)
    source = made.search.closure(b"")
    others = {replace(made, cubin_options=each).key(source) for each in ((), ("-a",), ("-b",))}
    assert len(others) == 3
    assert made.key(source) in others


@pytest.mark.parametrize("data", [b"", b"{}", b'{"toolchain": "nvrtc"}\n', encode_unit(UNIT)[:-1], b"\x91" * 9999])
def test_a_damaged_entry_is_a_miss(cache: Cache, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.cuh").write_text("one")
    keep(cache, tmp_path)
    (path,) = (path for path in (cache.store.directory / "compiled").rglob("*") if path.is_file())
    kind, first, rest = path.relative_to(cache.store.directory).parts
    cache.store.put(kind, first + rest, data)
    assert found(cache, tmp_path) is None
    keep(cache, tmp_path)
    assert found(cache, tmp_path) is not None


def test_an_architecture_that_does_not_exist_is_damage() -> None:
    wrong = replace(COMPILED, target=Architecture(75, "x"))
    assert decode(encode_unit(Unit(wrong, {})), Unit) is None
    assert decode(encode_unit(UNIT), Unit) == Unit(replace(COMPILED, reads=()), UNIT.headers)


def test_what_the_compiler_found_by_itself_must_be_unchanged_too(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text("one")
    keep(cache, tmp_path, host="glibc")
    assert found(cache, tmp_path, host="glibc") is not None
    assert found(cache, tmp_path, host="musl") is None
    keep(cache, tmp_path, "by musl", host="musl")
    assert found(cache, tmp_path, host="musl") == ("by musl", Layer.DIRECTORY)


def test_another_machine_takes_a_unit_from_the_store_and_has_it_in_its_directory(tmp_path: Path) -> None:
    stores = MemoryStores()
    (tmp_path / "a.cuh").write_text("one")
    keep(Cache(CacheDir(tmp_path / "mine", 1 << 30), stores), tmp_path)
    theirs = CacheDir(tmp_path / "theirs", 1 << 30)
    assert found(Cache(theirs, stores), tmp_path) == ("a warning", Layer.STORE)
    assert found(Cache(theirs), tmp_path) == ("a warning", Layer.DIRECTORY)
    (tmp_path / "a.cuh").write_text("two")
    assert found(Cache(theirs, stores), tmp_path) is None


@pytest.mark.parametrize("damaged", [b"", b"\x93", b"\x93\xa1x\x01\xa0", b"{}", b"\x91" * 9999])
def test_an_object_that_is_no_unit_is_a_miss(tmp_path: Path, damaged: bytes) -> None:
    stores = MemoryStores()
    (tmp_path / "a.cuh").write_text("one")
    keep(Cache(CacheDir(tmp_path / "mine", 1 << 30), stores), tmp_path)
    for name in stores.objects:
        stores.objects[name] = damaged
    assert found(Cache(CacheDir(tmp_path / "theirs", 1 << 30), stores), tmp_path) is None
