"""``jitlto doctor DB``: which fragments of a database link here, how, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from jitlto.cli.output import print_json
from jitlto.cuda import device, driver, toolkit
from jitlto.errors import JitltoError, NoDeviceError
from jitlto.model.compatibility import Refusal, Verdict, Way, native, refusal, verdict
from jitlto.model.fragment import Fragment
from jitlto.model.text import pluralize
from jitlto.model.versions import Architecture, Version, knows, linkable, newest_ptx_isa
from jitlto.storage.database import MERGE_HINT, FragmentDatabase

_WAYS = {
    Way.LTO: "links, with link-time optimisation",
    Way.PTX: "links as PTX, without link-time optimisation",
    Way.JIT: "links into PTX, which the driver compiles",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of fragments on one target: how they link, and why the driver does not take it, if it does not."""

    verdict: Verdict
    refused: Refusal | None

    @property
    def well(self) -> bool:
        """Whether they link, and the driver, where one is known, takes the result."""
        return self.verdict.way is not None and self.refused is None


@dataclass(frozen=True, slots=True)
class Alike:
    """Fragments of one family that are made alike and fare alike on every target."""

    family: str
    images: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    outcomes: tuple[tuple[Architecture, Outcome], ...]

    @property
    def well(self) -> bool:
        """Whether they can be used on every target asked for."""
        return all(outcome.well for _, outcome in self.outcomes)


def describe(path: Path, archs: Sequence[str], cuda: str | None, *, as_json: bool) -> bool:
    """Print what comes of a database's fragments.

    Parameters
    ----------
    path : Path
        The database.
    archs : sequence of str
        Targets; without any, the current device's, or without one all that nvJitLink links for.
    cuda : str or None
        The CUDA version of the driver to suppose; None for that of the driver at hand.

    Returns
    -------
    bool
        Whether each fragment can be used: on each target, where they were asked for or there is a device; else on one.
    """
    try:
        asked = list(dict.fromkeys(map(Architecture.parse, archs)))
        supposed = None if cuda is None else Version.parse(cuda)
    except JitltoError as error:
        raise click.UsageError(f"{error.what}; {error.hint}") from None
    linker = toolkit.nvjitlink_version()
    takes = supposed or driver.cuda_version()
    own = None if asked else _device()
    with FragmentDatabase(path) as database:
        found: list[Alike] = []
        for family in sorted(database.families):
            fragments = database.fragments(family)
            targets = [native(own, fragments)] if own else asked or list(_all(fragments, linker))
            found += group(family, fragments, targets, linker, takes, asked=own is None)
        digest, part = database.digest, database.part
    single = asked or own
    well = part is None and all(a.well if single else any(o.well for _, o in a.outcomes) for a in found)
    if as_json:
        about = {"database": str(path), "digest": digest, "part": part and str(part)}
        about |= {"nvjitlink": str(linker), "driver": takes and str(takes)}
        print_json(about | {"well": well, "groups": [_as_dict(alike) for alike in found]})
    else:
        _print(path, found, linker, takes)
        if part is not None:
            click.secho("✗ ", fg="red", nl=False)
            click.echo(f"is {part} of a build: its kernels lack fragments")
            click.echo(f"      → {MERGE_HINT}")
    return well


def group(
    family: str,
    fragments: Iterable[Fragment],
    targets: Sequence[Architecture],
    linker: Version,
    cuda: Version | None,
    *,
    asked: bool,
) -> list[Alike]:
    """Put fragments together that are made alike and fare alike.

    Parameters
    ----------
    family : str
        Theirs.
    fragments : iterable of Fragment
        All of the family.
    targets : sequence of Architecture
        What to link for.
    linker : Version
        nvJitLink's.
    cuda : Version or None
        The driver's, where one is known.
    asked : bool
        Whether a user named the targets, rather than the device.
    """
    together: dict[tuple[tuple[str, ...], tuple[tuple[Architecture, Outcome], ...]], list[Fragment]] = {}
    for fragment in fragments:
        outcomes = []
        for target in targets:
            says = verdict(fragment, target, linker, asked=asked)
            isa = newest_ptx_isa(linker) if says.way is Way.JIT else None
            outcomes.append((target, Outcome(says, refusal(cuda, linker, isa) if cuda and says.way else None)))
        together.setdefault((_images(fragment), tuple(outcomes)), []).append(fragment)
    return [Alike(family, images, tuple(several), outcomes) for (images, outcomes), several in together.items()]


