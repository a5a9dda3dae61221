"""The output that commands share: JSON, warnings, causes of failures, the result of a build."""

from __future__ import annotations

import codecs
import json
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from jitlto.model.text import pluralize

if TYPE_CHECKING:  # not imported at run time, so that usage errors and other commands start fast
    from jitlto.build.merge import MergeReport
    from jitlto.build.pipeline import BuildReport
    from jitlto.storage.check_result import Cause


SHOWN = 5  # places of a cause, or notes of a kind


def print_json(value: object) -> None:
    """Write a value, such as a msgspec struct, as JSON to standard output."""
    value = msgspec.to_builtins(value)
    # Let JSON escape characters that the encoding lacks: the stream's own escapes are not valid JSON.
    utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    click.echo(json.dumps(value, indent=2, ensure_ascii=not utf8))


def print_warning(message: str) -> None:
    """Print a warning to standard error."""
    click.secho("warning: ", fg="yellow", nl=False, err=True)
    click.echo(message, err=True)


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
        click.echo(f"{pluralize(len(report.fragments), 'fragment')} {summary}")
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
