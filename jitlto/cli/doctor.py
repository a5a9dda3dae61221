"""``jitlto doctor``: show installed components, their compatibility, and how to install missing ones."""

from collections.abc import Iterator
from itertools import zip_longest

import click

from jitlto.check.environment import Diagnosis, diagnose
from jitlto.cli.output import print_result
from jitlto.cli.parameters import json_option


@click.command(epilog="Example: jitlto doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Show the toolchain, driver, devices, caches, shared stores, databases and installed families, and what is wrong.

    Exit status 1 if linking cannot work.
    """
    found = diagnose()
    result = {"well": found.well, "builds": found.builds, "findings": found.findings}
    print_result(result, _lines(found), as_json=as_json)
    if not found.well:
        raise SystemExit(1)


def _lines(found: Diagnosis) -> Iterator[str]:
    width = max(len(finding.name) for finding in found.findings)
    for finding, following in zip_longest(found.findings, found.findings[1:]):
        mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.required else ("–", "yellow")
        yield f"{click.style(mark, fg=colour)} {finding.name:<{width}}  {finding.value}"
        if finding.remedy and not finding.ok and not (following and following.remedy == finding.remedy):
            yield f"   {'':<{width}} → {finding.remedy}"
    yield f"\n{found.summary}"
