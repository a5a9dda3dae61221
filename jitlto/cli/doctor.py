"""``jitlto doctor``: show installed components, their compatibility, and how to install missing ones."""

from __future__ import annotations

from dataclasses import asdict
from itertools import zip_longest

import click

from jitlto.check.environment import diagnose
from jitlto.cli.output import print_json
from jitlto.cli.parameters import json_option


@click.command(epilog="Example: jitlto doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Show the toolchain, driver, devices, caches, shared stores, databases and installed families, and what is wrong.

    Exit status 1 if linking cannot work.
    """
    found = diagnose()
    if as_json:
        findings = [asdict(finding) for finding in found.findings]
        print_json({"well": found.well, "builds": found.builds, "findings": findings})
    else:
        width = max(len(finding.name) for finding in found.findings)
        for finding, following in zip_longest(found.findings, found.findings[1:]):
            mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.required else ("–", "yellow")
            click.secho(mark, fg=colour, nl=False)
            click.echo(f" {finding.name:<{width}}  {finding.value}")
            if finding.remedy and not finding.ok and not (following and following.remedy == finding.remedy):
                click.echo(f"   {'':<{width}} → {finding.remedy}")
        click.echo(f"\n{found.summary}")
    if not found.well:
        raise SystemExit(1)
