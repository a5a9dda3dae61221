"""What is fuzzed: everything that reads a file or a text of somebody else's, as functions from bytes to nothing.

A function may return, or raise one of jitlto's errors; any other exception is a bug. :mod:`tests.support.fuzz` drives
them, and ``tests/base/test_corpus.py`` gives them again what once broke something.
"""

import contextlib
import copy
import hashlib
import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from jitlto.base import log, mangling
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.base.files import digest_of
from jitlto.base.types import Parameter
from jitlto.base.versions import Architecture, Version
from jitlto.build.cache.cache import Unit, decode, encode_unit
from jitlto.build.merge import merge_databases
from jitlto.build.proof import prove
from jitlto.compile.compiler import CompiledSource
from jitlto.cuda import nvjitlink, ptx
from jitlto.cuda.nvfatbin import find_fatbins
from jitlto.cuda.nvjitlink import InputKind
from jitlto.database import FragmentDatabase, writer
from jitlto.database._rows import TABLES
from jitlto.families import declaration, matrix
from jitlto.families.templates import render_family
from jitlto.launch.arguments import make_converter
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.requests import Contents, find_chosen, find_contents, hash_key, request_key
from jitlto.link.sources import CONTENTS, KERNELS, REQUESTS
from jitlto.plan.cache_entry import Chosen, LinkedKernel, LinkKey
from jitlto.plan.user_code.inputs import from_binary
from jitlto.record.fragment import FragmentKey, ImageKind
from jitlto.report import page
from jitlto.report.content import describe
from jitlto.runtime import recording
from jitlto.runtime.family import KernelFamily
from jitlto.stores import entry as shared_entry
from jitlto.stores.manifest import Manifest
from jitlto.stores.signatures import TrustedKeys
from tests.support.compiled import compiled
from tests.support.families import MINI
from tests.support.fuzzing import MINI_BYTES
from tests.support.kernels import entry


@dataclass
class Ground:
    """What targets work on: an empty directory of their own, and a real database to start from."""

    directory: Path
    database: Path
    store: CacheDir = field(init=False)

    def __post_init__(self) -> None:
        self.store = CacheDir(self.directory / "store", 1 << 20)

    def file(self, name: str, data: bytes) -> Path:
        """A file of that content; the one before it is removed, so that it is another file."""
        path = self.directory / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    @cached_property
    def kernels(self) -> dict[str, bytes]:
        """Linked kernels as they are kept, by digest."""
        with FragmentDatabase(self.database) as database:
            (name,) = database.families
            kernels = KernelFamily(name, database)
            plans = [kernels.plan(arch="sm_90", **c) for c in islice(kernels.configurations(), 2)]
            return {plan.digest: entry(plan) for plan in plans}

    @cached_property
    def pack(self) -> bytes:
        """A pack of them."""
        packs.write(self.directory / "whole.pack", {KERNELS: self.kernels})
        return (self.directory / "whole.pack").read_bytes()

    @cached_property
    def cubins(self) -> list[bytes]:
        """The machine code in them."""
        found = [LinkedKernel.decode(digest, payload, 0.0, "disk") for digest, payload in self.kernels.items()]
        return [kernel.cubin for kernel in found if kernel]

    @cached_property
    def images(self) -> dict[str, list[bytes]]:
        """The images of the first database, by kind."""
        with FragmentDatabase(self.database) as database:
            images = [image for fragment in database.fragments() for image in fragment.images]
            return {kind: [database.read(i) for i in images if i.kind is kind] for kind in ImageKind}


# --- edits -------------------------------------------------------------------------------------------------------


