"""The output that commands share: JSON, warnings, causes of failures, the result of a build."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import click
import msgspec

from jitlto.base.text import pluralize

if TYPE_CHECKING:  # not imported at run time, so that usage errors and other commands start fast
    from jitlto.build.merge import MergeReport
    from jitlto.build.pipeline import BuildReport
    from jitlto.record.check_result import Cause


_PART = 500  # items of a list that are written at once
SHOWN = 5  # places of a cause, or notes of a kind


def print_json(value: object) -> None:
    """Write a value, such as a msgspec struct, as JSON to standard output."""
    click.echo(_to_json(value))


def print_json_list(head: Mapping[str, object], name: str, items: Iterable[object]) -> None:
    """Write ``head`` with the list ``name`` behind its members as :func:`print_json` does, a part at a time."""
    beginning = _to_json({**head, name: [0]})
    click.echo(beginning[: beginning.rindex("[") + 1], nl=False)
    texts, separator = ("    " + _to_json(item).replace("\n", "\n    ") for item in items), "\n"
    while part := ",\n".join(islice(texts, _PART)):
        click.echo(separator + part, nl=False)
        separator = ",\n"
    click.echo("\n  ]\n}" if separator != "\n" else "]\n}")


def _to_json(value: object) -> str:
    # Let JSON escape characters that the encoding lacks: the stream's own escapes are not valid JSON.
    utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=not utf8)


def print_warning(message: str) -> None:
    """Print a warning to standard error."""
    click.secho("warning: ", fg="yellow", nl=False, err=True)
    click.echo(message, err=True)


def print_link_warnings(said: Mapping[str, Collection[str]]) -> None:
    """Print what links warned of: each text with the kernels, at most a few."""
    for text, kernels in islice(said.items(), SHOWN):
        more = f" (and {len(kernels) - 1} more)" if len(kernels) > 1 else ""
        print_warning(f"{next(iter(kernels))}{more}: {text}")
    if len(said) > SHOWN:
        click.echo(f"  and {len(said) - SHOWN} more such warnings", err=True)


def print_built(report: BuildReport | MergeReport, summary: str, *, as_json: bool, **more: object) -> None:
    """Print the advice of a build or merge, then its result as JSON or in two lines."""
    for advice in report.advice:
        print_warning(advice)
    if as_json:
        print_json(
            {
                "database": str(report.path),
                "digest": report.digest,
                "fragments": [str(fragment.key) for fragment in report.fragments],
                "advice": list(report.advice),
                **more,
            }
        )
    else:
        families = sorted({fragment.key.family for fragment in report.fragments})
        named = ", ".join(families) if len(families) <= SHOWN else f"{len(families)} families"
        what = f" of {named}" if len(families) > 1 else ""  # families that others use are built too
        click.echo(f"{pluralize(len(report.fragments), 'fragment')}{what} {summary}")
        click.echo(f"digest {report.digest}")


def print_cause(subject: str, cause: Cause) -> None:
    """Print one cause of failures: the first of them in full, and where else it occurs."""
    click.secho("error: ", fg="red", nl=False, err=True)
    target = f" for {', '.join(cause.archs)}" if cause.archs else ""
    code = f" [{cause.code}]" if cause.code else ""
    times = f" ({cause.count} times; showing the first)" if cause.count > 1 else ""
    click.echo(f"{subject}: {cause.kind}{target}: {cause.message}{code}{times}", err=True)
    if cause.hint:
        click.echo(f"  hint: {cause.hint}", err=True)
    for place in cause.at[:SHOWN]:
        if place.configuration:
            values = " ".join(f"{name}={value}" for name, value in place.configuration.items())
            target = f" ({place.arch})" if len(cause.archs) > 1 else ""
            click.echo(f"  at {place.subject.partition('[')[0]}: {values}{target}", err=True)
    if cause.count > SHOWN:
        click.echo(f"  and {cause.count - SHOWN} more (--json lists all)", err=True)
