"""LTO-IR for the later architectures for which a source makes other code: ``archs = "auto"``.

Two LTO-IRs of a source are compared by what they are linked to for one target, so that only differences of the source
count. Most need no link: compilers make the same LTO-IR of the same code for all architectures before 9.0, and for all
from 10.0 on. A source whose code is the same for two architectures is taken to make it for those between them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jitlto.base.errors import CompileError, LinkError
from jitlto.base.versions import Architecture, Version
from jitlto.compile import machine_code
from jitlto.compile.compiler import CompiledSource, CompileJob, Toolchain
from jitlto.cuda import nvfatbin
from jitlto.cuda.compatibility import can_link_for
from jitlto.record.fragment import ImageKind

#: Architectures for which code is compared: each has instructions that the one before lacks.
CANDIDATES = tuple(Architecture(number) for number in (75, 80, 86, 89, 90, 100, 120))
_LTOIR_MAGIC = b"\xedCN\x7f"
_ARCHITECTURE = slice(26, 28)  # where LTO-IR says what it is for: 750 for compute_75


def comparable_architectures(base: Architecture, compiler: Version, linker: Version) -> tuple[Architecture, ...]:
    """Return a base, and the later architectures worth comparing that a compiler and nvJitLink both know."""
    known = min(compiler, linker)
    return (base, *(a for a in CANDIDATES if a.number > base.number and can_link_for(known, a)))


def add_variants(compiler: Toolchain, job: CompileJob, compiled: CompiledSource) -> CompiledSource:
    """Add LTO-IR to a compiled source for each architecture of ``job.candidates`` for which its code differs."""
    renamed = f"_SM_{10 * compiled.target.number}"  # as in namespaces of CUB
    if not job.candidates or any(renamed in symbol.name for symbol in (*compiled.provides, *compiled.requires)):
        return compiled
    images = {a: data for kind, a, data in compiled.images if kind is ImageKind.LTOIR and not a.suffix}
    comparer = _Comparer(compiler, job, compiled, dict(images))
    later = (a for a in job.candidates if a > compiled.target)
    added = comparer.find_differing(sorted({*images, *later})) - images.keys()
    variants = ((ImageKind.LTOIR, a, comparer.ltoir[a]) for a in added)
    reads = sorted({*compiled.reads, *comparer.reads})
    return replace(compiled, images=tuple(sorted((*compiled.images, *variants))), reads=tuple(reads))


@dataclass
class _Comparer:
    compiler: Toolchain
    job: CompileJob
    compiled: CompiledSource
    ltoir: dict[Architecture, bytes]  # in fatbins
    reads: set[str] = field(default_factory=set)
    _bare: dict[Architecture, bytes] = field(default_factory=dict)
    _code: dict[tuple[Architecture, Architecture], str | None] = field(default_factory=dict)

    def find_differing(self, points: Sequence[Architecture]) -> set[Architecture]:
        """Return those of some architectures that differ from the one below; of the first there is LTO-IR."""
        while len(points) > 1 and not self._compile(points[-1]):
            points = points[:-1]
        if len(points) == 1 or self._is_same(points[0], points[-1]):
            return set()
        if len(points) == 2:
            return {points[1]}
        middle = len(points) // 2
        if not self._compile(points[middle]):
            return self.find_differing([*points[:middle], *points[middle + 1 :]])
        return self.find_differing(points[: middle + 1]) | self.find_differing(points[middle:])

    def _compile(self, architecture: Architecture) -> bool:
        """Return whether the source compiles for an architecture."""
        if architecture not in self.ltoir:
            try:
                bare, reads = self.compiler.compile_ltoir(self.job, architecture)
            except CompileError:
                bare, reads = b"", ()
            self._bare[architecture] = bare
            self.reads.update(reads)
            self.ltoir[architecture] = nvfatbin.wrap_ltoir(bare, architecture) if bare else b""
        return bool(self.ltoir[architecture])

    def _is_same(self, below: Architecture, architecture: Architecture) -> bool:
        """Return whether the code is the same, or cannot be compared, because the fragment does not link alone."""
        if self._has_same_content(below, architecture):
            return True
        before, own = self._link(below, architecture), self._link(architecture, architecture)
        return before is None or own is None or before == own

    def _has_same_content(self, below: Architecture, architecture: Architecture) -> bool:
        """Return whether two LTO-IRs are equal but for their architecture. (Others may mean the same, too.)"""
        content = bytearray(self._bare.get(architecture, b""))
        if not content.startswith(_LTOIR_MAGIC):
            return False
        content[_ARCHITECTURE] = (10 * below.number).to_bytes(2, "little")
        return nvfatbin.wrap_ltoir(bytes(content), below) == self.ltoir[below]  # it is compressed there

    def _link(self, architecture: Architecture, target: Architecture) -> str | None:
        """Return a hash of what the LTO-IR for an architecture is linked to alone; None if it does not link."""
        if (architecture, target) not in self._code:
            made = self.compiled
            try:
                code = machine_code.hash_alone(self.ltoir[architecture], made.provides, made.requires, made.isa, target)
            except LinkError:
                code = None
            self._code[architecture, target] = code
        return self._code[architecture, target]