def edited(data: bytes, script: bytes) -> bytes:
    """Edit bytes as a script says: steps of 8 bytes (what, how much, where) and what they insert."""
    out = bytearray(data)
    for at in range(0, len(script) - 7, 8):
        what, count, where = script[at], script[at + 1], int.from_bytes(script[at + 2 : at + 8], "little")
        if not out:
            break
        # Heads and ends of files and of pages are where lengths and counts stand.
        place = where % len(out)
        if what & 0x40:
            place = where % min(len(out), 200)
        elif what & 0x80:
            place = where % -(-len(out) // 1024) * 1024 + (where >> 24) % 64
        place = min(place, len(out) - 1)
        chance = random.Random(where)  # noqa: S311
        match what % 8:
            case 0:
                out[place] ^= 1 << count % 8
            case 1:
                out[place] = count
            case 2:
                del out[place : place + 1 + count]
            case 3:
                out[place:place] = chance.randbytes(1 + count)
            case 4:  # one page for another
                other = chance.randrange(-(-len(out) // 1024)) * 1024
                page = place // 1024 * 1024
                out[page : page + 1024] = out[other : other + 1024]
            case 5:  # a number in two, four or eight bytes
                size = (2, 4, 8)[count % 3]
                value = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 64) - 1, len(out))[count % 10]
                order = "big" if count & 1 else "little"
                out[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, order)  # type: ignore[arg-type]
            case 6:
                del out[place + count * 16 :]
            case _:
                other = chance.randrange(len(out))
                out[place : place + count] = out[other : other + count]
    return bytes(out)


#: What stands at the place of any JSON value.
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, float("inf"), float("nan"), "", " ", "\0",
    "a\0b", "\ud800", "é", "\u202e", "x" * 5000, "[" * 2000, "../../etc/passwd", "/etc/passwd", "~", "-", "--", "%",
    "%s", "{0}", "{{x}}", "*", "const", "float*", "int&", "int", "__half", "_Z", "_Z999999999999f", "_Z1fv", "a/b[c=d]",
    "a/b[c=d,c=e]", "self", "arch", "entry", "class", "75", "sm_999", "90a", "entrypoint", "device", "ltoir", "ptx",
    "function", "kernel", "variable", "(8)(8)", "((((", "const 4@0", [], {}, [[]], [{}], {"": ""}, [None], [0],
    ["a", "b"], {"a": "b"}, {"family": "x"}, [["a", "b"], ["a", "c"]],
)  # fmt: skip


def changed(value: Any, chance: random.Random) -> Any:
    """A JSON document with some of its values replaced, left out, added, repeated or swapped with others."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(chance.choice(ODD))
        holder, key = chance.choice(places)
        match chance.randrange(8):
            case 0:
                del holder[key]
            case 1:
                other, name = chance.choice(places)
                holder[key] = json.loads(json.dumps(other[name]))
            case 2 if isinstance(holder, list):
                holder.insert(key, json.loads(json.dumps(holder[key])))
            case 2:
                holder[str(chance.choice(ODD))] = holder[key]
            case 3 if isinstance(holder[key], str):
                text = holder[key]
                at = chance.randrange(len(text) + 1)
                odd = chance.choice([odd for odd in ODD if isinstance(odd, str)])
                holder[key] = chance.choice((text[:at], text[:at] + odd + text[at:], text + text, text[::-1]))
            case 4 if isinstance(holder[key], int):
                holder[key] = chance.choice((-1, 1, 2, 1000)) * holder[key] + chance.choice((-1, 0, 1))
            case 5:
                holder[key] = [holder[key]]
            case _:
                holder[key] = copy.deepcopy(chance.choice(ODD))
    return value


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    pending = [value]
    while pending:
        holder = pending.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ():
            yield holder, key
            pending.append(holder[key])


# --- databases ---------------------------------------------------------------------------------------------------


def rows(path: Path) -> list[list[Any]]:
    """The rows of a database: table, key and record, the record read."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [
            [table, key, json.loads(record)]
            for table in TABLES
            for key, record in connection.execute(f"SELECT key, record FROM {table} ORDER BY key")  # noqa: S608
        ]


def with_rows(path: Path, content: Iterable[Any], part: Any = None) -> None:
    """Put other rows into a database, with checksums and a digest that are right."""
    listed: dict[tuple[str, str], bytes] = {}
    for row in content:
        if isinstance(row, list) and len(row) == 3 and row[0] in TABLES and isinstance(row[1], str):
            record = row[2] if isinstance(row[2], str) else json.dumps(row[2], sort_keys=True, separators=(",", ":"))
            key = row[1].encode("utf-8", "replace").decode()
            listed.setdefault((row[0], key), record.encode("utf-8", "replace"))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        blobs = dict(connection.execute("SELECT sha256, data FROM blob"))
    meta = {} if part is None else {"part": json.dumps(part, sort_keys=True, separators=(",", ":")).encode()}
    path.unlink()
    writer._fill(path, meta, ((*name, record) for name, record in sorted(listed.items())), blobs)


