"""What links with an nvJitLink for a target, by versions and architectures.

Sources of the rules: NVIDIA's «CUDA 12.0 Compiler Support for Runtime LTO Using nvJitLink Library» (LTO-IR links within
a major release, with an nvJitLink at least as new as the compiler; across majors PTX or SASS is linked), the nvJitLink
reference, and the PTX ISA's release history (which PTX version came with which toolkit).
"""

from jitlto.base.errors import ArchitectureError
from jitlto.base.versions import Architecture, Version


def runs_on(base: Architecture, target: Architecture) -> bool:
    """Return whether code compiled for the virtual architecture ``base`` may be linked for ``target``.

    Plain code links upward to every later architecture. Architecture-specific code (``a``) stays on its own, and
    family-specific code (``f``) within the family, which is the compute capability's major number.
    """
    if base.suffix == "a":
        return target == base
    if base.suffix == "f":
        same_family = base.number // 10 == target.number // 10
        return same_family and base.number <= target.number and target.suffix != ""
    return base.number <= target.number


def machine_code_links(code: Architecture, target: Architecture) -> bool:
    """Return whether machine code for ``code`` links for ``target``.

    Machine code is for its own major number, from its minor on; architecture-specific code (``a``) is for that alone.
    """
    if code.suffix == "a":
        return target == code
    return code.number // 10 == target.number // 10 and code.number <= target.number


def ltoir_links(compiler: Version, linker: Version) -> bool:
    """Return whether LTO-IR made by ``compiler`` links with the nvJitLink of version ``linker``."""
    return compiler.major == linker.major and compiler <= linker


# PTX ISA versions lag their toolkit's minor in two places only: 12.6 brought none, and 12.7 was never released as one.
_PTX_ISA_12 = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 8: 7, 9: 8}


def newest_ptx_isa(toolkit: Version) -> Version:
    """Return the newest PTX ISA version that toolkit ``toolkit`` reads (CUDA 12 reads up to 8.8, 13.n reads 9.n)."""
    if toolkit.major == 12:
        return Version(8, _PTX_ISA_12.get(toolkit.minor, 8))
    return Version(toolkit.major - 4, toolkit.minor)


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
    """Return whether nvJitLink ``linker`` links for ``target``; a version newer than this table may know newer targets.

    Ask before nvJitLink does: given an architecture that it does not know, version 12.9 may crash.
    """
    first_number, first_linker = _SUFFIXES[target.suffix]
    if target.number < first_number or linker < first_linker:
        return False
    if target.number in _REAL:
        return _links_for(linker, target.number)
    return linker > _NEWEST_KNOWN and target.number > max(_REAL)


def check_target(target: Architecture, linker: Version) -> None:
    """Check that nvJitLink can link for a target.

    Raises:
        ArchitectureError: If it cannot.
    """
    if not can_link_for(linker, target):
        raise ArchitectureError(
            f"nvJitLink {linker} does not link for {target.sm}",
            code="link-architecture-unsupported",
            hint=f"it links for {', '.join(f'sm_{n}' for n in linkable_architectures(linker))}; "
            "a newer architecture needs a newer nvJitLink",
        )
