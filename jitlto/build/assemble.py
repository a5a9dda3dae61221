"""Create a fragment from a compiled source: find its kernel and signature, and check the symbols that it provides."""

import hashlib
import re
from functools import lru_cache

from jitlto.base.diagnostic import Diagnostic
from jitlto.base.errors import BuildError
from jitlto.base.layouts import canonical_spelling, is_built_in, is_same_type, is_supported
from jitlto.base.mangling import base_name, demangle
from jitlto.base.types import UNKNOWN_TYPE, Parameter, find_scalar
from jitlto.compile.compiler import CompiledSource
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import Fragment, Image, ImageKind, Role, Symbol, SymbolKind


def assemble(rendered: RenderedSource, compiled: CompiledSource) -> tuple[Fragment, dict[str, bytes]]:
    """Create the fragment of one compiled source.

    Returns:
        The fragment, and the bytes of its images by SHA-256.

    Raises:
        BuildError: If the source does not define the symbols that its group's role requires, or contradicts the
            declared ``params``.
    """
    kernels = [symbol for symbol in compiled.provides if symbol.kind is SymbolKind.KERNEL]
    if rendered.group.role is Role.ENTRYPOINT:
        entry = _find_entry(rendered, kernels)
        signature = _make_signature(rendered, entry, compiled)
    else:
        entry, signature = "", ()
        _check_device(rendered, kernels, compiled.provides)
    images, blobs = [], {}
    for kind, architecture, data in compiled.images:
        sha = hashlib.sha256(data).hexdigest()
        isa = compiled.isa if kind is ImageKind.PTX else None
        images.append(Image(kind, architecture, sha, len(data), compiled.toolchain, compiled.version, isa))
        blobs[sha] = data
    made_of = compiled.provides, compiled.requires, tuple(sorted(images)), compiled.bodies
    return Fragment(rendered.key, rendered.group.role, entry, signature, *made_of), blobs


def _find_entry(rendered: RenderedSource, kernels: list[Symbol]) -> str:
    entry = rendered.group.entry
    candidates = [s.name for s in kernels if entry is None or base_name(s.name) == entry]
    if len(candidates) == 1:
        return candidates[0]
    named = "" if entry is None else f" named {entry!r}"
    what = f"{len(candidates) or 'no'} kernels{named} among {', '.join(demangle(s.name) for s in kernels)}"
    hint = 'choose one: entry = "<name>" in the group\'s table, without namespaces and arguments'
    where = rendered.declared("entry") if entry else rendered.find("__global__")
    if not kernels:
        where = rendered.find("__global__")
        what = "no __global__ function with external linkage"
        hint = "instantiate templates explicitly; remove static and anonymous namespaces from kernels"
    code = "build-several-kernels" if candidates else "build-no-kernel"
    raise BuildError(what, code=code, where=where, hint=hint)


def _check_device(rendered: RenderedSource, kernels: list[Symbol], provides: tuple[Symbol, ...]) -> None:
    if kernels:
        what = f"kernel {demangle(kernels[0].name)} in a device group"
        hint = "declare the group as [entrypoint.…], or the kernel as a __device__ function"
        raise BuildError(what, code="build-unexpected-kernel", where=rendered.find("__global__"), hint=hint)
    if not provides:
        what = "no function or variable that other fragments can use"
        hint = 'static functions, __forceinline__ on an extern "C" function and templates without an instantiation '
        hint += "emit no code"
        raise BuildError(what, code="build-nothing-provided", where=rendered.find("__device__"), hint=hint)


