"""What a caller supplies beside fragments: device code as text, LTO-IR, PTX, fatbins, cubins, objects and libraries."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from jitlto.cuda import nvrtc, toolkit
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.errors import CompileError, JitltoError, LinkError, PlanError
from jitlto.model import ptx
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Symbol, SymbolKind
from jitlto.model.headers import HeaderSearch, Source
from jitlto.model.resolve import UserSymbols
from jitlto.model.versions import Architecture, Version, can_link_for, linkable_architectures
from jitlto.runtime.user_code import compilation
from jitlto.storage.cache_dir import CacheDir

_SCHEMA = 1  # of what is kept of a compiled source
_FATBIN_PTX, _FATBIN_CUBIN, _FATBIN_LTOIR = 1, 2, 8  # kinds of images in a fatbin


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input of a plan that is no fragment.

    Parameters
    ----------
    symbols : UserSymbols
        What it provides and requires.
    images : tuple of (str, LinkInput)
        ``lto`` and ``ptx``: what is linked in either mode; an input that can serve only one has only that.
    version : Version or None
        The toolkit that made it, where known.
    architecture : Architecture or None
        What it was compiled for, where known.
    identity : str
        SHA-256 of its content, or of what it was compiled from: what stands for it in a plan's digest.
    """

    symbols: UserSymbols
    images: tuple[tuple[str, LinkInput], ...]
    version: Version | None
    architecture: Architecture | None
    identity: str


def from_source(text: str, name: str, family: FamilyRecord, store: CacheDir | None = None) -> UserInput:
    """Compile a user's device function, with the family's interface headers put before it.

    Parameters
    ----------
    text : str
        CUDA C++.
    name : str
        What messages call it.
    family : FamilyRecord
        Whose interfaces it implements.

    Raises
    ------
    CompileError
        If it does not compile, in terms of its own lines. A definition that contradicts the interface does not.
    PlanError
        If it defines nothing that a kernel could call.
    """
    try:
        text.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise PlanError("the source is not text", where=name, hint="give CUDA C++ as a str") from error
    compiled = _compile(text, name, family, store)
    module = compiled.module
    functions = [s for s in module.provides if s.kind is not SymbolKind.KERNEL]
    if not functions:
        raise PlanError(
            "defines nothing that a kernel could call",
            where=name,
            hint="define a non-static __device__ function; a template needs an explicit instantiation",
        )
    symbols = UserSymbols(name, tuple(functions), module.requires, compiled.weak)
    base = base_architecture(family)
    return UserInput(
        symbols,
        (
            ("lto", LinkInput(InputKind.LTOIR, compiled.ltoir[base], name)),
            ("ptx", LinkInput(InputKind.PTX, compiled.ptx.encode(), name)),
        ),
        compiled.version,
        base,
        compiled.identity,
    )


def base_architecture(family: FamilyRecord) -> Architecture:
    """What callers' code is compiled for: plain code of the lowest base links upward to whatever the fragments do."""
    plain = [a for a in family.architectures if not a.suffix] or list(family.architectures)
    return min(plain)


def _compile(text: str, name: str, family: FamilyRecord, store: CacheDir | None) -> nvrtc.Compiled:
    prelude = "".join(f'#include "{interface}"\n' for interface in family.interfaces)
    # The interface stands before the user's text without moving its lines.
    whole = f'{prelude}#line 1 "{_quoted(name)}"\n{text}\n'.encode()
    try:
        return compile_once(whole, family.headers, base_architecture(family), family.options, store)
    except CompileError as error:
        raise nvrtc.annotate(error, name, text, name) from None


