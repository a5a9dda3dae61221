"""``jitlto merge``: join the parts of a sharded build into one fragment database."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from jitlto.cli.output import print_built
from jitlto.cli.parameters import FILE, PATH, json_option
from jitlto.model.text import pluralize


@click.command(epilog="Example: jitlto merge -o search.fragdb part-1.fragdb part-2.fragdb")
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", type=FILE, required=True, help="The database.")
@click.option("--allow-gaps", is_flag=True, help="Leave out fragments that no PART holds.")
@click.option("--allow-mixed", is_flag=True, help="Accept parts made by different compilers.")
@click.option("--prefer", type=click.Choice(["first", "last"]), help="Which PART to take where they differ.")
@json_option
def merge(
    parts: tuple[Path, ...],
    output: Path,
    allow_gaps: bool,
    allow_mixed: bool,
    prefer: Literal["first", "last"] | None,
    as_json: bool,
) -> None:
    """Merge PARTs, which `jitlto build --shard I/N` wrote, into one fragment database.

    The result is byte for byte that of a build in one piece. Complete databases of different families are joined too.
    The database is written at the end, whole, or not at all.
    """
    from jitlto.build.merge import merge_databases

    report = merge_databases(parts, output, allow_gaps=allow_gaps, allow_mixed=allow_mixed, prefer=prefer)
    print_built(report, f"of {pluralize(len(parts), 'file')} in {report.path}", as_json=as_json)
