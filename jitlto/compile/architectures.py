"""The architectures for which a source makes other code than for those below.

Two LTO-IRs of a source are compared by what they are linked to for one target, so that only differences of the source
count: PTX for two architectures differs by the compiler's own choices too. Most need no link: compilers make the same
LTO-IR of the same code for all architectures before 9.0, and for all from 10.0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from jitlto.base.errors import CompileError, LinkError
from jitlto.base.versions import Architecture
from jitlto.compile import machine_code
from jitlto.compile.architecture_tests import ArchitectureTests, find_tests, has_narrow_numbers
from jitlto.compile.compiler import CompiledSource, CompileJob, Toolchain
from jitlto.compile.machine_code import MachineCode
from jitlto.cuda import nvfatbin
from jitlto.record.fragment import ImageKind, Symbol, SymbolKind
from jitlto.record.headers import Source

_LTOIR_MAGIC = b"\xedCN\x7f"
_ARCHITECTURE = slice(26, 28)  # where LTO-IR says what it is for: 750 for compute_75

# Obstacles to a comparison.
DOES_NOT_COMPILE = "the source does not compile for a later architecture"
DOES_NOT_LINK = "the fragment does not link alone"
RENAMES = "the names of its functions contain the architecture"


@dataclass(frozen=True, slots=True)
class Variant:
    """LTO-IR, in a fatbin, for an architecture for which a source makes other code."""

    architecture: Architecture
    ltoir: bytes
    #: Machine instructions of the fragment when linked for the architecture, alone: from this LTO-IR, and from that for
    #: the architecture below.
    instructions: int
    instructions_before: int
    is_renamed: bool = False  # whether its kernels have other names, so that it cannot stand for the source's own


@dataclass(frozen=True, slots=True)
class Known:
    """What a comparison made: LTO-IR by architecture, not in fatbins, and machine code by architecture and target."""

    ltoir: dict[Architecture, bytes] = field(default_factory=dict)
    code: dict[tuple[Architecture, Architecture], MachineCode | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of :func:`compare`."""

    variants: tuple[Variant, ...]  # sorted
    reads: tuple[str, ...] = ()  # headers read by the compiles, as in CompiledSource
    obstacle: str = ""  # why nothing could be compared
    known: Known = field(default_factory=Known)


def add_variants(compiler: Toolchain, job: CompileJob, compiled: CompiledSource) -> CompiledSource:
    """Add LTO-IR to a compiled source for each architecture of ``job.tests`` for which its code differs."""
    if job.tests is None:
        return compiled
    tests = narrow_tests(compiler, job, compiled, job.tests)
    if not (points := points_to_compare(tests, compiled)):
        return compiled
    job = replace(job, tests=tests)
    found = compare(compiler, job, compiled, points)
    added = ((ImageKind.LTOIR, each.architecture, each.ltoir) for each in found.variants if not each.is_renamed)
    reads = sorted({*compiled.reads, *found.reads})
    return replace(compiled, images=tuple(sorted((*compiled.images, *added))), reads=tuple(reads))


def compare(
    compiler: Toolchain,
    job: CompileJob,
    compiled: CompiledSource,
    points: Sequence[Architecture],
    *,
    latest: bool = False,
    renamed: bool = False,
    known: Known | None = None,
) -> Comparison:
    """Find the architectures among ``points``, which are sorted, for which a source makes other code than below.

    Args:
        compiler, job, compiled, points: What to compare.
        latest: Whether to compare the latest architecture that the source compiles for with the source's own only.
        renamed: Whether to compare code whose kernels' names contain the architecture.
        known: What an earlier comparison of the same source made.
    """
    return _Comparer(compiler, job, compiled, latest, renamed, known or Known()).compare(points)


