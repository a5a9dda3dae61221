"""What commands print: JSON, causes of failures, the result of a build, and progress where a person looks."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jitlto.base.errors import JitltoError
from jitlto.base.text import pluralize
from jitlto.build.execution.events import Observer, Span
from jitlto.cli.ending import print_error, print_warning
from jitlto.record.check_result import Cause
from jitlto.record.fragment import FragmentKey

if TYPE_CHECKING:  # most commands build nothing
    from jitlto.build.merge import MergeReport
    from jitlto.build.pipeline import BuildReport

SHOWN = 5  # places of a cause, or notes of a kind


def print_json(value: object) -> None:
    """Write a value, such as a msgspec struct, as JSON to standard output."""
    click.echo(_to_json(value))


def print_json_list(head: Mapping[str, object], name: str, items: Iterable[object]) -> None:
    """Write ``head`` and behind its members the list ``name``, an item at a time."""
    separator = _to_json(head).removesuffix("\n}") + f",\n  {json.dumps(name)}: ["
    for item in items:
        sys.stdout.write(f"{separator}\n{_to_json(item)}")
        separator = ","
    click.echo(("" if separator == "," else separator) + "]\n}")


def _to_json(value: object) -> str:
    # Let JSON escape characters that the encoding lacks: the stream's own escapes are not valid JSON.
    utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=not utf8)


def print_built(report: BuildReport | MergeReport, summary: str, *, as_json: bool, **more: object) -> None:
    """Print the advice of a build or merge, then its result as JSON or in two lines."""
    for advice in report.advice:
        print_warning(advice)
    if as_json:
        fragments = [str(fragment.key) for fragment in report.fragments]
        result = {"database": str(report.path), "digest": report.digest, "fragments": fragments}
        print_json({**result, "advice": list(report.advice), **more})
        return
    families = sorted({fragment.key.family for fragment in report.fragments})
    named = ", ".join(families) if len(families) <= SHOWN else f"{len(families)} families"
    what = f" of {named}" if len(families) > 1 else ""  # families that others use are built too
    click.echo(f"{pluralize(len(report.fragments), 'fragment')}{what} {summary}")
    click.echo(f"digest {report.digest}")


def print_cause(subject: str, cause: Cause) -> None:
    """Print one cause of failures: the first of them in full, and where else it occurs."""
    target = f" for {', '.join(cause.archs)}" if cause.archs else ""
    code = f" [{cause.code}]" if cause.code else ""
    times = f" ({cause.count} times; showing the first)" if cause.count > 1 else ""
    print_error(f"{subject}: {cause.kind}{target}: {cause.message}{code}{times}")
    if cause.hint:
        click.echo(f"  hint: {cause.hint}", err=True)
    for place in cause.at[:SHOWN]:
        if place.configuration:
            values = " ".join(f"{name}={value}" for name, value in place.configuration.items())
            target = f" ({place.arch})" if len(cause.archs) > 1 else ""
            click.echo(f"  at {place.subject.partition('[')[0]}: {values}{target}", err=True)
    if cause.count > SHOWN:
        click.echo(f"  and {cause.count - SHOWN} more (--json lists all)", err=True)


class Progress(Observer):
    """What is done of long work; shows nothing."""

    def add(self, count: int) -> None:
        """There is so much more to do."""

    def step(self, _: object = None) -> None:
        """A piece of work is done."""

    def started(self, keys: Collection[FragmentKey]) -> None:
        """Count fragments that will be compiled, or found in the cache."""
        self.add(len(keys))

    def cached(self, key: FragmentKey) -> None:
        """Count a fragment found in the cache."""
        self.step(key)

    def compiled(self, span: Span) -> None:
        """Count a compile."""
        self.step(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:  # noqa: ARG002
        """Count a failed compile."""
        self.step(key)


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of long work as a bar on a terminal, which vanishes at the end; a log gets none."""
    # Do not let rich decide: it takes FORCE_COLOR, which CI systems set for coloured logs, to mean a terminal.
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        yield Progress()
        return
    from rich import console, progress  # imported late: takes 70 ms, and logs do not need it

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
    shown = (*columns, progress.TimeRemainingColumn())
    with progress.Progress(*shown, console=console.Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task(what, total=None))


class _Bar(Progress):
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task, self._total = bar, task, 0

    def add(self, count: int) -> None:
        self._total += count
        self._bar.update(self._task, total=self._total)

    def step(self, _: object = None) -> None:
        self._bar.advance(self._task)