def use(path: Path) -> None:
    """Do what users do with a database, short of linking: open, verify, list, report, plan, prove, prepare launches."""
    digest_of(path)
    try:
        opened = FragmentDatabase(path)
    except JitltoError as error:
        told(error)
        return
    with opened:
        refused(opened.verify)
        for fragment in opened.fragments():
            show(fragment)
        refused(lambda: page.to_html(describe(opened)).encode())
        for name in opened.families:
            refused(lambda name=name: plan(name, opened))  # type: ignore[misc]
            refused(lambda name=name: prove(opened, [name]))  # type: ignore[misc]
    refused(lambda: merge_databases([path, path], path.with_name("merged.fragdb")))
    path.with_name("merged.fragdb").unlink(missing_ok=True)


def show(fragment: Any) -> None:
    """What the command line prints of a fragment."""
    from jitlto.cli.database import _as_dict

    json.dumps(_as_dict(fragment))
    text = [str(fragment.key), str(fragment.role), mangling.demangle(fragment.entry)]
    text += map(str, fragment.signature)
    text += [f"{mangling.demangle(s.name)} {s.layout}" for s in (*fragment.provides, *fragment.requires)]
    text += [f"{i.kind} {i.architecture.compute} {i.version} {i.ptx_isa} {i.size} {i.sha256}" for i in fragment.images]
    assert FragmentKey.parse(str(fragment.key)) == fragment.key
    "\n".join(text).encode()


def plan(name: str, database: FragmentDatabase) -> None:
    """Plan some kernels of a family."""
    kernels = KernelFamily(name, database)
    for configuration in islice(kernels.configurations(), 4):
        for mode in ("lto", "ptx"):
            refused(lambda c=configuration, m=mode: planned(kernels, c, m))  # type: ignore[misc]


def planned(kernels: KernelFamily, configuration: dict[str, str], mode: str) -> None:
    """Plan a kernel, read its images and prepare its launch."""
    one = kernels.plan(arch="sm_90", link_mode=mode, **configuration)
    json.dumps(one.as_dict())
    assert one.digest == one.link_key.digest
    for image in one.images:
        database = kernels.database
        database.read(image)
    prepared(one.entry.signature)


def prepared(signature: Sequence[Parameter]) -> None:
    """Make the converters of a signature."""
    for parameter in signature:
        make_converter(parameter)


def refused(work: Callable[[], object]) -> JitltoError | None:
    """Do some work; the error of ours that it ends with, if it does."""
    try:
        work()
    except JitltoError as error:
        told(error)
        return error
    return None


def told(error: JitltoError) -> None:
    """An error has a message that can be printed."""
    assert error.what.strip()
    str(error).encode("utf-8", "backslashreplace")


def _database(ground: Ground, data: bytes) -> None:
    use(ground.file("x.fragdb", edited(ground.database.read_bytes(), data)))


def _records(ground: Ground, data: bytes) -> None:
    document = _json(data)
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        return
    path = ground.file("r.fragdb", ground.database.read_bytes())
    with_rows(path, document["rows"], document.get("part"))
    use(path)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _record_seeds(ground: Ground) -> list[bytes]:
    part = {
        "number": 1, "count": 2, "whole": "0" * 64, "fragments": 7, "toolchains": [["mini", "nvrtc 1"]],
        "faults": [["f", "_Z2opf"]], "advice": ["x"],
    }  # fmt: skip
    content = rows(ground.database)
    return [json.dumps(document).encode() for document in ({"rows": content}, {"rows": content, "part": part})]


# --- caches and packs --------------------------------------------------------------------------------------------


