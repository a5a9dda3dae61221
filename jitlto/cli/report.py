"""``jitlto report``: a database as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from jitlto.cli.families import DATABASE, open_database
from jitlto.cli.outputs import check_outputs, write_output
from jitlto.cli.parameters import FILE, PATH
from jitlto.model.text import pluralize


@click.command(epilog="Example: jitlto report search.fragdb -o report.html --timings timings.json --check check.json")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.option("-o", "--output", type=FILE, required=True, help="The page, e.g. report.html.")
@click.option("--timings", type=FILE, multiple=True, help="Output of `jitlto build --timings FILE.json`. Repeatable.")
@click.option("--check", "check_file", type=FILE, help="Output of `jitlto check DB --json`.")
def report(database: Path, output: Path, timings: tuple[Path, ...], check_file: Path | None) -> None:
    """Write an HTML page about DB, or a family of it: groups as grids, sizes, calls, toolchains and architectures.

    The page is one file that loads nothing. With --timings it shows compile times, with --check the result of a check.
    """
    from jitlto.build.execution.costs import read_seconds
    from jitlto.report import page
    from jitlto.report.describe import describe
    from jitlto.storage.check_result import read_check_result

    opened, family = open_database(database)
    with opened:
        check_outputs({"-o": output}, (opened.path, *timings, check_file))
        seconds: dict[str, float] = {}
        for path in timings:
            seconds |= read_seconds(path)
        check = read_check_result(check_file) if check_file else None
        described = describe(opened, family=family, seconds=seconds if timings else None, check=check)
    write_output(output, page.to_html(described).encode())
    click.echo(f"{pluralize(described.fragments, 'fragment')} in {output}")