def _device() -> Architecture | None:
    try:
        return device.architecture()
    except NoDeviceError:
        return None


def _all(fragments: Iterable[Fragment], linker: Version) -> Iterator[Architecture]:
    """All that nvJitLink links for, and those with a suffix that fragments are built for."""
    special = {image.architecture for f in fragments for image in f.images if image.architecture.suffix}
    yield from sorted({*map(Architecture, linkable(linker)), *(a for a in special if knows(linker, a))})


def _images(fragment: Fragment) -> tuple[str, ...]:
    """What a fragment holds, in words: ``LTO-IR of nvrtc 12.9 for compute_75``."""
    held: dict[str, list[str]] = {}
    for image in fragment.images:
        kind = f"PTX {image.ptx_isa}" if image.ptx_isa else "LTO-IR"
        held.setdefault(f"{kind} of {image.toolchain} {image.version}", []).append(image.architecture.compute)
    return tuple(f"{what} for {', '.join(archs)}" for what, archs in held.items())


def _print(path: Path, found: Sequence[Alike], linker: Version, cuda: Version | None) -> None:
    total = pluralize(sum(len(alike.fragments) for alike in found), "fragment")
    click.echo(f"{path}: {total}; nvJitLink {linker}, {f'driver for CUDA {cuda}' if cuda else 'no driver'}")
    families = [alike.family for alike in found]
    for alike in found:
        groups = ", ".join(dict.fromkeys(fragment.key.group for fragment in alike.fragments))
        of = f" ({groups})" if families.count(alike.family) > 1 else ""
        click.echo(f"{alike.family}: {pluralize(len(alike.fragments), 'fragment')}{of}: {'; '.join(alike.images)}")
        for targets, outcome in _by_outcome(alike.outcomes):
            _print_outcome(targets, outcome)
    for family in dict.fromkeys(families):
        if _mixes([alike for alike in found if alike.family == family]):
            click.echo(f"note: a kernel of {family} that joins fragments of both kinds links as PTX, all of it")


def _mixes(found: Sequence[Alike]) -> bool:
    """Whether fragments of one family link in ways that do not go together in one kernel."""
    ways = {outcome.verdict.way for alike in found for _, outcome in alike.outcomes}
    return Way.PTX in ways and len(ways - {None}) > 1


def _by_outcome(
    outcomes: Iterable[tuple[Architecture, Outcome]],
) -> list[tuple[list[Architecture], Outcome]]:
    """Targets of one outcome together, but for the target's name in it."""
    together: dict[tuple[object, ...], tuple[list[Architecture], Outcome]] = {}
    for target, outcome in outcomes:
        says = outcome.verdict
        key = (says.way, says.why and says.why.replace(target.sm, ""), outcome.refused)
        together.setdefault(key, ([], outcome))[0].append(target)
    return list(together.values())


def _print_outcome(targets: Sequence[Architecture], outcome: Outcome) -> None:
    says = outcome.verdict
    mark, colour = ("✓", "green") if outcome.well and says.way is Way.LTO else ("–", "yellow")
    if not outcome.well:
        mark, colour = "✗", "red"
    click.secho(f"  {mark} ", fg=colour, nl=False)
    state = _WAYS[says.way] if says.way else "does not link"
    # The first target's name stands in the reason; of several it would be one too few.
    why = says.why and says.why.replace(targets[0].sm, "them" if len(targets) > 1 else targets[0].sm)
    click.echo(f"{', '.join(target.sm for target in targets)}: {state}{f': {why}' if why else ''}")
    if says.remedy:
        click.echo(f"      → {says.remedy}")
    if outcome.refused:
        click.echo(f"      but {outcome.refused.why}\n      → {outcome.refused.remedy}")


def _as_dict(alike: Alike) -> dict[str, object]:
    return {
        "family": alike.family,
        "images": list(alike.images),
        "well": alike.well,
        "fragments": [str(fragment.key) for fragment in alike.fragments],
        "archs": {
            target.sm: {
                "way": outcome.verdict.way,
                "code": outcome.verdict.code or None,
                "why": outcome.verdict.why,
                "remedy": outcome.verdict.remedy,
                "refused_by_driver": outcome.refused and outcome.refused.why,
                "remedy_for_driver": outcome.refused and outcome.refused.remedy,
            }
            for target, outcome in alike.outcomes
        },
    }
