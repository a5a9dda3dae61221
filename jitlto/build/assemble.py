"""Create a fragment from a compiled source: find its kernel and signature, and check the symbols that it provides."""

from __future__ import annotations

import hashlib
import re

from jitlto.build.compilers.base import CompiledSource
from jitlto.build.templates import RenderedSource
from jitlto.errors import BuildError
from jitlto.model.fragment import Fragment, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.model.mangling import base_name, demangle, parameter_types
from jitlto.model.type_spelling import is_same_type
from jitlto.model.types import Parameter, find_scalar


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
        signature = _make_signature(rendered, entry, dict(compiled.kernels)[entry])
    else:
        entry, signature = "", ()
        _check_device(rendered, kernels, compiled.provides)
    images, blobs = [], {}
    for kind, architecture, data in compiled.images:
        sha = hashlib.sha256(data).hexdigest()
        isa = compiled.isa if kind is ImageKind.PTX else None
        images.append(Image(kind, architecture, sha, len(data), compiled.toolchain, compiled.version, isa))
        blobs[sha] = data
    fragment = Fragment(
        rendered.key,
        rendered.group.role,
        entry,
        signature,
        compiled.provides,
        compiled.requires,
        tuple(sorted(images, key=lambda image: (image.kind, image.architecture))),
    )
    return fragment, blobs


def _find_entry(rendered: RenderedSource, kernels: list[Symbol]) -> str:
    entry = rendered.group.entry
    candidates = [s.name for s in kernels if entry is None or base_name(s.name) == entry]
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(demangle(s.name) for s in kernels)
    if not kernels:
        what = "no __global__ function with external linkage"
        hint = "instantiate templates explicitly; remove static and anonymous namespaces from kernels"
    elif entry is None:
        what = f"several kernels: {names}"
        hint = 'choose one: entry = "<name>" in the group\'s table'
    else:
        what = f"{len(candidates) or 'no'} kernels named {entry!r} among {names}"
        hint = "entry is the kernel's name without namespaces and arguments"
    code = "build-several-kernels" if candidates else "build-no-kernel"
    raise BuildError(what, code=code, where=rendered.origin, hint=hint)


def _check_device(rendered: RenderedSource, kernels: list[Symbol], provides: tuple[Symbol, ...]) -> None:
    if kernels:
        what = f"kernel {demangle(kernels[0].name)} in a device group"
        hint = "declare the group as [entrypoint.…], or the kernel as a __device__ function"
        raise BuildError(what, code="build-unexpected-kernel", where=rendered.origin, hint=hint)
    if not provides:
        what = "no function or variable that other fragments can use"
        hint = 'static functions, __forceinline__ on an extern "C" function and templates without an instantiation '
        hint += "emit no code"
        raise BuildError(what, code="build-nothing-provided", where=rendered.origin, hint=hint)


def _make_signature(rendered: RenderedSource, kernel: str, sizes: tuple[tuple[int, int], ...]) -> tuple[Parameter, ...]:
    mangled = parameter_types(kernel)  # None: extern "C"
    declared = [_split_declaration(text, rendered) for text in rendered.params]
    if mangled == ["void"]:
        mangled = []
    types = mangled if mangled is not None else [type_ for type_, _ in declared]
    names = [name for _, name in declared] or [f"arg{number}" for number in range(len(types))]

    def error(what: str, hint: str = "correct params or the kernel", code: str = "build-params-mismatch") -> BuildError:
        return BuildError(what, code=code, where=f"{rendered.origin}, kernel {demangle(kernel)}", hint=hint)

    if len(types) != len(sizes) or len(names) != len(types):
        untyped = '; the name of an extern "C" kernel has no types' if mangled is None else ""
        what = f"the kernel takes {len(sizes)} parameters, but params declares {len(declared)}{untyped}"
        raise error(what, 'list every parameter of the kernel in params, in order, as "type name"')
    if len(set(names)) != len(names):
        what = f"duplicate name in params: {', '.join(names)}"
        raise error(what, "give each parameter a different name", "build-params-duplicate")
    for (type_, name), actual in zip(declared, types, strict=False):
        if not is_same_type(type_, actual):
            raise error(f"parameter {name!r} is declared as {type_}, but the kernel takes {actual}")
    for type_, name, (size, _) in zip(types, names, sizes, strict=True):
        known = find_scalar(type_)
        expected = 8 if type_.rstrip().endswith(("*", "&")) else known.size if known else size
        if expected != size:
            raise error(f"parameter {name!r} of type {type_} has {expected} bytes, but the kernel takes {size}")
    return tuple(Parameter(name, type_, *layout) for name, type_, layout in zip(names, types, sizes, strict=True))


def _split_declaration(text: str, rendered: RenderedSource) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(.+?[\s*&])\s*([A-Za-z_]\w*)\s*", text, re.S)
    if not match:
        hint = 'write "type name", such as "const float* dataset"'
        raise BuildError(f"invalid params entry {text!r}", code="build-params-syntax", where=rendered.origin, hint=hint)
    return match[1].strip(), match[2]
