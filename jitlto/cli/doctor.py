"""``jitlto doctor``: show installed components, their compatibility, and how to install missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base.errors import JitltoError
from jitlto.base.text import pluralize
from jitlto.base.versions import Architecture, Version
from jitlto.cli.families import DATABASE, locate
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json
from jitlto.cli.parameters import PATH, TargetList, json_option, targets_option
from jitlto.cuda.prediction import LinkMethod
from jitlto.database import MERGE_HINT

if TYPE_CHECKING:  # usage errors need not wait for the toolchain
    from jitlto.check.environment import Diagnosis
    from jitlto.check.usability import TargetOutcome, Usability, UsabilityGroup

_WAYS = {
    LinkMethod.LTO: "links, with link-time optimisation",
    LinkMethod.PTX: "links as PTX, without link-time optimisation",
    LinkMethod.JIT: "links into PTX, which the driver compiles",
}


@click.command(epilog="Example: jitlto doctor search.fragdb --arch sm_90 --driver 12.4")
@click.argument("database", metavar=f"[{DATABASE}]", required=False, type=PATH)
@targets_option("--arch", "Targets for DB", TargetList("any"))
@click.option("--driver", "cuda", metavar="VERSION", help="Assume a driver for this CUDA version, e.g. 12.4.")
@json_option
def doctor(database: Path | None, archs: list[Architecture], cuda: str | None, as_json: bool) -> None:
    """Show the toolchain, driver, devices, caches, shared stores, databases and installed families, and what is wrong.

    Exit status 1 if linking cannot work.

    With DB, show instead which of its fragments link here and how, or why they do not: for the given targets, by
    default the current device, or without a device all targets of this nvJitLink. Exit status 1 if fragments cannot
    be used.
    """
    if database is not None:
        conclude(lambda: _assess(locate(database)[0], archs, cuda, as_json))
        return
    if archs or cuda:
        raise click.UsageError("--arch and --driver need a database: jitlto doctor DB")
    from jitlto.check.environment import diagnose

    found = diagnose()
    if as_json:
        findings = [asdict(finding) for finding in found.findings]
        print_json({"well": found.well, "builds": found.builds, "findings": findings})
    else:
        _print(found)
    if not found.well:
        raise SystemExit(1)


def _print(found: Diagnosis) -> None:
    width = max(len(finding.name) for finding in found.findings)
    for finding, following in zip_longest(found.findings, found.findings[1:]):
        mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.required else ("–", "yellow")
        click.secho(mark, fg=colour, nl=False)
        click.echo(f" {finding.name:<{width}}  {finding.value}")
        if finding.remedy and not finding.ok and not (following and following.remedy == finding.remedy):
            click.echo(f"   {'':<{width}} → {finding.remedy}")
    click.echo()
    if not found.well:
        click.echo("linking cannot work yet: see ✗ above")
    elif not found.builds:
        click.echo("linking works, building does not: see – above")
    elif not found.databases_ok:
        click.echo("building and linking work, but there are problems with databases: see – above")
    elif not found.stores_ok:
        click.echo("building and linking work, but not with all shared stores: see – above")
    else:
        click.echo("building and linking work")


def _assess(path: Path, targets: Sequence[Architecture], cuda: str | None, as_json: bool) -> bool:
    from jitlto.check.usability import assess

    try:
        supposed = None if cuda is None else Version.parse(cuda)
    except JitltoError as error:
        raise click.UsageError(f"{error.what}; {error.hint}") from None
    found = assess(path, targets, supposed)
    if as_json:
        print_json(
            {
                "database": str(path),
                "digest": found.digest,
                "part": found.part and str(found.part),
                "nvjitlink": str(found.linker),
                "driver": found.driver and str(found.driver),
                "well": found.well,
                "groups": [_as_dict(group) for group in found.groups],
            }
        )
    else:
        _print_usability(found)
    return found.well


def _print_usability(found: Usability) -> None:
    total = pluralize(sum(len(group.fragments) for group in found.groups), "fragment")
    driver = f"driver for CUDA {found.driver}" if found.driver else "no driver"
    click.echo(f"{found.database}: {total}; nvJitLink {found.linker}, {driver}")
    families = [group.family for group in found.groups]
    for group in found.groups:
        names = ", ".join(dict.fromkeys(fragment.key.group for fragment in group.fragments))
        of = f" ({names})" if families.count(group.family) > 1 else ""
        click.echo(f"{group.family}: {pluralize(len(group.fragments), 'fragment')}{of}: {'; '.join(group.images)}")
        for targets, outcome in group.by_outcome():
            _print_outcome(targets, outcome)
    for family in found.mixed_families():
        click.echo(f"note: a kernel of {family} with fragments of both kinds links entirely as PTX")
    if found.part is not None:
        click.secho("✗ ", fg="red", nl=False)
        click.echo(f"only {found.part} of a build: its kernels lack fragments")
        click.echo(f"      → {MERGE_HINT}")


def _print_outcome(targets: Sequence[Architecture], outcome: TargetOutcome) -> None:
    says = outcome.verdict
    mark, colour = ("✓", "green") if outcome.well and says.method is LinkMethod.LTO else ("–", "yellow")
    if not outcome.well:
        mark, colour = "✗", "red"
    click.secho(f"  {mark} ", fg=colour, nl=False)
    state = _WAYS[says.method] if says.method else "does not link"
    # The reason names the first target, which would be wrong for several.
    why = says.why and says.why.replace(targets[0].sm, "them" if len(targets) > 1 else targets[0].sm)
    click.echo(f"{', '.join(target.sm for target in targets)}: {state}{f': {why}' if why else ''}")
    if says.remedy:
        click.echo(f"      → {says.remedy}")
    if outcome.refused:
        click.echo(f"      but {outcome.refused.why}\n      → {outcome.refused.remedy}")


def _as_dict(group: UsabilityGroup) -> dict[str, object]:
    return {
        "family": group.family,
        "images": list(group.images),
        "well": group.well,
        "fragments": [str(fragment.key) for fragment in group.fragments],
        "archs": {
            target.sm: {
                "way": outcome.verdict.method,
                "code": outcome.verdict.code or None,
                "why": outcome.verdict.why,
                "remedy": outcome.verdict.remedy,
                "refused_by_driver": outcome.refused and outcome.refused.why,
                "remedy_for_driver": outcome.refused and outcome.refused.remedy,
            }
            for target, outcome in group.outcomes
        },
    }
