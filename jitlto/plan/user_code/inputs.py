"""Inputs that callers add to a plan's fragments: CUDA C++, LTO-IR, PTX, fatbins, cubins, objects, libraries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from msgspec import structs

from jitlto.base.cache_dir import CacheDir
from jitlto.base.diagnostic import Location
from jitlto.base.errors import CompileError, JitltoError, LinkError, PlanError
from jitlto.base.versions import Architecture, lowest_base
from jitlto.compile import diagnostics
from jitlto.compile.declarations import find_conflicts
from jitlto.compile.headers import locate
from jitlto.compile.sides import explain
from jitlto.cuda import toolkit
from jitlto.cuda.compatibility import linkable_architectures
from jitlto.cuda.compiled_code import join, list_code, read_symbols
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.plan.supplied import UserSymbols
from jitlto.plan.user_code.compilation import UserCode, compile_once
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import ImageKind, Symbol, SymbolKind
from jitlto.record.headers import interfaces_first

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


#: Modes of a link, with link-time optimisation (``lto``) and without (``ptx``), each with what gives an input for it.
Images: TypeAlias = tuple[tuple[str, Callable[[], LinkInput]], ...]


@dataclass(frozen=True)
class UserInput:
    """One input of a plan that is not a fragment.

    Args:
        symbols: The symbols that it provides and requires.
        identity: SHA-256 of its content or of its sources; it represents the input in a plan's digest.
        images: What is linked of it in the modes that it supports; compiled when it is.
    """

    symbols: UserSymbols
    identity: str
    images: Images = field(compare=False)

    def requiring(self, known: Collection[str]) -> UserInput:
        """Return it without what it refers to and nothing defines: the link proves that, and drops unused functions."""
        needed = tuple(symbol for symbol in self.symbols.requires if symbol.name in known)
        return replace(self, symbols=structs.replace(self.symbols, requires=needed))

    def for_mode(self, link_mode: str) -> list[LinkInput]:
        """Return what is linked in a mode of a plan."""
        return [make() for make in self._makers(link_mode)]

    def _makers(self, link_mode: str) -> list[Callable[[], LinkInput]]:
        return [make for mode, make in self.images if (mode == "lto") == (link_mode == "lto")]

    def check(self, link_mode: str) -> None:
        """Check that it can take part in a link of a mode; whether nvJitLink reads it, that says itself.

        Raises:
            LinkError: If it cannot.
        """
        if not self._makers(link_mode):
            raise LinkError(
                f"{self.symbols.name} cannot take part in a link without link-time optimisation",
                code="link-needs-lto",
                hint='give its source or PTX, or link with link_mode="lto"',
            )


def from_source(text: str, name: str, family: FamilyRecord, store: CacheDir | None) -> UserInput:
    """Compile a caller's device function, preceded by the family's interface headers.

    Args:
        text: CUDA C++.
        name: The source's name in messages.
        family: The family whose interfaces it implements.
        store: The user's cache, if any.

    Raises:
        CompileError: If it does not compile, for example because a definition contradicts the interface; line numbers
            are those of ``text``.
        PlanError: If it defines nothing that a kernel could call.
    """
    # The name becomes part of the source, which a NUL would end.
    name = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    compiled = _compile(text, name, family, store)
    module = compiled.module
    functions = [s for s in module.provides if s.kind is not SymbolKind.KERNEL]
    if not functions:
        raise PlanError(
            "the source defines nothing that a kernel could call",
            code="plan-empty-input",
            where=name,
            hint="define a non-static __device__ function; a template needs an explicit instantiation",
        )
    symbols = UserSymbols(name, tuple(functions), module.requires)
    return UserInput(symbols, compiled.identity, link_images(compiled, name))


def link_images(compiled: UserCode, name: str, *, has_inline: bool = True) -> Images:
    """Return what is linked of compiled code in each mode; ``name`` is its name in messages."""
    return (
        ("lto", lambda: LinkInput(InputKind.LTOIR, compiled.ltoir, name, has_inline)),
        ("ptx", lambda: LinkInput(InputKind.PTX, compiled.ptx.encode(), name, has_inline)),
    )


def base_architecture(family: FamilyRecord) -> Architecture:
    """Return the architecture for callers' code: the lowest base, which links upward like the fragments.

    Raises:
        PlanError: If an interface means something else there than in fragments.
    """
    if family.differs:
        raise PlanError(
            f"an interface of {family.name} means something else in callers' code than in fragments: {family.differs}",
            code="plan-interface-text",
            hint="add a fragment to the family; or ask its author for an interface that does not depend on this",
        )
    return lowest_base(family.architectures)


def _compile(text: str, name: str, family: FamilyRecord, store: CacheDir | None) -> UserCode:
    if conflict := next(find_conflicts(text.encode(), family.texts), None):
        raise PlanError(
            f"{conflict.kind} of {conflict.name}, which an interface of {family.name} mentions "
            f"({conflict.mention(family.texts)})",
            code="plan-interface-text",
            where=Location(name, conflict.line_in(text.encode())),
            hint="use another name: the family's kernels were compiled with the interface as it is",
        )
    whole = f"{interfaces_first(family.interfaces, name)}{text}\n".encode()
    try:
        return compile_once(whole, family.headers, base_architecture(family), family.options, store)
    except CompileError as error:
        described = diagnostics.annotate(
            error, name, Location(name), lambda file, line: Location(file, line) if file == name else None
        )
        if diagnostics.is_host_header(error.log):
            base = base_architecture(family)
            command = f"nvcc -rdc=true -fatbin -gencode arch={base.compute},code=lto_{base}"
            otherwise = f"compile it with `{command}` and pass the file's bytes to add_ltoir"
            described.hint = diagnostics.find_hint(error.log, otherwise)
        explain(described, family.texts, {name: text.encode()})
        raise described from None
    except JitltoError as error:
        locate(error, name, len(family.interfaces) + 1, Location)
        if error.code.startswith("jitlto-header-"):
            error.hint = "name a header of the family or of the toolkit in the #include, or copy the header's text"
        raise


def from_binary(data: bytes, kind: InputKind, name: str, known: Mapping[str, Symbol]) -> UserInput:
    """Take LTO-IR, relocatable PTX, a fatbin, a cubin, an object or a library.

    Of each kind of code the lowest architecture tells the symbols.

    Args:
        data, kind, name: The input.
        known: What fragments and earlier inputs define.

    Raises:
        PlanError: If it cannot be read.
    """
    if kind is InputKind.PTX:
        data = data.decode("utf-8", "replace").rstrip("\0").encode()
    item = LinkInput(kind, data, name)
    try:
        every = sorted(list_code(item), key=lambda each: each.architecture, reverse=True)
        code = {each.kind: each for each in every}
        symbols = UserSymbols(name, *join([read_symbols(code[each], known) for each in sorted(code)]))
    except JitltoError as error:
        what = f"cannot be read as {kind}: {error.what}"
        raise PlanError(what, code="plan-unreadable-input", where=name, hint=error.hint) from error
    # Code beside LTO-IR can also be linked without LTO.
    modes = ("lto",) if code.keys() == {ImageKind.LTOIR} else ("lto", "ptx")
    item = structs.replace(item, has_inline=ImageKind.LTOIR in code)
    identity = hashlib.sha256(kind.encode() + b"\0" + item.data).hexdigest()
    return UserInput(symbols, identity, tuple((mode, lambda: item) for mode in modes))


def make_stub(functions: Sequence[str], store: CacheDir | None) -> LinkInput:
    """Return LTO-IR of a kernel that takes the addresses of functions, so that a link keeps their definitions.

    Args:
        functions: Mangled names; what is no identifier is left out, since a database may hold any text.
        store: The user's cache, where there is one.

    Raises:
        ToolchainError: If NVRTC is not installed.
        CompileError: If NVRTC declares one of them itself, as it does those of the mathematical library.
    """
    names = [name for name in functions if _IDENTIFIER.fullmatch(name)]
    declarations = "".join(f'extern "C" __device__ void {name}();\n' for name in names)
    uses = "".join(f"out[{n}] = (void*)&{name};\n" for n, name in enumerate(names))
    name = f"jitlto_stub_{hashlib.sha256(declarations.encode()).hexdigest()[:16]}"  # several go into one link
    text = f'{declarations}extern "C" __global__ void {name}(void** out) {{\n{uses}}}\n'
    lowest = Architecture(min(linkable_architectures(toolkit.nvrtc_version())))  # it links for every later one
    made = compile_once(text.encode(), (), lowest, (), store)
    return LinkInput(InputKind.LTOIR, made.ltoir, "stub")
