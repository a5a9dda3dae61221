"""The architectures for which a source makes other code than for those below.

Two LTO-IRs of a source are compared by what they are linked to for one target, so that only differences of the source
count: PTX for two architectures differs by the compiler's own choices too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jitlto.build.compilers.base import CompiledSource, CompileJob, Toolchain
from jitlto.cuda import machine_code
from jitlto.cuda.machine_code import MachineCode
from jitlto.errors import CompileError, LinkError
from jitlto.model.architecture_tests import ArchitectureTests, has_narrow_numbers
from jitlto.model.fragment import ImageKind, SymbolKind
from jitlto.model.versions import Architecture

_LTOIR_MAGIC = b"\xedCN\x7f"
_ARCHITECTURE = slice(26, 28)  # where LTO-IR says what it is for


@dataclass(frozen=True, slots=True)
class Variant:
    """LTO-IR, in a fatbin, for an architecture for which a source makes other code."""

    architecture: Architecture
    ltoir: bytes
    #: Machine instructions of the fragment when linked for the architecture, alone: from this LTO-IR, and from that for
    #: the architecture below.
    instructions: int
    instructions_before: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of :func:`compare`."""

    variants: tuple[Variant, ...]  # sorted
    reads: tuple[str, ...]  # headers read by the compiles, as in CompiledSource


def add_variants(compiler: Toolchain, job: CompileJob, compiled: CompiledSource) -> CompiledSource:
    """Add LTO-IR to a compiled source for each architecture of ``job.tests`` for which its code differs."""
    if job.tests is None or not (points := points_to_compare(job.tests, compiled)):
        return compiled
    found = compare(compiler, job, compiled, points)
    added = ((ImageKind.LTOIR, variant.architecture, variant.ltoir) for variant in found.variants)
    reads = sorted({*compiled.reads, *found.reads})
    return replace(compiled, images=tuple(sorted((*compiled.images, *added))), reads=tuple(reads))


def compare(
    compiler: Toolchain, job: CompileJob, compiled: CompiledSource, points: Sequence[Architecture]
) -> Comparison:
    """Find the architectures among ``points``, which are sorted, for which a source makes other code than below."""
    return _Comparer(compiler, job, compiled).compare(points) if points else Comparison((), ())


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
    _ltoir: dict[Architecture, bytes] = field(default_factory=dict, init=False)
    _unusable: set[Architecture] = field(default_factory=set, init=False)
    _renames: bool = field(default=False, init=False)  # whether symbols differ by architecture
    _reads: set[str] = field(default_factory=set, init=False)
    _code: dict[tuple[Architecture, Architecture], MachineCode | None] = field(default_factory=dict, init=False)

    def compare(self, points: Sequence[Architecture]) -> Comparison:
        images = self.compiled.images
        self._ltoir |= {a: data for kind, a, data in images if kind is ImageKind.LTOIR and not a.suffix}
        declared = set(self._ltoir)
        variants = []
        below = {later: earlier for earlier, later in self._find_differing(sorted({*declared, *points}))}
        for architecture in sorted(below.keys() - declared):
            own, before = self._link(architecture, architecture), self._link(below[architecture], architecture)
            if own and before:
                counts = own.instructions, before.instructions
                variants.append(Variant(architecture, self._ltoir[architecture], *counts))
        return Comparison(tuple(variants), tuple(sorted(self._reads)))

    def _find_differing(self, points: list[Architecture]) -> list[tuple[Architecture, Architecture]]:
        """Return the neighbours among ``points`` whose code differs; the first point is usable."""
        while len(points) > 1 and not self._is_usable(points[-1]):
            points = points[:1] if self._renames else points[:-1]
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
        """Return whether the source compiles for an architecture, and provides the same symbols."""
        if architecture in self._unusable:
            return False
        if architecture not in self._ltoir:
            try:
                self._ltoir[architecture], reads = self.compiler.compile_ltoir(self.job, architecture)
            except CompileError:
                self._unusable.add(architecture)
                return False
            self._reads.update(reads)
            others = [other for other in self._ltoir if other != architecture]
            if not any(self._has_same_content(other, architecture) for other in others):
                own = self._link(architecture, architecture)
                kernels = {symbol.name for symbol in self.compiled.provides if symbol.kind is SymbolKind.KERNEL}
                if own is None or not kernels <= own.functions:
                    self._unusable.add(architecture)
                    self._renames = True
        return architecture not in self._unusable

    def _is_same(self, below: Architecture, architecture: Architecture) -> bool:
        if self._has_same_content(below, architecture):
            return True
        before, own = self._link(below, architecture), self._link(architecture, architecture)
        return before is None or own is None or before.sha256 == own.sha256

    def _has_same_content(self, one: Architecture, other: Architecture) -> bool:
        """Return whether two LTO-IRs are equal but for their architecture. (Others may mean the same, too.)"""
        contents = [_without_architecture(self._ltoir[each]) for each in (one, other)]
        return contents[0] is not None and contents[0] == contents[1]

    def _link(self, architecture: Architecture, target: Architecture) -> MachineCode | None:
        """Return the machine code for a target of the LTO-IR for an architecture; None if it does not link."""
        key = architecture, target
        if key not in self._code:
            compiled = self.compiled
            try:
                self._code[key] = machine_code.compile_alone(
                    self._ltoir[architecture], compiled.provides, compiled.requires, compiled.isa, target
                )
            except LinkError:
                self._code[key] = None
        return self._code[key]


def _without_architecture(fatbin: bytes) -> bytes | None:
    """Return the LTO-IR of a fatbin without its architecture; None if it cannot be found."""
    start = fatbin.find(_LTOIR_MAGIC)
    content = bytearray(fatbin[start:]) if start >= 0 else None
    if content is not None:
        content[_ARCHITECTURE] = bytes(2)
    return bytes(content) if content is not None else None
