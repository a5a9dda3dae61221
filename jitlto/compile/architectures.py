"""LTO-IR for the later architectures for which a source makes other code: ``archs = "auto"``.

Two LTO-IRs of a source are compared by what they are linked to for one target, so that only differences of the source
count. A source whose code is the same for the first and the last architecture, and for those of its cubins, is taken to
make it for all between.
"""

from dataclasses import replace
from functools import cache
from itertools import pairwise

from jitlto.base.errors import CompileError, LinkError
from jitlto.base.versions import Architecture, Version
from jitlto.compile.compiler import CompiledSource, CompileJob, Toolchain
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.compatibility import can_link_for
from jitlto.cuda.elf import NOBITS, PROGBITS, read_sections
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.cuda.ptx import Module, declare, define
from jitlto.record.fragment import ImageKind, SymbolKind

#: Architectures for which code is compared: each has instructions that the one before lacks.
CANDIDATES = tuple(Architecture(number) for number in (75, 80, 86, 89, 90, 100, 120))
_ENTRY = "jitlto_refers"
_INFO = ".nv.info."  # the beginning of the names of sections that hold what a function may be launched with


def comparable_architectures(base: Architecture, compiler: Version, linker: Version) -> tuple[Architecture, ...]:
    """Return a base, and the later architectures worth comparing that a compiler and nvJitLink both know."""
    known = min(compiler, linker)
    return (base, *(a for a in CANDIDATES if a.number > base.number and can_link_for(known, a)))


def add_variants(compiler: Toolchain, job: CompileJob, compiled: CompiledSource) -> CompiledSource:
    """Add LTO-IR to a compiled source for each architecture of ``job.candidates`` for which its code differs."""
    renamed = f"_SM_{10 * compiled.target.number}"  # as in namespaces of CUB
    if not job.candidates or any(renamed in symbol.name for symbol in (*compiled.provides, *compiled.requires)):
        return compiled
    made = {a: data for kind, a, data in compiled.images if kind is ImageKind.LTOIR and not a.suffix}
    reads, images = set(compiled.reads), set(compiled.images)

    @cache
    def ltoir(architecture: Architecture) -> bytes | None:
        """Compile the source for an architecture; None if it does not compile."""
        if architecture in made:
            return made[architecture]
        try:
            one = compiler.make(job, [(ImageKind.LTOIR, architecture)])
        except CompileError:
            return None
        reads.update(one.reads)
        return nvfatbin.wrap(ImageKind.LTOIR, one.images[ImageKind.LTOIR, architecture], architecture)

    @cache
    def code(architecture: Architecture, target: Architecture) -> list[bytes] | None:
        try:
            return link_alone(ltoir(architecture) or b"", compiled, target)
        except LinkError:
            return None

    def differs(below: Architecture, architecture: Architecture) -> bool:
        before, own = code(below, architecture), code(architecture, architecture)
        if before is None or own is None:
            return architecture in cubins  # nobody knows whether it means the same
        return before != own

    known = sorted({*made, *(a for a in job.candidates if a > compiled.target)})
    while ltoir(known[-1]) is None:
        known.pop()
    cubins = [each for kind, each in job.images if kind is ImageKind.SASS and each in known]
    if any(differs(known[0], each) for each in (known[-1], *cubins) if each > known[0]):
        compiling = [each for each in known if ltoir(each) is not None]
        differing = [own for below, own in pairwise(compiling) if differs(below, own)]
        images.update((ImageKind.LTOIR, each, ltoir(each) or b"") for each in differing if each not in made)
    return replace(compiled, images=tuple(sorted(images)), reads=tuple(sorted(reads)))


def link_alone(ltoir: bytes, declared: CompiledSource | Module, target: Architecture) -> list[bytes]:
    """Link the LTO-IR of one fragment, in a fatbin, and return its code, data, memory and limits of launches, sorted.

    A small module of PTX refers to all that the fragment provides, so that nothing is dropped, and defines what it
    requires. Functions that the fragment requires are therefore called, not inlined. Another module cannot refer to
    variables in shared memory, nor to templates and inline functions beside a kernel: what uses them keeps them.

    Raises:
        LinkError: If it does not link, such as because it does not define what it should provide.
    """
    stub = _make_stub(declared)
    inputs = [LinkInput(InputKind.FATBIN, ltoir, "fragment"), LinkInput(InputKind.PTX, stub.encode(), "references")]
    others = {_ENTRY, *(symbol.name for symbol in declared.requires)}
    sections = read_sections(nvjitlink.link(inputs, target, ("-lto",)).data)
    # Without names, which may contain the architecture, as those of CUB do.
    return sorted(
        each.size.to_bytes(8, "little") if each.kind == NOBITS else each.data
        for each in sections
        if (each.kind in (PROGBITS, NOBITS) or each.name.startswith(_INFO))
        and each.name.removeprefix(_INFO).removeprefix(".text.") not in others
    )


def _make_stub(declared: CompiledSource | Module) -> str:
    has_kernel = any(symbol.kind is SymbolKind.KERNEL for symbol in declared.provides)
    used = [
        symbol
        for symbol in declared.provides
        if not (symbol.kind is SymbolKind.KERNEL or symbol.layout.startswith("shared "))
        and not (has_kernel and symbol.weak and symbol.kind is SymbolKind.FUNCTION)
    ]
    lines = [f".version {declared.isa}", f".target {declared.target.sm}", ".address_size 64"]
    lines += [f".extern {declare(symbol)};" for symbol in used]
    lines += [f".visible {define(symbol)}" for symbol in declared.requires]
    stores = [f"mov.u64 %rd2, {symbol.name}; st.volatile.global.u64 [%rd1], %rd2;" for symbol in used]
    start = (f".visible .entry {_ENTRY}(.param .u64 where)", "{", ".reg .b64 %rd<3>;", "ld.param.u64 %rd1, [where];")
    return "\n".join([*lines, *start, *stores, "ret;", "}"]) + "\n"