@lru_cache(maxsize=256)
def compile_once(
    text: bytes,
    headers: tuple[tuple[str, str], ...],
    architecture: Architecture,
    options: tuple[str, ...],
    store: CacheDir | None = None,
) -> nvrtc.Compiled:
    """Compile CUDA C++ with NVRTC, or find what this or another process made of the same text, headers and options.

    Parameters
    ----------
    text : bytes
        The source.
    headers : tuple of (str, str)
        Name and text of headers beside the toolkit's.
    architecture : Architecture
        What to compile for.
    options : tuple of str
        The compiler's.
    store : CacheDir or None
        Where other processes find it.

    Raises
    ------
    CompileError
        If NVRTC refuses it; ``log`` names the source ``<sha256>.cu``.
    """
    overlay = {header: content.encode("utf-8", "surrogateescape") for header, content in headers}
    recipe = {
        "schema": _SCHEMA,
        "text": hashlib.sha256(text).hexdigest(),
        "headers": {name: hashlib.sha256(content).hexdigest() for name, content in overlay.items()},
        "architecture": str(architecture),
        "options": list(options),
        "nvrtc": toolkit.build_id("nvrtc"),
    }
    search = _Search(toolkit.header_roots(), overlay)
    entry = compilation.find(store, recipe)
    found = _unpacked(entry, search, architecture) if entry else None
    if found is not None:
        return found
    compiled = nvrtc.compile_closure(search, text, [architecture], options)
    compilation.keep(store, recipe, _packed(compiled, search, text, architecture))
    return compiled


class _Search(HeaderSearch):
    """Remembers which headers it gave last, those that had to be named for it too."""

    given: frozenset[str] = frozenset()

    def find(self, name: str) -> bytes | None:
        # What is compiled here comes from a database and from a caller: neither leads to files beside the toolkit's.
        return None if name.startswith("../") and name not in self._overlay else super().find(name)

    def closure(self, text: bytes, extra: Iterable[str] = ()) -> Source:
        source = super().closure(text, extra)
        self.given = frozenset(source.headers)
        return source


def _packed(compiled: nvrtc.Compiled, search: _Search, text: bytes, architecture: Architecture) -> dict[str, object]:
    # All that was looked for, found or not: where one of them changes, comes or goes, another source would be compiled.
    asked = search.looked_up(text, search.given) | search.given
    return {
        "headers": {name: search.sha256(name) for name in asked},
        "ltoir": base64.b64encode(compiled.ltoir[architecture]).decode(),
        "ptx": compiled.ptx,
        "weak": compiled.weak,
        "version": str(compiled.version),
        "warnings": compiled.warnings,
        "identity": compiled.identity,
    }


def _unpacked(entry: dict[str, object], search: _Search, architecture: Architecture) -> nvrtc.Compiled | None:
    """What an entry holds; None if the toolkit's headers have changed since, or it is not of this form."""
    try:
        headers, weak, code = entry["headers"], entry["weak"], entry["ptx"]
        if not isinstance(headers, dict) or not isinstance(weak, list) or not isinstance(code, str):
            return None
        if any(search.sha256(name) != digest for name, digest in headers.items()):
            return None
        return nvrtc.Compiled(
            {architecture: base64.b64decode(str(entry["ltoir"]), validate=True)},
            code,
            ptx.parse_ptx(code),
            tuple((str(name), str(body)) for name, body in weak),
            Version.parse(str(entry["version"])),
            str(entry["warnings"]),
            str(entry["identity"]),
        )
    except (ValueError, KeyError, TypeError, JitltoError):
        return None


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def from_ptx(data: bytes | str, name: str) -> UserInput:
    """Take relocatable PTX; what it provides and requires is read from it.

    Raises
    ------
    PlanError
        If it is not PTX.
    """
    text = (data if isinstance(data, str) else data.decode("utf-8", "replace")).rstrip("\0")
    try:
        module = ptx.parse_ptx(text)
    except Exception as error:
        raise PlanError("is not PTX", where=name, hint="give the text that a compiler wrote") from error
    symbols = UserSymbols(name, module.provides, module.requires, module.weak)
    item = LinkInput(InputKind.PTX, text.encode(), name)
    # The toolkit of a PTX text does not matter, its ISA does; the linker checks that.
    return UserInput(symbols, (("lto", item), ("ptx", item)), None, module.target, _identity(item))


