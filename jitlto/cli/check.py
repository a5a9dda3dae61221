"""``jitlto check``: prove without a GPU that every kernel of a database plans, and links."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from jitlto.base.diagnostic import Severity
from jitlto.base.text import pluralize
from jitlto.base.versions import Architecture
from jitlto.check.check import CheckResult, FamilyCheck
from jitlto.check.check import check as check_database
from jitlto.cli.ending import SHOWN, print_diagnostics
from jitlto.cli.output import print_annotations, print_result, progress
from jitlto.cli.parameters import PATH, github_option, jobs_option, json_option, targets_option
from jitlto.cli.selection import DATABASE, open_database

if TYPE_CHECKING:
    from jitlto.check.operators import OperatorCheck


@click.command(epilog="Example: jitlto check search.fragdb --link sm_90")
@click.argument("database", metavar=DATABASE, type=PATH, required=False)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@targets_option("--link", "Link for these targets too")
@click.option("--no-compare", is_flag=True, help="Do not compare the inline functions of fragments, which takes time.")
@click.option(
    "--operators", metavar="PACKAGE",
    help="In place of a database, check the operators for PyTorch and JAX that a package declares.",
)  # fmt: skip
@jobs_option("links")
@json_option
@github_option
def check(
    database: Path | None,
    names: tuple[str, ...],
    archs: list[Architecture],
    operators: str | None,
    jobs: int | None,
    as_json: bool,
    as_github: bool,
    no_compare: bool,
) -> int:
    """Prove that every kernel of DB, or of the FAMILYs in it, plans and links. Needs no GPU.

    It holds if exactly one fragment with a matching layout provides each symbol that a kernel requires, if every device
    fragment is used, and if inline functions that two fragments of a kernel define are the same, since a link keeps one
    of them. With --link, every kernel must also link, or of more than 10,000 as many as hold every pair of fragments
    that meet in a kernel. What is proved is stored by content in the user's cache, and not proved again unless
    JITLTO_CACHE=off.

    With --operators, PACKAGE is imported with its modules, or a module alone. Calls of every dtype and flag of each
    operator that this declares must choose a kernel, fit its signature, and link.
    """
    checks: Sequence[FamilyCheck | OperatorCheck]
    if operators is not None:
        from jitlto.check.operators import check_operators  # imported late: what declares operators, 30 ms

        if database or no_compare:
            raise click.UsageError("--operators goes with --link, --jobs and --json only")
        # As for `python -m`: a package of a checkout need not be installed.
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a text
        checks = checked = check_operators(operators, archs, workers=jobs)
        told = {"package": operators, "holds": all(each.holds for each in checked), "operators": checked}
        lines = _operator_lines(checked)
    else:
        if database is None:
            raise click.UsageError(f"name a database ({DATABASE}), or the package of --operators")
        opened, family = open_database(database)
        with opened, progress("checking") as shown:
            result = check_database(
                opened, (*([family] if family else []), *names), targets=archs, compare=not no_compare, workers=jobs,
                on_links=shown.add, on_link=shown.step,
            )  # fmt: skip
        lines, checks, told = _lines(result), result.families, msgspec.structs.asdict(result)
    found = [found for each in checks for found in each.diagnostics]
    print_diagnostics(each for each in found if each.severity is Severity.ERROR)
    print_annotations(found if as_github else ())
    told = msgspec.to_builtins(told)
    for each in told.get("families") or told["operators"]:
        del each["diagnostics"]  # which are told together
    print_result({"diagnostics": found} | told, lines, as_json=as_json)
    return int(not told["holds"])


def _operator_lines(checks: Iterable[OperatorCheck]) -> Iterator[str]:
    for check in checks:
        linked = f", all kernels link for {', '.join(check.archs)}" if check.archs else ""
        state = f"every call fits its kernel{linked}" if check.holds else "FAILED"
        yield f"{check.operator}: {pluralize(check.calls, 'call')}, {pluralize(check.kernels, 'kernel')}: {state}"


def _lines(result: CheckResult) -> Iterator[str]:
    for family in result.families:
        is_whole = family.compared and not any(note.code == "build-uncompared" for note in family.notes)
        agree = ", inline functions agree" if is_whole else ""
        state = f"every kernel plans, every fragment is used{agree}" if family.holds else "FAILED"
        fragments, kernels = pluralize(family.fragments, "fragment"), pluralize(family.kernels, "kernel")
        yield f"{family.family}: {fragments}, {kernels}: {state}"
        notes = [*dict.fromkeys(note.message for note in family.notes)]
        yield from (f"  note: {message}" for message in notes[:SHOWN])
        if len(notes) > SHOWN:
            yield f"  and {pluralize(len(notes) - SHOWN, 'more note')} (--json lists all)"
        if result.archs:
            yield f"{family.family}: {_describe_links(family, result)}"
    if result.archs:
        yield f"nvJitLink {result.nvjitlink}, {result.seconds:.1f} s"


def _describe_links(family: FamilyCheck, result: CheckResult) -> str:
    if not family.kernels:
        return "linked nothing: it has no kernel"
    stubs = ", with stubs of what callers supply" if family.completed_by_callers else ""
    cubins = f", {pluralize(family.cubins, 'link')} of cubins too" if family.cubins else ""
    of = (
        pluralize(family.kernels, "kernel")
        if family.linked == family.kernels
        else f"{family.linked} of {family.kernels} kernels"
    )
    links = family.linked * len(result.archs) + family.cubins
    state = f"{family.failed} of {links} links fail" if family.failed else "all link"
    known = f" ({family.known} as known from an earlier check)" if family.known else ""
    return f"linked {of}, for {', '.join(result.archs)}{cubins}{stubs}: {state}{known}"
