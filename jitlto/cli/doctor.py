"""``jitlto doctor``: show installed components, their compatibility, and how to install missing ones."""

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

import click

from jitlto.base.text import hang
from jitlto.check.environment import Component, diagnose
from jitlto.cli.output import columns, print_result
from jitlto.cli.parameters import json_option


@click.command(epilog="Example: jitlto doctor")
@json_option
def doctor(as_json: bool) -> int:
    """Show the toolchain, driver, devices, caches, shared stores, databases and installed families, and what is wrong.

    Exit status 1 if linking cannot work.
    """
    found = diagnose()
    wrong = {finding.needed_for for finding in found if not finding.ok}
    result = {"well": "linking" not in wrong, "builds": "building" not in wrong, "findings": found}
    print_result(result, _lines(found, wrong), as_json=as_json)
    return int("linking" in wrong)


def _lines(found: Sequence[Component], wrong: Collection[str]) -> Iterator[str]:
    width = max(len(finding.name) for finding in found)
    for finding, following in zip_longest(found, found[1:]):
        bad = ("✗", "red") if finding.needed_for == "linking" else ("–", "yellow")
        mark, colour = ("✓", "green") if finding.ok else bad
        first, *further = hang(f"{mark} {finding.name:<{width}}  ", finding.value, columns(), " " * (width + 4))
        yield click.style(mark, fg=colour) + first[1:]
        yield from further
        if finding.remedy and not finding.ok and not (following and following.remedy == finding.remedy):
            yield f"   {'':<{width}} → {finding.remedy}"  # whole, so that it can be copied
    if "linking" in wrong:
        yield "\nlinking cannot work yet: see ✗ above"
    elif "building" in wrong:
        yield "\nlinking works, building does not: see – above"
    else:
        but = ", but not with all databases and stores: see – above" if "use" in wrong else ""
        yield f"\nbuilding and linking work{but}"