def narrow_tests(
    compiler: Toolchain, job: CompileJob, compiled: CompiledSource, tests: ArchitectureTests
) -> ArchitectureTests:
    """Return the tests in what a compile has read, if the job lacks headers that the compiler finds by itself."""
    if compiler.header_roots():
        return tests
    own = job.source.headers
    contents = {name: own[name] if name in own else compiler.external_text(name) for name in compiled.reads}
    headers = {name: content for name, content in contents.items() if content is not None}
    candidates = (compiled.target, *tests.architectures)
    return find_tests(Source(job.source.text, headers), own, candidates, job.options)


def points_to_compare(tests: ArchitectureTests, compiled: CompiledSource) -> tuple[Architecture, ...]:
    """Return the architectures to compare: those above the source's own for which its code may differ."""
    ptx = next((data for kind, _, data in compiled.images if kind is ImageKind.PTX), None)
    possible = tests.architectures if ptx is None or has_narrow_numbers(ptx) else tests.beside_numbers
    return tuple(a for a in possible if a > compiled.target)


@dataclass
class _Comparer:
    compiler: Toolchain
    job: CompileJob
    compiled: CompiledSource
    latest: bool
    renamed: bool
    known: Known
    _ltoir: dict[Architecture, bytes] = field(default_factory=dict, init=False)  # in fatbins
    _unusable: dict[Architecture, str] = field(default_factory=dict, init=False)  # and why
    _reads: set[str] = field(default_factory=set, init=False)

    def compare(self, points: Sequence[Architecture]) -> Comparison:
        images = self.compiled.images
        self._ltoir |= {a: data for kind, a, data in images if kind is ImageKind.LTOIR and not a.suffix}
        declared = set(self._ltoir)
        if self.latest:
            below = self._compare_latest(points, max(declared))
        else:
            below = {later: earlier for earlier, later in self._find_differing(sorted({*declared, *points}))}
        variants = []
        for architecture in sorted(below.keys() - declared):
            own, before = self._link(architecture, architecture), self._link(below[architecture], architecture)
            if own and before:
                counts = own.instructions, before.instructions
                is_renamed = self._names_differ(architecture)
                variants.append(Variant(architecture, self._ltoir[architecture], *counts, is_renamed))
        return Comparison(tuple(variants), tuple(sorted(self._reads)), self._obstacle(declared), self.known)

    def _obstacle(self, declared: set[Architecture]) -> str:
        """Return why no architecture was compared; empty if one was."""
        if self._ltoir.keys() - declared - self._unusable.keys():
            return ""
        return next(iter(self._unusable.values()), "")

    def _compare_latest(self, points: Sequence[Architecture], base: Architecture) -> dict[Architecture, Architecture]:
        """Return the last point for which the source compiles, with the base, if their code differs."""
        for point in reversed(points):
            if point > base and self._is_usable(point):
                return {} if self._is_same(base, point) else {point: base}
            if self._unusable.get(point) != DOES_NOT_COMPILE:
                break
        return {}

    def _find_differing(self, points: list[Architecture]) -> list[tuple[Architecture, Architecture]]:
        """Return the neighbours among ``points`` whose code differs; the first point is usable."""
        while len(points) > 1 and not self._is_usable(points[-1]):
            points = points[:1] if self._unusable[points[-1]] == RENAMES else points[:-1]
        middle = len(points) // 2
        if len(points) == 1:
            return []
        is_exact = self.job.tests is not None and self.job.tests.exact
        if (len(points) == 2 or not is_exact) and self._is_same(points[0], points[-1]):
            return []
        if len(points) == 2:
            return [(points[0], points[1])]
        if not self._is_usable(points[middle]):
            return self._find_differing(points[:middle] + points[middle + 1 :])
        return self._find_differing(points[: middle + 1]) + self._find_differing(points[middle:])

    def _is_usable(self, architecture: Architecture) -> bool:
        """Return whether the source compiles for an architecture, and links; with the same names, if they matter."""
        if architecture in self._unusable:
            return False
        if architecture not in self._ltoir:
            if not self.renamed and self._names_differ(architecture):
                self._unusable[architecture] = RENAMES
                return False
            try:
                bare = self._compile(architecture)
            except CompileError:
                self._unusable[architecture] = DOES_NOT_COMPILE
                return False
            self._ltoir[architecture] = nvfatbin.wrap_ltoir(bare, architecture)
            others = self._ltoir.keys() - self._unusable.keys() - {architecture}
            if not any(self._has_same_content(other, architecture) for other in others):
                self._check_link(architecture)
        return architecture not in self._unusable

    def _compile(self, architecture: Architecture) -> bytes:
        if architecture not in self.known.ltoir:
            self.known.ltoir[architecture], reads = self.compiler.compile_ltoir(self.job, architecture)
            self._reads.update(reads)
        return self.known.ltoir[architecture]

    def _check_link(self, architecture: Architecture) -> None:
        own = self._link(architecture, architecture)
        kernels = {symbol.name for symbol in self.compiled.provides if symbol.kind is SymbolKind.KERNEL}
        if own is None:
            alone = self._link(self.compiled.target, architecture)
            self._unusable[architecture] = DOES_NOT_LINK if alone is None else RENAMES
        elif not kernels <= own.functions and not self._names_differ(architecture):
            self._unusable[architecture] = RENAMES

    def _names_differ(self, architecture: Architecture) -> bool:
        symbols = (*self.compiled.provides, *self.compiled.requires)
        return rename(symbols, self.compiled.target, architecture) != symbols

    def _is_same(self, below: Architecture, architecture: Architecture) -> bool:
        if self._has_same_content(below, architecture):
            return True
        before, own = self._link(below, architecture), self._link(architecture, architecture)
        if before is None or own is None:
            self._unusable[architecture] = DOES_NOT_LINK
            return True
        return before.sha256 == own.sha256

    def _has_same_content(self, one: Architecture, other: Architecture) -> bool:
        """Return whether two LTO-IRs are equal but for their architecture. (Others may mean the same, too.)"""
        if other not in self.known.ltoir:
            one, other = other, one
        bare = self.known.ltoir.get(other, b"")
        if not bare.startswith(_LTOIR_MAGIC):
            return False
        # What is in a fatbin is compressed: compare in fatbins.
        return nvfatbin.wrap_ltoir(_relabel(bare, one), one) == self._ltoir[one]

    def _link(self, architecture: Architecture, target: Architecture) -> MachineCode | None:
        """Return the machine code for a target of the LTO-IR for an architecture; None if it does not link."""
        key, code = (architecture, target), self.known.code
        if key not in code:
            ltoir, compiled = self._ltoir[architecture], self.compiled
            provides, requires = (
                rename(symbols, compiled.target, architecture) for symbols in (compiled.provides, compiled.requires)
            )
            try:
                code[key] = machine_code.compile_alone(ltoir, provides, requires, compiled.isa, target)
            except LinkError:
                code[key] = None
        return code[key]


def rename(symbols: Iterable[Symbol], base: Architecture, architecture: Architecture) -> tuple[Symbol, ...]:
    """Return symbols as a compile for another architecture names them: namespaces of CUB and Thrust contain it."""
    old, new = (str(10 * each.number) for each in (base, architecture))
    namespace = re.compile(rf"(\d+)((?:(?:_V|CUB|THRUST)_\d+)?_SM_){old}")

    def change(match: re.Match[str]) -> str:
        length = int(match[1])  # of a name in a mangled name; `_NS` may follow
        if length - len(match[2] + old) not in (0, len("_NS")):
            return match[0]
        return f"{length + len(new) - len(old)}{match[2]}{new}"

    return tuple(structs.replace(symbol, name=namespace.sub(change, symbol.name)) for symbol in symbols)


def _relabel(ltoir: bytes, architecture: Architecture) -> bytes:
    """Return LTO-IR as if it were for a different architecture."""
    content = bytearray(ltoir)
    content[_ARCHITECTURE] = (10 * architecture.number).to_bytes(2, "little")
    return bytes(content)
