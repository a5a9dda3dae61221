"""From a compiled source to a fragment: which kernel it holds, with which signature, and what it provides."""

from __future__ import annotations

import hashlib
import re

from jitlto.build.compilers.base import CompiledSource
from jitlto.build.templates import RenderedSource
from jitlto.errors import BuildError
from jitlto.model.fragment import Fragment, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.model.mangling import base_name, demangle, parameter_types
from jitlto.model.type_spelling import same_type
from jitlto.model.types import Parameter, scalar


def assemble(rendered: RenderedSource, compiled: CompiledSource) -> tuple[Fragment, dict[str, bytes]]:
    """Make the fragment of one compiled source.

    Parameters
    ----------
    rendered : RenderedSource
        The source.
    compiled : CompiledSource
        What it became.

    Returns
    -------
    Fragment, dict of str to bytes
        The fragment, and the bytes of its images by SHA-256.

    Raises
    ------
    BuildError
        If the source does not hold what its group's role promises, or the declared ``params`` contradict it.
    """
    kernels = [s for s in compiled.provides if s.kind is SymbolKind.KERNEL]
    if rendered.group.role is Role.ENTRYPOINT:
        entry = _entry(rendered, kernels)
        signature = _signature(rendered, entry, dict(compiled.kernels)[entry])
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


def _entry(rendered: RenderedSource, kernels: list[Symbol]) -> str:
    wanted = rendered.group.entry
    named = [s for s in kernels if wanted is None or base_name(s.name) == wanted]
    if len(named) == 1:
        return named[0].name
    found = ", ".join(demangle(s.name) for s in kernels) or "none"
    if not kernels:
        what = "defines no __global__ function that others see"
        hint = (
            "a template that is never instantiated leaves nothing: add an explicit instantiation; a kernel that is "
            "static or in an anonymous namespace stays hidden: take it out"
        )
    elif wanted is not None:
        what = f"has {len(named)} kernels called {wanted!r}; it defines {found}"
        hint = "entry is the kernel's name without namespaces and arguments"
    else:
        what = f"defines {len(kernels)} kernels: {found}"
        hint = 'say which is meant: entry = "<name>" in the group\'s table'
    raise BuildError(what, where=rendered.origin, hint=hint)


def _check_device(rendered: RenderedSource, kernels: list[Symbol], provides: tuple[Symbol, ...]) -> None:
    if kernels:
        raise BuildError(
            f"defines a kernel, {demangle(kernels[0].name)}, in a device group",
            where=rendered.origin,
            hint="declare the group as [entrypoint.…], or make it a __device__ function",
        )
    if not provides:
        raise BuildError(
            "defines nothing that another fragment could call",
            where=rendered.origin,
            hint='static functions, __forceinline__ on an extern "C" function and templates that are never '
            "instantiated leave nothing behind",
        )


def _signature(rendered: RenderedSource, kernel: str, sizes: tuple[tuple[int, int], ...]) -> tuple[Parameter, ...]:
    spelled = parameter_types(kernel)
    declared = [_split(text, rendered) for text in rendered.params]
    if spelled == ["void"]:
        spelled = []
    types = spelled if spelled is not None else [type_ for type_, _ in declared]
    names = [name for _, name in declared] or [f"arg{number}" for number in range(len(types))]
    where = f"{rendered.origin}, kernel {demangle(kernel)}"
    if len(types) != len(sizes) or len(names) != len(types):
        untold = '; the name of an extern "C" kernel tells no types' if spelled is None else ""
        raise BuildError(
            f"takes {len(sizes)} parameters, but params declares {len(declared)}{untold}",
            where=where,
            hint='list every parameter of the kernel in params, in order, as "type name"',
        )
    for position, (type_, name) in enumerate(declared):
        if not same_type(type_, types[position]):
            raise BuildError(
                f"parameter {name!r} is declared as {type_}, but the kernel takes {types[position]}",
                where=where,
                hint="params and the kernel must agree",
            )
    for type_, name, (size, _) in zip(types, names, sizes, strict=True):
        known = scalar(type_)
        expected = 8 if type_.rstrip().endswith(("*", "&")) else known.size if known else size
        if expected != size:
            raise BuildError(
                f"parameter {name!r} of type {type_} has {expected} bytes, but the kernel takes {size}",
                where=where,
                hint="params and the kernel must agree",
            )
    if len(set(names)) != len(names):
        raise BuildError(f"params uses a name twice: {', '.join(names)}", where=where, hint="give each its own name")
    return tuple(
        Parameter(name, type_, size, alignment)
        for name, type_, (size, alignment) in zip(names, types, sizes, strict=True)
    )


def _split(text: str, rendered: RenderedSource) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(.+?[\s*&])\s*([A-Za-z_]\w*)\s*", text, re.S)
    if not match:
        raise BuildError(
            f"params entry {text!r} is not «type name»", where=rendered.origin, hint='write e.g. "const float* dataset"'
        )
    return match[1].strip(), match[2]
