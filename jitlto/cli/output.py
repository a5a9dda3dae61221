"""What commands print: JSON, causes of failures, the result of a build, progress where a person looks; and files.

No command writes over what it reads, over another of its files, or over a database with something else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jitlto.base import files
from jitlto.base.errors import DatabaseError, JitltoError
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
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


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
    """What is done of long work, on a bar of rich if there is one."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task, self._total = bar, task, 0

    def add(self, count: int) -> None:
        """There is so much more to do."""
        self._total += count
        if self._bar:
            self._bar.update(self._task, total=self._total)

    def step(self, *_: object) -> None:
        """A piece of work is done."""
        if self._bar:
            self._bar.advance(self._task)

    def started(self, keys: Collection[FragmentKey]) -> None:
        """Count fragments that will be compiled, or found in the cache."""
        self.add(len(keys))

    def cached(self, key: FragmentKey) -> None:
        """Count a fragment found in the cache."""
        self.step(key)

    def compiled(self, span: Span) -> None:
        """Count a compile."""
        self.step(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """Count a failed compile."""
        self.step(key, error)


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
        yield Progress(bar, bar.add_task(what, total=None))


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Iterable[Path | None], *, database: str | None = None
) -> None:
    """Check before any work that a command may write its files.

    Args:
        outputs: The files to write, by the option that names them; None if it was not given.
        inputs: The files that the command reads.
        database: The option that names the fragment database to write, which may replace an existing database.

    Raises:
        click.UsageError: If an output is also an input, or two options name the same file.
        DatabaseError: If another kind of output would overwrite a fragment database.
    """
    taken = {os.path.realpath(path): "" for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        place = os.path.realpath(path)
        if taken.get(place):
            raise click.UsageError(f"{taken[place]} and {option} are the same file, {path}: give different names")
        if place in taken:
            raise click.UsageError(f"{option} {path} would overwrite an input of this command: give a different name")
        taken[place] = option
        # A file that cannot be read fails, with the reason, when it is written.
        if option != database and os.path.isfile(path) and os.access(path, os.R_OK) and files.is_database(path):  # noqa: PTH113
            what = "is a fragment database: not overwritten with another kind of file"
            hint = f"give a different name with {option}, or remove the file first"
            raise DatabaseError(what, code="database-not-overwritten", where=str(path), hint=hint)


def write_output(path: Path, data: bytes, *, make_directory: bool = False) -> None:
    """Write a file, whole or not at all.

    Raises:
        JitltoError: If it cannot be written.
    """
    with report_unwritable(path):
        if make_directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, data, sync=not make_directory)  # of many files, which are quickly made again, none is synced


def check_writable(path: Path) -> None:
    """Check before any work that :func:`write_output` can write a file.

    Raises:
        JitltoError: If it cannot.
    """
    with report_unwritable(path):
        files.check_replaceable(path)


@contextmanager
def report_unwritable(path: Path) -> Iterator[None]:
    """Make an :class:`OSError` the error that a command ends with."""
    try:
        yield
    except OSError as error:
        otherwise = "name a regular file, or a new one in a directory that exists and that you may write"
        what, hint = f"cannot be written: {error.strerror or error}", files.write_hint(error, otherwise)
        raise JitltoError(what, code="jitlto-unwritable-file", where=str(path), hint=hint) from error
