"""Which fragments of a database link for a target, how or why not, and whether the driver accepts the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jitlto.base.errors import NoDeviceError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import device, driver, nvjitlink
from jitlto.cuda.compatibility import can_link_for, linkable_architectures, native_target, newest_ptx_isa
from jitlto.cuda.prediction import Incompatibility, LinkMethod, LinkPreview, find_incompatibility, preview_link
from jitlto.database import FragmentDatabase
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import Fragment


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """The predicted link of fragments for one target, and why the driver rejects it, if it does."""

    verdict: LinkPreview
    refused: Incompatibility | None

    @property
    def well(self) -> bool:
        """True if they link and the driver, if known, accepts the result."""
        return self.verdict.method is not None and self.refused is None


@dataclass(frozen=True, slots=True)
class UsabilityGroup:
    """Fragments of one family with the same kinds of images and the same outcome on every target."""

    family: str
    images: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    outcomes: tuple[tuple[Architecture, TargetOutcome], ...]

    @property
    def well(self) -> bool:
        """True if they can be used on every requested target."""
        return all(outcome.well for _, outcome in self.outcomes)

    def by_outcome(self) -> list[tuple[list[Architecture], TargetOutcome]]:
        """Return targets with the same outcome together; the target's own name in it does not count."""
        together: dict[tuple[object, ...], tuple[list[Architecture], TargetOutcome]] = {}
        for target, outcome in self.outcomes:
            verdict = outcome.verdict
            key = (verdict.method, verdict.why and verdict.why.replace(target.sm, ""), outcome.refused)
            together.setdefault(key, ([], outcome))[0].append(target)
        return list(together.values())


@dataclass(frozen=True, slots=True)
class Usability:
    """The groups of a database's fragments.

    Args:
        part: The part of a build, if the database is not complete.
        linker: The version of nvJitLink.
        driver: The CUDA version of the driver, if known.
        well: Whether every fragment can be used: on every target if targets were requested or there is a device,
            otherwise on at least one.
    """

    database: Path
    digest: str
    part: PartRecord | None
    linker: Version
    driver: Version | None
    groups: tuple[UsabilityGroup, ...]
    well: bool

    def mixed_families(self) -> list[str]:
        """Return the families whose fragments link in different ways, which one kernel cannot combine."""
        methods: dict[str, set[LinkMethod | None]] = {}
        for group in self.groups:
            methods.setdefault(group.family, set()).update(outcome.verdict.method for _, outcome in group.outcomes)
        return [name for name, used in methods.items() if LinkMethod.PTX in used and len(used - {None}) > 1]


def assess(path: Path, targets: Sequence[Architecture] = (), cuda: Version | None = None) -> Usability:
    """Find out which fragments of a database can be used.

    Args:
        targets: By default that of the current device, or without a device all targets of nvJitLink.
        cuda: The CUDA version of the driver to assume; by default that of the installed driver.

    Raises:
        DatabaseError: If the database cannot be read.
        ToolchainError: If nvJitLink is not installed.
    """
    linker = nvjitlink.version()
    supported = cuda or driver.cuda_version()
    own = None if targets else _device()
    groups: list[UsabilityGroup] = []
    with FragmentDatabase(path) as database:
        for family in sorted(database.families):
            fragments = database.fragments(family)
            chosen = [native_target(own, fragments)] if own else targets or _all(fragments, linker)
            groups += group_fragments(family, fragments, chosen, linker, supported, requested=own is None)
        digest, part = database.digest, database.part
    if targets or own:
        well = all(group.well for group in groups)
    else:
        well = all(any(outcome.well for _, outcome in group.outcomes) for group in groups)
    return Usability(path, digest, part, linker, supported, tuple(groups), well and part is None)


def group_fragments(
    family: str,
    fragments: Iterable[Fragment],
    targets: Sequence[Architecture],
    linker: Version,
    cuda: Version | None,
    *,
    requested: bool,
) -> list[UsabilityGroup]:
    """Group fragments with the same kinds of images and the same outcomes."""
    together: dict[tuple[tuple[str, ...], tuple[tuple[Architecture, TargetOutcome], ...]], list[Fragment]] = {}
    for fragment in fragments:
        outcomes = []
        for target in targets:
            verdict = preview_link(fragment, target, linker, requested=requested)
            isa = newest_ptx_isa(linker) if verdict.method is LinkMethod.JIT else None
            refused = find_incompatibility(cuda, linker, isa) if cuda and verdict.method else None
            outcomes.append((target, TargetOutcome(verdict, refused)))
        together.setdefault((_images(fragment), tuple(outcomes)), []).append(fragment)
    return [
        UsabilityGroup(family, images, tuple(several), outcomes) for (images, outcomes), several in together.items()
    ]


def _device() -> Architecture | None:
    try:
        return device.architecture()
    except NoDeviceError:
        return None


def _all(fragments: Iterable[Fragment], linker: Version) -> list[Architecture]:
    """Return all targets of nvJitLink, and those with a suffix that fragments are built for."""
    special = {image.architecture for f in fragments for image in f.images if image.architecture.suffix}
    return sorted(
        {*map(Architecture, linkable_architectures(linker)), *(a for a in special if can_link_for(linker, a))}
    )


def _images(fragment: Fragment) -> tuple[str, ...]:
    """Describe the images of a fragment: ``LTO-IR of nvrtc 12.9 for compute_75``."""
    held: dict[str, list[str]] = {}
    for image in fragment.images:
        kind = f"PTX {image.ptx_isa}" if image.ptx_isa else "LTO-IR"
        held.setdefault(f"{kind} of {image.toolchain} {image.version}", []).append(image.architecture.compute)
    return tuple(f"{what} for {', '.join(archs)}" for what, archs in held.items())
