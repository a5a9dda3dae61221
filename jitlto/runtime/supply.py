"""What a caller supplies beside fragments: device code as text, LTO-IR, PTX, fatbins, cubins, objects and libraries."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from jitlto import nvrtc, ptx, toolkit
from jitlto.database import FamilyRecord
from jitlto.errors import CompileError, LinkError, PlanError
from jitlto.fragment import Symbol, SymbolKind
from jitlto.headers import HeaderSearch, Source
from jitlto.runtime.linker import InputKind, LinkInput, link
from jitlto.runtime.resolve import Supplied
from jitlto.versions import Architecture, Version, linkable


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input of a plan that is no fragment.

    Parameters
    ----------
    symbols : Supplied
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

    symbols: Supplied
    images: tuple[tuple[str, LinkInput], ...]
    version: Version | None
    architecture: Architecture | None
    identity: str


def from_source(text: str, name: str, family: FamilyRecord) -> UserInput:
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
    compiled = _compile(text, name, family)
    module = compiled.module
    functions = [s for s in module.provides if s.kind is not SymbolKind.KERNEL]
    if not functions:
        raise PlanError(
            "defines nothing that a kernel could call",
            where=name,
            hint="define a non-static __device__ function; a template needs an explicit instantiation",
        )
    symbols = Supplied(name, tuple(functions), module.requires, compiled.weak)
    base = min(compiled.ltoir)
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


@lru_cache(maxsize=256)
def _compile(text: str, name: str, family: FamilyRecord) -> nvrtc.Compiled:
    prelude = "".join(f'#include "{interface}"\n' for interface in family.interfaces)
    # The interface stands before the user's text without moving its lines.
    whole = f'{prelude}#line 1 "{_quoted(name)}"\n{text}\n'.encode()
    overlay = {header: content.encode("utf-8", "surrogateescape") for header, content in family.headers}
    search = HeaderSearch(toolkit.header_roots(), overlay)
    # Plain LTO-IR of the lowest base links upward to whatever the fragments link to.
    plain = [a for a in family.architectures if not a.suffix] or list(family.architectures)
    try:
        return nvrtc.compile_closure(search, whole, [min(plain)], family.options)
    except CompileError as error:
        raise nvrtc.annotate(error, name, text, name) from None


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
        module = ptx.parse(text)
    except Exception as error:
        raise PlanError("is not PTX", where=name, hint="give the text that a compiler wrote") from error
    symbols = Supplied(name, module.provides, module.requires, module.weak)
    item = LinkInput(InputKind.PTX, text.encode(), name)
    # The toolkit of a PTX text does not matter, its ISA does; the linker checks that.
    return UserInput(symbols, (("lto", item), ("ptx", item)), None, module.target, _identity(item))


def from_binary(data: bytes, kind: InputKind, name: str, wanted: Sequence[Symbol]) -> UserInput:
    """Take LTO-IR, a fatbin, a cubin, an object or a library.

    Which of the ``wanted`` symbols LTO-IR provides, with which layout, and what it requires in turn, is read from what
    nvJitLink makes of it together with a stub that takes their addresses. Other kinds are taken at their word: the link
    itself says whether they define what is missing.

    Raises
    ------
    PlanError
        If nvJitLink cannot read it.
    """
    item = LinkInput(kind, bytes(data), name)
    if kind in (InputKind.LTOIR, InputKind.FATBIN):
        module = _inspect(item, tuple(wanted))
        if module is not None:
            names = {symbol.name for symbol in wanted}
            provides = tuple(
                Symbol(d.name, d.kind, d.layout) for d in module.declarations.values() if d.defined and d.name in names
            )
            requires = tuple(s for s in module.requires if s.name not in names)
            return UserInput(Supplied(name, provides, requires), (("lto", item),), None, None, _identity(item))
    symbols = Supplied(name, (), (), opaque=True)
    return UserInput(symbols, (("lto", item), ("ptx", item)), None, None, _identity(item))


def _identity(item: LinkInput) -> str:
    return hashlib.sha256(item.kind.encode() + b"\0" + item.data).hexdigest()


def _inspect(item: LinkInput, wanted: tuple[Symbol, ...]) -> ptx.Module | None:
    functions = [s.name for s in wanted if s.kind is SymbolKind.FUNCTION]
    declarations = "".join(f'extern "C" __device__ void {name}();\n' for name in functions)
    uses = "".join(f"out[{n}] = (void*)&{name};\n" for n, name in enumerate(functions))
    text = f'{declarations}extern "C" __global__ void jitlto_stub(void** out) {{\n{uses}}}\n'
    base = Architecture(75)
    stub = nvrtc.compile_source(Source(text.encode(), {}), [base], ["--std=c++17"]).ltoir[base]
    # The newest target takes LTO-IR of every architecture.
    newest = Architecture(max(linkable(toolkit.nvjitlink_version())))
    try:
        linked = link([item, LinkInput(InputKind.LTOIR, stub, "stub")], newest, ["-lto"], ptx=True)
    except LinkError as error:
        # A whole fatbin without LTO-IR for that target: SASS, PTX, or code for one architecture only.
        if item.kind is InputKind.FATBIN and _is_whole_fatbin(item.data):
            return None
        raise PlanError(f"cannot be read as {item.kind}: {error.what}", where=item.name, hint=error.hint) from error
    return ptx.parse(linked.data.decode())


def _is_whole_fatbin(data: bytes) -> bool:
    """Whether the header of a fatbin (magic, version, its own size, the size of the rest) agrees with its length."""
    if len(data) < 16:
        return False
    magic, _, header, rest = struct.unpack_from("<IHHQ", data)
    return bool(magic == 0xBA55ED50 and header + rest == len(data))
