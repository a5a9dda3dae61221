"""``jitlto report``: a database as a page to look at."""

from __future__ import annotations

from pathlib import Path

import click

from jitlto.cli import overwrite
from jitlto.cli.families import DATABASE, open_database
from jitlto.cli.parameters import FILE, PATH
from jitlto.errors import JitltoError
from jitlto.model.text import pluralize
from jitlto.storage import files


@click.command(epilog="Example: jitlto report search.fragdb -o report.html --timings timings.json --check check.json")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.option("-o", "--output", type=FILE, required=True, help="The page, e.g. report.html.")
@click.option(
    "--timings", type=FILE, multiple=True, help="What `jitlto build --timings FILE.json` wrote; several times."
)
@click.option("--check", "check_file", type=FILE, help="What `jitlto check --json` printed of DB.")
def report(database: Path, output: Path, timings: tuple[Path, ...], check_file: Path | None) -> None:
    """Write a page that shows DB, or a family of it: groups as grids, sizes, calls, toolchains and architectures.

    One HTML file that loads nothing. With --timings it shows compile times, with --check what was found.
    """
    from jitlto.build.execution.costs import read_seconds
    from jitlto.report import model, page
    from jitlto.storage.check_result import read_check_result

    opened, family = open_database(database)
    with opened:
        overwrite.refuse({"-o": output}, (opened.path, *timings, check_file))
        seconds: dict[str, float] = {}
        for path in timings:
            seconds |= read_seconds(path)
        check = read_check_result(check_file) if check_file else None
        described = model.describe(opened, family=family, seconds=seconds if timings else None, check=check)
    _write(page.to_html(described), output)
    click.echo(f"{pluralize(described.fragments, 'fragment')} in {output}")


def _write(text: str, output: Path) -> None:
    """Write a page, whole or not at all."""
    hint = "give a path in a directory that exists and that you may write"
    try:
        with files.replacing(output) as temporary:
            temporary.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise JitltoError(f"cannot be written: {error.strerror}", where=str(output), hint=hint) from error