def _pack(ground: Ground, data: bytes) -> None:
    log._warned.clear()  # each digest of each pack once, which adds up here
    path = ground.file("p.pack", edited(ground.pack, data) if data[:1] != b"j" else b"")
    database = path.with_suffix(".fragdb")
    if data[:1] == b"j":
        made_up = {REQUESTS: {_REQUEST: data[1:]}, CONTENTS: {hash_key("0" * 64): data[1:]}}
        packs.write(path, {KERNELS: ground.kernels, **made_up})
        find_contents(packs.beside(database), "0" * 64)
        find_chosen(packs.beside(database), _REQUEST)
    for pack in packs.beside(database):
        for digest in ground.kernels:
            pack.get(KERNELS, digest)
    for digest in ground.kernels:
        KernelCache(None).find(digest, database)


_REQUEST = request_key("0" * 64, "mini", None, "lto", {}, {"a": "b"}, (9, 0), "13.0") or ""


def _pack_seeds(ground: Ground) -> list[bytes]:
    chosen = Chosen("k", "0" * 64, (Parameter("n", "unsigned", 4, 4),))
    with FragmentDatabase(ground.database) as database:
        contents = Contents.from_database(database)
    return [b"\0" * 8, b"j" + chosen.encode(), b"j" + contents.encode()]


def _entry(ground: Ground, data: bytes) -> None:
    """An entry of the caches, whose checksum is right."""
    key = hashlib.sha256(data.partition(b"\n")[0]).hexdigest()
    for kind in ("kernels", "compiled", "sources", "databases"):
        ground.store.put(kind, key, data)
    kernel = KernelCache(ground.store).find(key, ground.directory / "x.fragdb")
    if kernel is not None:
        LinkKey.from_entry(data)
    decode(data, Unit)
    find_contents([ground.store], key)


def _entry_seeds(ground: Ground) -> list[bytes]:
    images = ((ImageKind.PTX, Architecture(75), b"x"),)
    compiled = CompiledSource("nvrtc", Version(12, 9), Architecture(75), Version(8, 8), (), (), (("k", ((8, 8),)),),
                              images, (), "")  # fmt: skip
    with FragmentDatabase(ground.database) as database:
        contents = Contents.from_database(database)
    return [*ground.kernels.values(), encode_unit(Unit(compiled, {})), contents.encode()]


def _raw_entry(ground: Ground, data: bytes) -> None:
    """An entry whose bytes are anything."""
    key = "0" * 64
    ground.store.put("units", key, b"payload")
    path = Path(ground.store._path("units", key))
    path.write_bytes(edited(path.read_bytes(), data))
    assert ground.store.get("units", key) in (None, b"payload")


_SHARED = ("kernels", "ab" * 32, b"payload")


def _shared_entry(_: Ground, data: bytes) -> None:
    """An entry of a shared store whose bytes are anything."""
    kind, key, payload = _SHARED
    assert shared_entry.decode(kind, key, edited(shared_entry.encode(*_SHARED, None), data), None) == payload


def _signers(ground: Ground, data: bytes) -> None:
    """A file of trusted keys, and entries that are signed by any of them or by none."""
    trusted = TrustedKeys.load(ground.file("signers", data))
    kind, key, _ = _SHARED
    for key_id in trusted.ids:
        assert not trusted.verify(key_id, bytes(64), b"")
    assert refused(lambda: shared_entry.decode(kind, key, shared_entry.encode(*_SHARED, None), trusted))


def _recording(ground: Ground, data: bytes) -> None:
    for used in recording.read(ground.file("used.jsonl", data)):
        used.to_line()


# --- texts -------------------------------------------------------------------------------------------------------


def _family(ground: Ground, data: bytes) -> None:
    directory = ground.directory / "family"
    for name, content in MINI_BYTES.items():
        path = directory / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            assert isinstance(content, bytes)
            path.write_bytes(content)
    (directory / "family.toml").write_bytes(data)
    loaded = declaration.load_family(directory / "family.toml")
    for rendered in islice(render_family(loaded), 50):
        str(rendered.key).encode()


def _matrix(ground: Ground, data: bytes) -> None:
    path = ground.file("m.json", data)
    for lenient in (False, True):
        refused(lambda lenient=lenient: list(islice(matrix.load_matrix(path, lenient=lenient).combinations(), 50)))  # type: ignore[misc]


