"""``jitlto check``: prove without a GPU that every kernel of a database plans, and links."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base import config
from jitlto.base.text import pluralize
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import find_stores
from jitlto.build.shards import Shard
from jitlto.check.check import check as check_database
from jitlto.cli.output import SHOWN, print_cause, print_json, progress
from jitlto.cli.parameters import PATH, jobs_option, json_option, shard_option, targets_option
from jitlto.cli.selection import DATABASE, open_database
from jitlto.record.check_result import FamilyCheck, LinkCheck

if TYPE_CHECKING:
    from jitlto.check.operators import OperatorCheck


@click.command(epilog="Example: jitlto check search.fragdb --link sm_90 --cover 2")
@click.argument("database", metavar=DATABASE, type=PATH, required=False)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@targets_option("--link", "Link for these targets too")
@click.option(
    "--cover", type=click.IntRange(min=1), metavar="N",
    help="Link only enough kernels to cover every combination of N parameter values.",
)  # fmt: skip
@click.option("--no-compare", is_flag=True, help="Do not compare the inline functions of fragments, which takes time.")
@click.option(
    "--operators", metavar="PACKAGE",
    help="In place of a database, check the operators for PyTorch and JAX that a package declares.",
)  # fmt: skip
@shard_option("Make share I of N of the links and comparisons; the check holds if all shares do.")
@click.option("--no-cache", is_flag=True, help="Link and compare again what an earlier check has proved.")
@jobs_option("links")
@json_option
def check(
    database: Path | None,
    names: tuple[str, ...],
    archs: list[Architecture],
    cover: int | None,
    no_compare: bool,
    operators: str | None,
    shard: Shard | None,
    no_cache: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Prove that every kernel of DB, or of the FAMILYs in it, plans and links. Needs no GPU.

    It holds if exactly one fragment with a matching layout provides each symbol that a kernel requires, if every device
    fragment is used, and if inline functions that two fragments of a kernel define are the same, since a link keeps one
    of them. With --link, every kernel must also link, or with --cover N enough of them that any N parameter values that
    occur together in a kernel occur together in one of these. What is proved is stored by content in the user's cache,
    and not proved again.

    With --operators, PACKAGE is imported with its modules, or a module alone. Calls of every dtype and flag of each
    operator that this declares must choose a kernel, fit its signature, and link.
    """
    if operators is not None:
        if any((database, cover, no_compare, shard, no_cache)):
            raise click.UsageError("--operators goes with --link, --jobs and --json only")
        _check_operators(operators, archs, jobs, as_json)
        return
    if database is None:
        raise click.UsageError(f"name a database ({DATABASE}), or the package of --operators")
    if cover and not archs:
        raise click.UsageError("--cover needs --link")
    opened, family = open_database(database)
    with opened, progress("checking") as shown:
        result = check_database(
            opened,
            (*([family] if family else []), *names),
            targets=archs,
            strength=cover,
            compare=not no_compare,
            shard=shard,
            use_cache=not no_cache,
            stores=None if config.current().cache == "off" else find_stores(),
            workers=jobs,
            on_links=shown.add,
            on_link=shown.step,
        )
    if as_json:
        print_json(result)
    else:
        for family_check in result.families:
            _print_proof(family_check)
        if result.link:
            _print_links(result.link)
        if shard:
            click.echo(f"share {shard} of the links and comparisons: the check holds if all {shard.count} do")
    if not result.holds:
        raise SystemExit(1)


def _check_operators(package: str, archs: Sequence[Architecture], jobs: int | None, as_json: bool) -> None:
    from jitlto.check.operators import check_operators  # imported late: what declares operators, 30 ms

    # As for `python -m`: a package of a checkout need not be installed.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a text
    result = check_operators(package, archs, workers=jobs)
    if as_json:
        print_json(result)
    else:
        for operator in result.operators:
            _print_operator(operator)
    if not result.holds:
        raise SystemExit(1)


def _print_operator(check: OperatorCheck) -> None:
    linked = f", all kernels link for {', '.join(check.archs)}" if check.archs else ""
    state = f"every call fits its kernel{linked}" if check.holds else "FAILED"
    click.echo(f"{check.operator}: {pluralize(check.calls, 'call')}, {pluralize(check.kernels, 'kernel')}: {state}")
    for cause in check.failures:
        print_cause(check.operator, cause)


def _print_proof(result: FamilyCheck) -> None:
    agree = ", inline functions agree" if result.compared else ""
    state = f"every kernel plans, every fragment is used{agree}" if result.holds else "FAILED"
    if result.holds and not result.kernels and any(note.kind == "empty" for note in result.notes):
        state = "its groups are for families that use it"
    kernels = pluralize(result.kernels, "kernel") if result.kernels else "no kernels"
    click.echo(f"{result.family}: {pluralize(result.fragments, 'fragment')}, {kernels}: {state}")
    for kind in dict.fromkeys(note.kind for note in result.notes):
        notes = [note for note in result.notes if note.kind == kind != "empty"]
        for note in notes[:SHOWN]:
            click.echo(f"  note: {note.message}")
        if len(notes) > SHOWN:
            click.echo(f"  and {len(notes) - SHOWN} more such notes (--json lists all)")
    for cause in result.failures:
        print_cause(result.family, cause)


def _print_links(link: LinkCheck) -> None:
    for links in link.families:
        for cause in links.failures:
            print_cause(links.family, cause)
    for links in link.families:
        if not links.kernels:
            if links.completed_by_callers:
                waiting = pluralize(links.completed_by_callers, "kernel")
                click.echo(f"{links.family}: linked nothing; {waiting} need a caller's own code to link")
            continue
        of = pluralize(links.linked, "kernel")
        if links.cover is not None:
            covered = f"all {links.tuples} combinations of {links.cover} values"
            of = f"{links.linked} of {links.kernels} kernels, covering {covered}"
        elif links.linked < links.kernels:
            of = f"{links.linked} of {links.kernels} kernels"
        failed = sum(cause.count for cause in links.failures)
        state = f"{failed} of {links.linked * len(link.archs)} links fail" if failed else "all link"
        state += f" ({links.known} as known from an earlier check)" if links.known else ""
        click.echo(f"{links.family}: linked {of}, for {', '.join(link.archs)}: {state}")
    click.echo(f"nvJitLink {link.nvjitlink}, {link.mode}, {link.seconds:.1f} s")
