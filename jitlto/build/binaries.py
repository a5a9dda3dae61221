"""Groups with a binary: files that were compiled elsewhere, read as callers' inputs are and stored as fragments.

LTO-IR does not tell what it defines; nvJitLink tells it of names that it is given. So a file provides what the other
fragments of the build require of it, and a merge joins what its parts know.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import BuildError, JitltoError, UnresolvedSymbolError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture, Version
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.compatibility import linkable_architectures, newest_ptx_isa
from jitlto.cuda.elf import read_architecture, read_provided
from jitlto.cuda.nvfatbin import FatbinKind
from jitlto.cuda.nvjitlink import ARCHIVE, InputKind, LinkInput, link
from jitlto.cuda.ptx import parse_ptx
from jitlto.families.templates import RenderedSource
from jitlto.plan.user_code.inputs import find_defined, make_stub, read_ltoir
from jitlto.record.fragment import BINARY, UNKNOWN, Fragment, FragmentKey, Image, ImageKind, Role, Symbol, SymbolKind

_KINDS: dict[int, ImageKind] = {
    FatbinKind.PTX: ImageKind.PTX,
    FatbinKind.CUBIN: ImageKind.SASS,
    FatbinKind.LTOIR: ImageKind.LTOIR,
}
# LTO-IR begins with the size of its head, which is larger for sm_90a, and 10 × the number of its architecture.
_LTOIR, _HEAD, _PLAIN = b"\xed\x43\x4e\x7f", struct.Struct("<16xI6xH"), 0x28
_HINT = "name relocatable code as `nvcc -rdc=true` makes it: LTO-IR, PTX, a cubin, a fatbin or an archive of objects"

#: Kind, architecture, version of the ISA (of PTX), and bytes.
_Images: TypeAlias = "list[tuple[ImageKind, Architecture, Version, bytes]]"


def assemble_binaries(
    sources: RenderedFamilies, fragments: list[Fragment], blobs: dict[str, bytes], store: CacheDir | None
) -> None:
    """Add the fragments of files to the others of a build, and sort all by key.

    Args:
        sources: The families, with the files.
        fragments: All others, which are added to.
        blobs: The bytes of their images by SHA-256, likewise.
        store: The user's cache, if any.

    Raises:
        BuildError: A file is of another kind, cannot be read, or lacks what its group's interface declares.
    """
    made: list[Fragment] = []
    required: dict[str, tuple[Symbol, FragmentKey]] = {}
    while sources.binaries:  # one file may require what another defines
        every = [(symbol, fragment.key) for fragment in (*fragments, *made) for symbol in fragment.requires]
        if made and required.keys() == {symbol.name for symbol, _ in every}:
            break
        required = {symbol.name: (symbol, key) for symbol, key in reversed(every)}
        wanted = [required[name][0] for name in sorted(required)]
        made = [_make_fragment(sources, *each, wanted, blobs, store) for each in sources.binaries]
    fragments += made
    fragments.sort(key=lambda fragment: fragment.key)
    provided = {symbol.name for fragment in fragments for symbol in fragment.provides} if made else set()
    for rendered, _ in sources.binaries:
        declaring = sources.records[rendered.key.family].groups_declaring([rendered.key.group])
        for name, (_, key) in required.items():
            if name not in provided and declaring(name):
                what = f"does not define {demangle(name)}, which {rendered.group.interface} declares and {key} requires"
                raise _error(rendered, what, "missing", "compile it into the file, with exactly these types")


def _make_fragment(
    sources: RenderedFamilies,
    rendered: RenderedSource,
    data: bytes,
    wanted: Sequence[Symbol],
    blobs: dict[str, bytes],
    store: CacheDir | None,
) -> Fragment:
    """Return the fragment of a file, as far as symbols are wanted of it; arguments and errors as for all."""
    try:
        found, item = _read(data, rendered.text)
        provides, requires = _find_symbols(found, item, wanted, store)
    except JitltoError as error:
        what = f"cannot be read: {error.what.removeprefix('cannot be read as ')}"
        raise _error(rendered, what, "unreadable", error.hint or _HINT) from error
    has_cubins = any(family.sass for family in sources.families if family.name == rendered.key.family)
    images = []
    for kind, architecture, isa, image in [
        each for each in found if has_cubins or each[0] is not ImageKind.SASS
    ] or found:
        sha, its_isa = hashlib.sha256(image).hexdigest(), isa if kind is ImageKind.PTX else None
        images.append(Image(kind, architecture, sha, len(image), BINARY, nvjitlink.version(), its_isa))
        blobs[sha] = image
    return Fragment(rendered.key, Role.DEVICE, "", (), provides, requires, tuple(sorted(images)))


def join(one: Fragment, other: Fragment | None) -> Fragment | None:
    """Return what two databases have under one key: of a file, what either requires of it; None if they differ."""
    if one == other or other is None:
        return other
    if one.images != other.images or any(image.toolchain != BINARY for image in one.images):
        return None
    provides, requires = {*one.provides, *other.provides}, {*one.requires, *other.requires}
    return replace(one, provides=tuple(sorted(provides)), requires=tuple(sorted(requires)))


def _error(rendered: RenderedSource, what: str, case: str, hint: str) -> BuildError:
    return BuildError(f"{rendered.text} {what}", code=f"build-binary-{case}", where=rendered.origin, hint=hint)


def _read(data: bytes, name: str) -> tuple[_Images, LinkInput]:
    """Return the images of a file, each in a fatbin or all in their archive, and the file as nvJitLink reads it."""
    isa = newest_ptx_isa(nvjitlink.version())
    if parts := nvfatbin.split(data):
        reads = InputKind.FATBIN
    elif data.startswith(ARCHIVE) and (members := nvfatbin.find_fatbins(data)):
        reads, parts = InputKind.LIBRARY, [(each, isa, data) for each in set.intersection(*map(set, members))]
    else:
        if data.startswith(_LTOIR) and len(data) >= _HEAD.size:
            size, number = _HEAD.unpack_from(data)
            reads, kind, code = InputKind.LTOIR, ImageKind.LTOIR, Architecture(number // 10, "a" * (size > _PLAIN))
        elif architecture := read_architecture(data):
            reads, kind, code = InputKind.CUBIN, ImageKind.SASS, architecture
        elif b".version" not in data:
            raise JitltoError("it has no device code that is linked", hint=_HINT)
        else:
            module = parse_ptx(data.decode("utf-8", "replace").rstrip("\0"))
            reads, kind, code, isa = InputKind.PTX, ImageKind.PTX, module.target, module.isa
            data = b"\n" + data  # nvJitLink 12 takes no PTX out of a fatbin that begins with its first directive
        return [(kind, code, isa, nvfatbin.wrap(kind, data, code))], LinkInput(reads, data, name)
    images = [(_KINDS[each.kind], each.architecture, isa, part) for each, isa, part in parts if each.kind in _KINDS]
    return images, LinkInput(reads, data, name)


def _find_symbols(
    images: _Images, item: LinkInput, wanted: Sequence[Symbol], store: CacheDir | None
) -> tuple[tuple[Symbol, ...], tuple[Symbol, ...]]:
    """Return what a file provides of wanted symbols, and what it requires for these; of PTX and cubins all."""
    if item.kind is InputKind.PTX:
        module = parse_ptx(item.data.decode("utf-8", "replace").rstrip("\0"))
        return module.provides, module.requires
    if item.kind is InputKind.CUBIN:
        missing = nvjitlink.find_undefined(item.data)
        return read_provided(item.data), tuple(Symbol(name, SymbolKind.FUNCTION, UNKNOWN) for name in missing)
    by_kind = {kind: architecture for kind, architecture, *_ in images}
    if ImageKind.LTOIR in by_kind and (found := read_ltoir(item, wanted, store)):
        defines = tuple(sorted(find_defined(found, {symbol.name for symbol in wanted})))
        kept = read_ltoir(item, defines, store)
        return defines, kept.requires if kept else ()
    target = by_kind.get(ImageKind.SASS, Architecture(max(linkable_architectures(nvjitlink.version()))))

    def undefined(names: Iterable[str]) -> tuple[str, ...]:
        try:
            link([item, make_stub([*names], store)], target, ["-lto"])
        except UnresolvedSymbolError as error:
            return error.symbols
        return ()

    functions = {symbol.name for symbol in wanted if symbol.kind is SymbolKind.FUNCTION}
    defined = sorted(functions.difference(undefined(sorted(functions))))
    both = defined, undefined(defined)
    provides, requires = (tuple(Symbol(name, SymbolKind.FUNCTION, UNKNOWN) for name in names) for names in both)
    return provides, requires
