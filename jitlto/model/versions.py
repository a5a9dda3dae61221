"""Rules of compatibility: LTO-IR, PTX, nvJitLink, architectures and drivers.

Sources of the rules: NVIDIA's «CUDA 12.0 Compiler Support for Runtime LTO Using nvJitLink Library» (LTO-IR links within
a major release, with an nvJitLink at least as new as the compiler; across majors PTX or SASS is linked), the nvJitLink
reference, the PTX ISA's release history (which PTX version came with which toolkit), and NVIDIA's «CUDA Compatibility»
(which driver loads what; PTX is outside minor-version compatibility).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jitlto.errors import JitltoError


class Version(NamedTuple):
    """A release ``major.minor`` of a toolkit component or of the PTX ISA."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``major.minor``; what follows is ignored."""
        match = re.match(r"(\d+)\.(\d+)", text)
        if not match:
            raise JitltoError(f"invalid version {text!r}", code="jitlto-version", hint="write it as 12.9")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Architecture(NamedTuple):
    """A compute architecture: its number (90 for compute capability 9.0) and its suffix (``a``, ``f`` or none)."""

    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``90``, ``90a``, ``sm_90a`` or ``compute_90a``.

        Raises:
            JitltoError: If ``text`` is none of these.
        """
        match = re.fullmatch(r"(?:(?:sm|compute|lto)_)?(\d{2,3})([af]?)", text.strip())
        if not match:
            raise JitltoError(
                f"invalid architecture {text!r}",
                code="jitlto-architecture",
                hint="write it as sm_90, sm_90a or sm_100f",
            )
        return cls(int(match[1]), match[2])

    @property
    def sm(self) -> str:
        """The name of the real architecture, ``sm_90``."""
        return f"sm_{self}"

    @property
    def compute(self) -> str:
        """The name of the virtual architecture, ``compute_90``."""
        return f"compute_{self}"

    def __str__(self) -> str:
        return f"{self.number}{self.suffix}"


def runs_on(base: Architecture, target: Architecture) -> bool:
    """Whether code compiled for the virtual architecture ``base`` may be linked for ``target``.

    Plain code links upward to every later architecture. Architecture-specific code (``a``) stays on its own, and
    family-specific code (``f``) within the family, which is the compute capability's major number.
    """
    if base.suffix == "a":
        return target == base
    if base.suffix == "f":
        same_family = base.number // 10 == target.number // 10
        return same_family and base.number <= target.number and target.suffix != ""
    return base.number <= target.number


def ltoir_links(compiler: Version, linker: Version) -> bool:
    """Whether LTO-IR made by ``compiler`` links with the nvJitLink of version ``linker``."""
    return compiler.major == linker.major and compiler <= linker


# PTX ISA versions lag their toolkit's minor in two places only: 12.6 brought none, and 12.7 was never released as one.
_PTX_ISA_12 = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 8: 7, 9: 8}


def newest_ptx_isa(toolkit: Version) -> Version:
    """Return the newest PTX ISA version that toolkit ``toolkit`` reads (CUDA 12 reads up to 8.8, 13.n reads 9.n)."""
    if toolkit.major == 12:
        return Version(8, _PTX_ISA_12.get(toolkit.minor, 8))
    return Version(toolkit.major - 4, toolkit.minor)


def oldest_toolkit(isa: Version) -> Version:
    """Return the oldest toolkit, from 12.0, that reads PTX ISA ``isa``: the inverse of :func:`newest_ptx_isa`."""
    if isa.major >= 9:
        return Version(isa.major + 4, isa.minor)
    return next((Version(12, n) for n, last in sorted(_PTX_ISA_12.items()) if (8, last) >= isa), Version(13, 0))


def cubin_loads(linker: Version, driver: Version) -> bool:
    """Whether a driver for CUDA ``driver`` loads a cubin that the nvJitLink of version ``linker`` made.

    One of the same major does, older or newer (minor-version compatibility), and one of a later major (backward
    compatibility). For the driver of a ``cuda-compat`` package its own version counts, not the kernel module's.
    """
    return linker.major <= driver.major


def ptx_compiles(isa: Version, driver: Version) -> bool:
    """Whether a driver for CUDA ``driver`` compiles PTX of ISA version ``isa``."""
    return isa <= newest_ptx_isa(driver)


# Real architectures by number: the first and the last toolkit release that links for them (None: still does). Source:
# the release notes, and the architecture lists of NVRTC and nvJitLink 12.9 and 13.5.
_FIRST, _CUDA12 = Version(12, 0), Version(12, 99)
_REAL: dict[int, tuple[Version, Version | None]] = {
    **dict.fromkeys((50, 52, 53, 60, 61, 62, 70, 72), (_FIRST, _CUDA12)),
    **dict.fromkeys((75, 80, 86, 87, 89, 90), (_FIRST, None)),
    **dict.fromkeys((100, 120), (Version(12, 8), None)),
    **dict.fromkeys((103, 121), (Version(12, 9), None)),
    **dict.fromkeys((88, 107, 110), (Version(13, 0), None)),
    101: (Version(12, 8), _CUDA12),
}
# Suffixes: the lowest architecture that has them, and the first release.
_SUFFIXES = {"": (0, _FIRST), "a": (90, _FIRST), "f": (100, Version(12, 9))}
_NEWEST_KNOWN = Version(13, 5)


def linkable_architectures(linker: Version) -> list[int]:
    """Return the numbers of the architectures that nvJitLink ``linker`` is known to link for, sorted."""
    return sorted(number for number in _REAL if _links_for(linker, number))


def _links_for(linker: Version, number: int) -> bool:
    first, last = _REAL[number]
    return first <= linker and (last is None or linker <= last)


def can_link_for(linker: Version, target: Architecture) -> bool:
    """Whether nvJitLink ``linker`` links for ``target``; one newer than this table is assumed to know newer ones.

    Ask before nvJitLink does: given an architecture that it does not know, version 12.9 may crash.
    """
    first_number, first_linker = _SUFFIXES[target.suffix]
    if target.number < first_number or linker < first_linker:
        return False
    if target.number in _REAL:
        return _links_for(linker, target.number)
    return linker > _NEWEST_KNOWN and target.number > max(_REAL)


def is_known(target: Architecture) -> bool:
    """Whether some toolkit is known to link for the number of ``target``."""
    return target.number in _REAL


def newest_below(linker: Version, target: Architecture) -> Architecture | None:
    """Return the newest architecture before a ``target`` that is too new for it that nvJitLink ``linker`` knows.

    PTX can be made for it, which a driver that knows the target compiles.

    Returns:
        Architecture or None: None if the target is not one that came after this nvJitLink: it is known, was dropped,
            has a suffix, or no toolkit has it though later ones are known.
    """
    later = target.number > max(_REAL) or (is_known(target) and linker < _REAL[target.number][0])
    if target.suffix or not later or can_link_for(linker, target):
        return None
    # Later toolkits, and so perhaps the driver, do not read PTX for an architecture that they dropped.
    kept = (n for n in linkable_architectures(linker) if n < target.number and _REAL[n][1] is None)
    return max(map(Architecture, kept), default=None)
