"""Packs: found beside their database and read first; never written to; what is damaged is left aside, once said."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.cache_dir import CacheDir
from jitlto.base.entry import encode
from jitlto.base.errors import JitltoError
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.packs import Pack
from jitlto.link.sources import KERNELS, REQUESTS
from jitlto.plan.plan import Plan
from tests.support.errors import raises
from tests.support.kernels import get_or_link

A, B, C = (hashlib.sha256(text).hexdigest() for text in (b"a", b"b", b"c"))
digests = st.binary(max_size=4).map(lambda data: hashlib.sha256(data).hexdigest())


def write(path: Path, kernels: dict[str, bytes]) -> None:
    packs.write(path, {KERNELS: kernels})


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.slow
@given(st.dictionaries(digests, st.binary(max_size=50), max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_equal_entries_make_equal_files(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, bytes], chance: object
) -> None:
    folder = tmp_path_factory.mktemp("p")
    shuffled = list(entries.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    write(folder / "one.pack", entries)
    write(folder / "other.pack", dict(shuffled))
    assert (folder / "one.pack").read_bytes() == (folder / "other.pack").read_bytes()


def test_a_pack_is_written_whole_or_not_at_all(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "x.pack"
    write(path, {A: b"a"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640  # as umask has it: it is there to be shared
    with pytest.raises(TypeError):
        write(path, {A: b"b", B: None})  # type: ignore[dict-item]
    assert Pack(path).get(KERNELS, A) == b"a"
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none" / "x.pack", {A: b"a"})
    (tmp_path / "folder.pack").mkdir()
    with pytest.raises(OSError, match="regular file"):
        write(tmp_path / "folder.pack", {A: b"a"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.pack", "x.pack"]


@pytest.mark.parametrize("stem", ["search", "a.b", "with [brackets]*?", "ü b"])
def test_packs_are_found_beside_their_database_by_its_name(tmp_path: Path, stem: str) -> None:
    names = [f"{stem}.pack", f"{stem}.sm_90.pack", f"{stem}.x.y.pack"]
    others = [f"{stem}s.pack", f"{stem}-x.pack", f"x{stem}.pack", "other.pack", f"{stem}.pack.old", f".{stem}.pack"]
    for name in names + others:
        write(tmp_path / name, {A: name.encode()})
    (tmp_path / f"{stem}.folder.pack").mkdir()
    os.mkfifo(tmp_path / f"{stem}.fifo.pack")
    (tmp_path / f"{stem}.none.pack").symlink_to(tmp_path / "nowhere")
    assert [p.path.name for p in packs.beside(tmp_path / f"{stem}.fragdb")] == sorted(names)


def test_packs_serve_what_the_cache_lacks_and_nothing_is_written_beside_them(tmp_path: Path, plan: Plan) -> None:
    beside, user = tmp_path / "installed", tmp_path / "user"
    beside.mkdir()
    kernel = plan.link(use_cache=False)
    write(beside / "mini.pack", {plan.digest: plan.link_key.encode(kernel)})
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ctime_ns, p.read_bytes()) for p in beside.iterdir()}
    for store in (CacheDir(user, 1 << 30), None):
        cache = KernelCache(store, may_link=False)
        found = get_or_link(cache, plan, beside / "mini.fragdb")
        assert found.cubin == kernel.cubin
        assert found.layer == "pack"
    assert [p for p in user.rglob("*") if p.is_file()] == []
    # With the kernel in both, the pack's is taken.
    cache = KernelCache(CacheDir(user, 1 << 30))
    get_or_link(cache, plan, tmp_path / "none.fragdb")
    assert get_or_link(cache, plan, beside / "mini.fragdb").layer == "pack"
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_ctime_ns, p.read_bytes()) for p in beside.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "cut", "removed", "replaced"])
def test_an_entry_damaged_in_a_pack_is_looked_for_elsewhere_with_one_warning_and_one_gone_with_none(
    tmp_path: Path, plan: Plan, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    path, kernel = tmp_path / "mini.pack", plan.link(use_cache=False)
    write(path, {plan.digest: plan.link_key.encode(kernel)})
    cache = KernelCache(CacheDir(tmp_path / "user", 1 << 30))
    assert get_or_link(cache, plan, tmp_path / "mini.fragdb").layer == "pack"
    whole = path.read_bytes()
    match how:
        case "flipped":
            path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
        case "cut":
            path.write_bytes(whole[:-1])
        case "removed":
            path.unlink()
        case _:
            write(path, {A: b"another", B: bytes(100_000)})
    layers = [get_or_link(cache, plan, tmp_path / "mini.fragdb").layer for _ in range(3)]
    assert layers == ["link", "disk", "disk"]
    assert get_or_link(cache, plan, tmp_path / "mini.fragdb").cubin == kernel.cubin
    assert caplog.text.count("WARNING") == (how in ("flipped", "cut"))


def made_up(*records: tuple[str, int, int]) -> bytes:
    """A pack of any records, whose checksum is right."""
    index = b"".join(packs._RECORD.pack(bytes.fromhex(key), *place) for key, *place in records)
    return encode("pack", index) + bytes(64)


ZERO = "0" * 64


@pytest.mark.parametrize("place", [(1 << 63, 5), (0, (1 << 64) - 1), (0, 5), (0, 0)])
def test_a_record_that_somebody_made_up_is_a_miss(tmp_path: Path, place: tuple[int, int]) -> None:
    (tmp_path / "mini.pack").write_bytes(made_up((ZERO, *place)))
    (pack,) = packs.beside(tmp_path / "mini.fragdb")
    assert pack.get(KERNELS, ZERO) is None
    with raises(JitltoError, "jitlto-damaged-pack"):
        packs.verify(tmp_path / "mini.pack")


@pytest.mark.parametrize("images", [None, 5, [["a"]]])
def test_a_kernel_that_somebody_made_up_is_damage(tmp_path: Path, images: object) -> None:
    content = json.dumps({"entry": "kern", "arch": "sm_90", "images": images}).encode()
    about = b'{"kernel": "f/k[]", "configuration": [], "log": ""}'
    write(tmp_path / "mini.pack", {hashlib.sha256(content).hexdigest(): b"\n".join([content, about, b"cubin"])})
    with raises(JitltoError, "jitlto-damaged-pack"):
        packs.verify(tmp_path / "mini.pack", {"a"})


def test_an_index_that_somebody_made_up_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "mini.pack").write_bytes(encode("pack", bytes(50)))
    assert packs.beside(tmp_path / "mini.fragdb") == []
    with raises(JitltoError, "jitlto-damaged-pack"):
        packs.verify(tmp_path / "mini.pack")


def huge(start: bytes) -> bytes:
    """The head of an index of terabytes."""
    return start[:21] + (1 << 39).to_bytes(8, "little") + start[29:]


@pytest.mark.parametrize("made", [made_up((ZERO, 200, 1 << 39)), huge(made_up())], ids=["entry", "index"])
def test_a_pack_of_terabytes_that_hold_nothing_needs_no_memory(tmp_path: Path, made: bytes) -> None:
    path = tmp_path / "mini.pack"
    path.write_bytes(made)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert [pack.get(KERNELS, ZERO) for pack in packs.beside(tmp_path / "mini.fragdb")] in ([], [None])
    with raises(JitltoError, "jitlto-damaged-pack"):
        packs.verify(path)


def test_wherever_a_pack_is_damaged_its_check_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mini.pack"
    write(path, {A: b"a" * 40, B: b"b" * 40})
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with raises(JitltoError, "jitlto-damaged-pack", where=str(path)) as found:
            packs.verify(path)
        assert "damaged" in found.value.what, place


def test_a_look_up_reads_its_entry_alone_however_many_kernels_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {hashlib.sha256(b"%d" % n).hexdigest(): b"%d" % n for n in range(5000)}
    packs.write(tmp_path / "x.pack", {KERNELS: kernels, REQUESTS: {A: b"a look-up"}})
    pack, sizes = Pack(tmp_path / "x.pack"), list[int]()
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: sizes.append(size) or read(file, size, at))  # type: ignore[func-returns-value]
    for digest, payload in kernels.items():
        assert pack.get(KERNELS, digest) == payload
    assert sum(sizes) == sum(len(encode(f"kernels/{key}", payload)) for key, payload in kernels.items())
    assert pack.get(REQUESTS, A) == b"a look-up"


def test_a_pack_that_is_replaced_serves_what_the_new_one_holds(tmp_path: Path) -> None:
    database, path = tmp_path / "k.fragdb", tmp_path / "k.pack"
    write(path, {"a" * 64: b"first"})
    (old,) = packs.beside(database)
    write(path, {"a" * 64: b"longer than before", "0" * 64: b"new"})
    assert old.get(KERNELS, "a" * 64) == b"first"
    (new,) = packs.beside(database)
    assert (new.get(KERNELS, "a" * 64), new.get(KERNELS, "0" * 64)) == (b"longer than before", b"new")
    path.unlink()
    assert packs.beside(database) == []
