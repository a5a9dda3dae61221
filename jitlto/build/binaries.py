"""Groups with a binary: files that were compiled elsewhere, read as callers' inputs are and stored as fragments."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from jitlto.base.errors import BuildError, JitltoError
from jitlto.base.mangling import demangle
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.bodies import hash_weak
from jitlto.cuda.compiled_code import HINT, CompiledCode, identify, join, list_code, read_symbols
from jitlto.cuda.nvjitlink import InputKind
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import (
    BINARY,
    UNKNOWN,
    Fragment,
    FragmentKey,
    Image,
    ImageKind,
    Role,
    Symbol,
    SymbolKind,
    agrees,
)

#: What the code for each architecture defines, by name.
_Found: TypeAlias = "Sequence[tuple[CompiledCode, dict[str, Symbol]]]"


def assemble_binaries(sources: RenderedFamilies, fragments: list[Fragment], blobs: dict[str, bytes]) -> None:
    """Add the fragments of files to the others of a build, and sort all by key.

    Args:
        sources: The families, with the files.
        fragments: All others, which are added to.
        blobs: The bytes of their images by SHA-256, likewise.

    Raises:
        BuildError: A file is of another kind, cannot be read, or lacks what its group's interface declares.
    """
    known = {symbol.name: symbol for fragment in fragments for symbol in fragment.provides}
    made = [(rendered, *_make_fragment(sources, rendered, data, known, blobs)) for rendered, data in sources.binaries]
    fragments.extend(fragment for _, fragment, _ in made)
    fragments.sort(key=lambda fragment: fragment.key)
    required = {symbol.name: fragment.key for fragment in reversed(fragments) for symbol in fragment.requires}
    providers = defaultdict[str, list[FragmentKey]](list)
    for fragment in fragments:
        for symbol in fragment.provides:
            providers[symbol.name].append(fragment.key)
    for rendered, _, found in made:
        declaring = sources.records[rendered.key.family].groups_declaring([rendered.key.group])
        strong = {symbol.name for _, own in found for symbol in own.values() if not symbol.weak}
        for name in sorted(required.keys() | strong):  # callers too may use what is declared
            values = dict(required[name].parameters) if name in required else {}
            is_missing = not any(agrees(key.parameters, values) for key in providers[name])
            is_its_own = is_missing and agrees(rendered.key.parameters, values)
            if declaring(name) and (is_its_own or any(name in own for _, own in found)):
                _check_defined(rendered, name, required.get(name), found, providers[name])


def _check_defined(
    rendered: RenderedSource, name: str, key: FragmentKey | None, found: _Found, elsewhere: Sequence[FragmentKey]
) -> None:
    """Check that the code for each architecture defines a symbol, and with the same layout: else BuildError."""
    lacking = next((code for code, provides in found if name not in provides), None)
    if lacking is not None:
        what = f"does not define {demangle(name)}, which {rendered.group.interface} declares"
        what += f" and {key} requires" if key else ""
        what += f", for {lacking}" if len(found) > 1 else ""
        hint = "compile it into the file, with exactly these types"
        hint = f"{elsewhere[0]} defines it: are the two files exchanged?" if elsewhere else hint
        if not any(symbol.kind is SymbolKind.FUNCTION for _, provides in found for symbol in provides.values()):
            hint = "it defines no function for other files: compile it as relocatable device code, nvcc -rdc=true"
        raise _error(rendered, what, "missing", hint)
    layouts = [(code, provides[name].layout.partition("@")[0]) for code, provides in found]
    (first, layout), *others = [each for each in layouts if each[1] != UNKNOWN] or layouts
    if (other := next((each for each in others if each[1] != layout), None)) is not None:
        what = f"defines {demangle(name)} with layout {layout} for {first}, and with layout {other[1]} for {other[0]}"
        raise _error(rendered, what, "differs", "give it the same types for every architecture")


def _make_fragment(
    sources: RenderedFamilies,
    rendered: RenderedSource,
    data: bytes,
    known: dict[str, Symbol],
    blobs: dict[str, bytes],
) -> tuple[Fragment, _Found]:
    """Return the fragment of a file, and what its code for each architecture defines; errors as for all."""
    images, bodies = list[Image](), tuple[tuple[str, str], ...]()
    has_cubins = any(family.sass for family in sources.families if family.name == rendered.key.family)
    try:
        every = list_code(identify(data, rendered.text))
        every = [each for each in every if has_cubins or each.kind is not ImageKind.SASS] or every
        read = [read_symbols(code, known) for code in every]
        for kind, architecture, isa, item, module in every:
            image, its_isa = item.data, isa if kind is ImageKind.PTX else None
            if module:
                image = b"\n" + image  # nvJitLink 12 takes no PTX out of a fatbin that begins with its first directive
                bodies = hash_weak(module)
            if item.kind not in (InputKind.FATBIN, InputKind.LIBRARY):
                image = nvfatbin.wrap(kind, image, architecture)
            sha = hashlib.sha256(image).hexdigest()
            images.append(Image(kind, architecture, sha, len(image), BINARY, nvjitlink.version(), its_isa))
            blobs[sha] = image
    except JitltoError as error:
        raise _error(rendered, f"cannot be read: {error.what}", "unreadable", error.hint or HINT) from error
    found = [(code, {symbol.name: symbol for symbol in own}) for code, (own, _) in zip(every, read, strict=True)]
    return Fragment(rendered.key, Role.DEVICE, "", (), *join(read), tuple(sorted(images)), bodies), found


def _error(rendered: RenderedSource, what: str, case: str, hint: str) -> BuildError:
    return BuildError(f"{rendered.text} {what}", code=f"build-binary-{case}", where=rendered.origin, hint=hint)
