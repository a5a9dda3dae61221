"""``jitlto report``: a page about a database."""

from pathlib import Path

import click

from jitlto.base.errors import DatabaseError
from jitlto.base.text import pluralize
from jitlto.cli.output import check_output, write_output
from jitlto.cli.parameters import PATH
from jitlto.cli.selection import DATABASE, open_database
from jitlto.database import MERGE_HINT
from jitlto.report import page
from jitlto.report.content import describe


@click.command(epilog="Example: jitlto report search.fragdb -o report.html")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The page, e.g. report.html.")
def report(database: Path, output: Path) -> None:
    """Write an HTML page about DB, or a family of it: groups as grids, sizes, calls, toolchains and architectures.

    The page is one file that loads nothing.
    """
    opened, family = open_database(database)
    with opened:
        check_output(output, (opened.path,))
        if opened.part is not None:
            what = f"database is {opened.part} of a build, and a report shows what a whole one has and lacks"
            raise DatabaseError(what, code="database-part", where=str(opened.path), hint=MERGE_HINT)
        described = describe(opened, family=family)
    write_output(output, page.to_html(described).encode())
    click.echo(f"{pluralize(len(described.fragments), 'fragment')} in {output}")