def from_binary(
    data: bytes, kind: InputKind, name: str, wanted: Sequence[Symbol], store: CacheDir | None = None
) -> UserInput:
    """Take LTO-IR, a fatbin, a cubin, an object or a library.

    Which of the ``wanted`` symbols LTO-IR provides, with which layout, and what it requires in turn, is read from what
    nvJitLink makes of it together with a stub that takes their addresses. Other kinds, and fatbins without LTO-IR, are
    taken at their word: the link itself says whether they define what is missing.

    Raises
    ------
    PlanError
        If nvJitLink cannot read it.
    """
    item = LinkInput(kind, bytes(data), name)
    if kind in (InputKind.LTOIR, InputKind.FATBIN):
        module = _inspect(item, tuple(wanted), store)
        if module is not None:
            names = {symbol.name for symbol in wanted}
            provides = tuple(
                Symbol(d.name, d.kind, d.layout) for d in module.declarations.values() if d.defined and d.name in names
            )
            requires = tuple(s for s in module.requires if s.name not in names)
            # What a fatbin holds beside LTO-IR serves links without it.
            plain = any(held.kind in (_FATBIN_PTX, _FATBIN_CUBIN) for held in _held(item))
            modes = ("lto", "ptx") if plain else ("lto",)
            images = tuple((mode, item) for mode in modes)
            return UserInput(UserSymbols(name, provides, requires), images, None, None, _identity(item))
    symbols = UserSymbols(name, (), (), opaque=True)
    return UserInput(symbols, (("lto", item), ("ptx", item)), None, None, _identity(item))


def _identity(item: LinkInput) -> str:
    return hashlib.sha256(item.kind.encode() + b"\0" + item.data).hexdigest()


def _inspect(item: LinkInput, wanted: tuple[Symbol, ...], store: CacheDir | None) -> ptx.Module | None:
    functions = [s.name for s in wanted if s.kind is SymbolKind.FUNCTION]
    declarations = "".join(f'extern "C" __device__ void {name}();\n' for name in functions)
    uses = "".join(f"out[{n}] = (void*)&{name};\n" for n, name in enumerate(functions))
    text = f'{declarations}extern "C" __global__ void jitlto_stub(void** out) {{\n{uses}}}\n'
    base = Architecture(75)
    compiled = compile_once(text.encode(), (), base, ("--std=c++17",), store)
    stub = LinkInput(InputKind.LTOIR, compiled.ltoir[base], "stub")
    refusal: LinkError | None = None
    for target in _targets(item):
        try:
            linked = link([item, stub], target, ["-lto"], ptx=True)
        except LinkError as error:
            refusal = refusal or error
        else:
            return ptx.parse_ptx(linked.data.decode())
    # A whole fatbin without LTO-IR that any target takes: SASS or PTX.
    if item.kind is InputKind.FATBIN and _is_whole_fatbin(item.data):
        return None
    assert refusal is not None  # noqa: S101 - there is a first target
    raise PlanError(f"cannot be read as {item.kind}: {refusal.what}", where=item.name, hint=refusal.hint) from refusal


def _targets(item: LinkInput) -> Iterator[Architecture]:
    """Targets for which nvJitLink may read an input.

    The newest takes bare LTO-IR of every architecture, suffixes too. From a fatbin it takes LTO-IR with a suffix only
    for a target that runs it.
    """
    version = toolkit.nvjitlink_version()
    yield Architecture(max(linkable_architectures(version)))
    for number in sorted({held.number for held in _held(item) if held.kind == _FATBIN_LTOIR}):
        for suffix in ("a", "f"):
            if can_link_for(version, target := Architecture(number, suffix)):
                yield target


@dataclass(frozen=True, slots=True)
class _Held:
    """One image in a fatbin: its kind, and the architecture's number without a suffix."""

    kind: int
    number: int


def _held(item: LinkInput) -> list[_Held]:
    """What a fatbin holds, as far as its entries follow the form that nvFatbin and nvcc write; nothing otherwise."""
    data, found = item.data, []
    if item.kind is not InputKind.FATBIN or not _is_whole_fatbin(data):
        return []
    (at,) = struct.unpack_from("<H", data, 6)
    while at + 32 <= len(data):
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (number,) = struct.unpack_from("<I", data, at + 28)
        found.append(_Held(kind, number))
        if header + size == 0:
            break
        at += header + size
    return found


def _is_whole_fatbin(data: bytes) -> bool:
    """Whether the header of a fatbin (magic, version, its own size, the size of the rest) agrees with its length."""
    if len(data) < 16:
        return False
    magic, _, header, rest = struct.unpack_from("<IHHQ", data)
    return bool(magic == 0xBA55ED50 and header + rest == len(data))
