"""From a compiled source to a fragment: which kernel it holds, with which signature, and what it provides."""

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

_MISMATCH = "build-params-mismatch"


def assemble(rendered: RenderedSource, compiled: CompiledSource) -> tuple[Fragment, dict[str, bytes]]:
    """Make the fragment of one compiled source.

    Returns:
        The fragment, and the bytes of its images by SHA-256.

    Raises:
        BuildError: If the source does not define what its group's role promises, or the declared ``params`` contradict
            it.
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
        compiled.weak,
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
        raise BuildError(
            "no __global__ function with external linkage",
            code="build-no-kernel",
            where=rendered.origin,
            hint="instantiate a template explicitly; take a kernel out of an anonymous namespace, or drop its static",
        )
    if entry is None:
        raise BuildError(
            f"several kernels: {names}",
            code="build-several-kernels",
            where=rendered.origin,
            hint='choose one: entry = "<name>" in the group\'s table',
        )
    raise BuildError(
        f"{len(candidates) or 'no'} kernels named {entry!r} among {names}",
        code="build-several-kernels" if candidates else "build-no-kernel",
        where=rendered.origin,
        hint="entry is the kernel's name without namespaces and arguments",
    )


def _check_device(rendered: RenderedSource, kernels: list[Symbol], provides: tuple[Symbol, ...]) -> None:
    if kernels:
        raise BuildError(
            f"kernel {demangle(kernels[0].name)} in a device group",
            code="build-unexpected-kernel",
            where=rendered.origin,
            hint="declare the group as [entrypoint.…], or make it a __device__ function",
        )
    if not provides:
        raise BuildError(
            "nothing that another fragment could call",
            code="build-nothing-provided",
            where=rendered.origin,
            hint='static functions, __forceinline__ on an extern "C" function and templates without an instantiation '
            "emit no code",
        )


def _make_signature(rendered: RenderedSource, kernel: str, sizes: tuple[tuple[int, int], ...]) -> tuple[Parameter, ...]:
    mangled = parameter_types(kernel)  # None: extern "C"
    declared = [_split_declaration(text, rendered) for text in rendered.params]
    if mangled == ["void"]:
        mangled = []
    types = mangled if mangled is not None else [type_ for type_, _ in declared]
    names = [name for _, name in declared] or [f"arg{number}" for number in range(len(types))]
    where = f"{rendered.origin}, kernel {demangle(kernel)}"
    if len(types) != len(sizes) or len(names) != len(types):
        untyped = '; the name of an extern "C" kernel has no types' if mangled is None else ""
        raise BuildError(
            f"the kernel takes {len(sizes)} parameters, but params declares {len(declared)}{untyped}",
            code=_MISMATCH,
            where=where,
            hint='list every parameter of the kernel in params, in order, as "type name"',
        )
    if len(set(names)) != len(names):
        raise BuildError(
            f"duplicate name in params: {', '.join(names)}",
            code="build-params-duplicate",
            where=where,
            hint="give each parameter a name of its own",
        )
    for (type_, name), actual in zip(declared, types, strict=False):
        if not is_same_type(type_, actual):
            raise BuildError(
                f"parameter {name!r} is declared as {type_}, but the kernel takes {actual}",
                code=_MISMATCH,
                where=where,
                hint="correct params or the kernel",
            )
    for type_, name, (size, _) in zip(types, names, sizes, strict=True):
        known = find_scalar(type_)
        expected = 8 if type_.rstrip().endswith(("*", "&")) else known.size if known else size
        if expected != size:
            raise BuildError(
                f"parameter {name!r} of type {type_} has {expected} bytes, but the kernel takes {size}",
                code=_MISMATCH,
                where=where,
                hint="correct params or the kernel",
            )
    return tuple(
        Parameter(name, type_, size, alignment)
        for name, type_, (size, alignment) in zip(names, types, sizes, strict=True)
    )


def _split_declaration(text: str, rendered: RenderedSource) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(.+?[\s*&])\s*([A-Za-z_]\w*)\s*", text, re.S)
    if not match:
        raise BuildError(
            f"invalid params entry {text!r}",
            code="build-params-syntax",
            where=rendered.origin,
            hint='write "type name", such as "const float* dataset"',
        )
    return match[1].strip(), match[2]