def _manifest(ground: Ground, data: bytes) -> None:
    read = Manifest.read(ground.file("SHA256SUMS", data))
    for name in read.digests:
        listed = read.path.parent / name
        refused(lambda listed=listed: read.check(listed))  # type: ignore[misc]


def _key(_: Ground, data: bytes) -> None:
    key = FragmentKey.parse(data.decode("utf-8", "replace"))
    assert FragmentKey.parse(str(key)) == key


def _ptx(_: Ground, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    module = ptx.parse_ptx(text)
    assert isinstance(module.provides + module.requires, tuple)
    from_binary(data, InputKind.PTX, "given", {})


def _names(_: Ground, data: bytes) -> None:
    name = data.decode("utf-8", "replace")
    for text in (name, f"_Z{name}"):
        mangling.demangle(text).encode()
        mangling.parameter_types(text)
        mangling.base_name(text)
    prepared([Parameter("x", name, 8, 8), Parameter("y", f"{name}*", 8, 8)])


def _fatbin(ground: Ground, data: bytes) -> None:
    for one in (data, edited(ground.images["ltoir"][0], data)):
        find_fatbins(one)


def _cubin(ground: Ground, data: bytes) -> None:
    for one in (data, edited(ground.cubins[0], data)):
        refused(lambda one=one: nvjitlink.find_undefined(one))  # type: ignore[misc]


def _recorded() -> bytes:
    request = recording.Request("mini", None, {"data_type": "float"}, ("mini/op[]",), (("x", b"int f();", None),))
    return recording.UsedPlan(request, Architecture(90)).to_line()


Run = Callable[[Ground, bytes], None]
Seeds = Callable[[Ground], list[bytes]]

_SOURCES = [
    'extern "C" __device__ float op(float a); __global__ void kern(float* x) { *x = op(*x); }',
    "template <class T> __device__ T op(T a) { return 2 * a; } template __device__ float op(float);",
]
_TOMLS = [MINI["family.toml"].encode()]
_SIGNER = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFtYHP6XEMiOiOI5r5jJ7vV69MHZyJfRe+NWk2hW9sCL"
_SIGNERS = [_SIGNER + b" me\n", b'me@example.org namespaces="jitlto-store",cert-authority ' + _SIGNER]
_KEYS = [b"mini/op[data_type=float,op_name=twice]", b"a/b[]", b"a/b[c=%2C%5B]"]
_SYMBOLS = [b"_ZN4mini4kernIfEEvPT_j", b"_Z3addPKfi", b"N1aclEi", b"float const*", b"__half"]

#: By name: what to do with bytes, and bytes to begin with.
TARGETS: dict[str, tuple[Run, Seeds]] = {
    "database": (_database, lambda _: [bytes(8)]),
    "records": (_records, _record_seeds),
    "pack": (_pack, _pack_seeds),
    "entry": (_entry, _entry_seeds),
    "raw_entry": (_raw_entry, lambda _: [bytes(8)]),
    "shared_entry": (_shared_entry, lambda _: [b""]),
    "signers": (_signers, lambda _: _SIGNERS),
    "recording": (_recording, lambda _: [_recorded()]),
    "family": (_family, lambda _: _TOMLS),
    "matrix": (_matrix, lambda _: [MINI["kern.json"].encode(), MINI["op.json"].encode()]),
    "manifest": (_manifest, lambda g: [f"{'0' * 64}  x.fragdb\n{'1' * 64} *./a/b.pack\n".encode()]),
    "key": (_key, lambda _: _KEYS),
    "ptx": (_ptx, lambda _: [compiled(text).ptx.encode() for text in _SOURCES]),
    "names": (_names, lambda _: _SYMBOLS),
    "fatbin": (_fatbin, lambda g: [bytes(8), *g.images["ltoir"][:2]]),
    "cubin": (_cubin, lambda g: [bytes(8), g.cubins[0]]),
}
#: Those whose inputs are JSON, at least in part: mutated as documents too.
DOCUMENTS = frozenset({"records", "matrix", "recording", "pack"})