def _make_signature(rendered: RenderedSource, kernel: str, compiled: CompiledSource) -> tuple[Parameter, ...]:
    """Return a kernel's parameters: types from the compiler, names from ``params`` or else from its definition."""
    sizes = dict(compiled.kernels)[kernel]
    found = dict(compiled.parameters).get(kernel, ((None, None),) * len(sizes))
    layout = next(symbol.layout for symbol in compiled.provides if symbol.name == kernel)
    kinds = layout.rpartition("(")[2].rstrip(")").split(",")  # a number for what is taken as such
    is_c = not kernel.startswith("_Z")
    actual = [type_ for _, type_ in found]
    declared = [_split_declaration(text, rendered) for text in rendered.params]
    names = [name for _, name in declared] or [name or f"arg{n}" for n, (name, _) in enumerate(found)]
    counts = f"the kernel takes {len(sizes)} parameters, but params declares {len(declared)}"

    def error(
        what: str, hint: str = "correct params or the kernel", code: str = "build-params-mismatch", number: int = -1
    ) -> BuildError:
        where = rendered.declared("params", number) if rendered.params else rendered.declared("template")
        notes = [Diagnostic.note(rendered.find("__global__"), f"the kernel is {demangle(kernel)}")]
        return BuildError(what, code=code, where=where, hint=hint, notes=notes)

    if len(names) != len(sizes) or len(actual) != len(sizes):
        raise error(counts, "list every parameter of the kernel in params, in order, or remove params")
    if len(set(names)) != len(names):
        what = f"duplicate name in params: {', '.join(names)}"
        raise error(what, "give each parameter a different name", "build-params-duplicate")
    made: list[Parameter] = []
    for number, (name, type_) in enumerate(zip(names, actual, strict=True)):
        stated, size = declared[number][0] if declared else None, sizes[number]
        chosen = stated or type_ or ("" if is_c else UNKNOWN_TYPE)
        if not chosen:
            what = f'{counts}; the type of {name!r} is not known, for the name of an extern "C" kernel has no types'
            raise error(what, 'list every parameter of the kernel in params, in order, as "type name"')
        if type_ and stated and not _may_declare(stated, type_, is_c=is_c):
            raise error(f"parameter {name!r} is declared as {stated}, but the kernel takes {type_}", number=number)
        known = find_scalar(chosen)
        expected = 8 if chosen.rstrip().endswith(("*", "&")) else known.size if known else size[0]
        if expected != size[0]:
            what = f"parameter {name!r} of type {chosen} has {expected} bytes, but the kernel takes {size[0]}"
            raise error(what, number=number)
        if type_ and (stated is None or is_same_type(stated, type_)):
            chosen = type_  # the compiler's, unless params narrows it
        is_number = number < len(kinds) and kinds[number].isdigit()
        chosen = f"enum {chosen}" if is_number and _is_name(chosen) else chosen
        made.append(Parameter(name, chosen, *size))
    return tuple(made)


@lru_cache(maxsize=4096)  # the kernels of a build share their types
def _is_name(type_name: str) -> bool:
    """Return whether a type is one with a name: an enum, if a kernel takes it as a number."""
    is_known = type_name == UNKNOWN_TYPE or type_name.startswith("enum ") or is_built_in(type_name)
    return not is_known and is_supported(type_name)


def _may_declare(declared: str, actual: str, *, is_c: bool) -> bool:
    """Return whether ``params`` may declare a type for a parameter: its own, or a pointer to something for ``void*``.

    The text of an ``extern "C"`` kernel tells types by names that may stand for others.
    """
    if is_same_type(declared, actual):
        return True
    pointers = declared.count("*"), actual.count("*")
    real = canonical_spelling(actual).rstrip("*").removesuffix(" const").strip()
    if real == "void" and pointers == (1, 1):
        return "const" in declared or "const" not in actual
    return is_c and pointers[0] == pointers[1] and not find_scalar(real)


def _split_declaration(text: str, rendered: RenderedSource) -> tuple[str | None, str]:
    """Return the type, None if there is none, and the name in an entry of ``params``."""
    match = re.fullmatch(r"\s*(.+?[\s*&])?\s*([A-Za-z_]\w*)\s*", text, re.S)
    if not match:
        hint = 'write a name, or a type and a name, such as "const float* dataset"'
        where = rendered.declared("params", rendered.params.index(text))
        raise BuildError(f"invalid params entry {text!r}", code="build-params-syntax", where=where, hint=hint)
    return match[1] and match[1].strip(), match[2]
