"""What commands print: results, causes of failures, progress where a person looks; and the files that they write.

No command writes over what it reads, over another of its files, or over a database with something else.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jitlto.base import files
from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import DatabaseError
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.versions import Architecture, lowest_base
from jitlto.build.execution.events import Observer, Span
from jitlto.cli.ending import SHOWN, print_diagnostics
from jitlto.record.fragment import FragmentKey, ImageKind

if TYPE_CHECKING:  # most commands build nothing
    from jitlto.build.merge import MergeReport


def print_result(result: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command found: as JSON, from a value such as a msgspec struct or a dataclass, or as text."""
    if as_json:
        lines = [json.dumps(msgspec.to_builtins(result, enc_hook=str), indent=2)]
    for line in lines:
        click.echo(line)


def columns() -> int:
    """Return how many characters a terminal's line has room for; where nobody looks, no line is broken."""
    return shutil.get_terminal_size((1_000_000, 0)).columns


def print_annotations(found: Iterable[Diagnostic]) -> None:
    """Print commands of GitHub's workflows, which show each where it is in a pull request."""
    for each in found:
        # A path in the checkout is made relative there; others are shown.
        place = {"file": each.path and os.path.abspath(each.path), "line": each.line, "col": each.column}  # noqa: PTH100
        given = {name: _escape(str(value)) for name, value in (place | {"title": each.code}).items() if value}
        listed = ",".join(f"{name}={text.replace(':', '%3A').replace(',', '%2C')}" for name, text in given.items())
        kind = "notice" if each.severity is Severity.NOTE else each.severity
        click.echo(f"::{kind} {listed}::{_escape(str(replace(each, path=None)))}")


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def print_built(
    report: MergeReport, summary: str, *, as_json: bool, as_github: bool = False, quiet: bool = False, **more: object
) -> None:
    """Print the advice of a build or merge, then its result as JSON or in a few lines, with what may be done next."""
    print_diagnostics(report.advice)
    print_annotations(report.advice if as_github else ())
    keys = [str(fragment.key) for fragment in report.fragments]
    result = {"database": report.path, "digest": report.digest, "fragments": keys, "kernels": report.planned.kernels}
    result |= {"diagnostics": report.advice, **more}
    families = sorted({fragment.key.family for fragment in report.fragments})
    named = ", ".join(families) if len(families) <= SHOWN else f"{len(families)} families"
    what = f" of {named}" if len(families) > 1 else ""  # families that others use are built too
    lines = [f"{pluralize(len(keys), 'fragment')}{what}{report.planned} {summary}", f"digest {report.digest}"]
    if cubins := {i.sha256: i.size for each in report.fragments for i in each.images_of(ImageKind.SASS)}:
        all_bytes = report.path.stat().st_size
        lines.insert(1, f"cubins take {format_bytes(sum(cubins.values()))} of {format_bytes(all_bytes)}")
    print_result(result, lines, as_json=as_json)
    if report.planned.example and not (as_json or quiet):
        name, values = report.planned.example
        own = {image.architecture for each in report.fragments if each.key.family == name for image in each.images}
        arch, path = max(Architecture(90), lowest_base(own)).sm, str(report.path)
        target = [path] if len(report.planned.kernels) == 1 else [name, "--db", path]
        given = shlex.join([*target, *(f"{each}={value}" for each, value in values.items())])
        click.echo(f"next: jitlto check {shlex.quote(path)} --link {arch}", err=True)
        click.echo(f"      jitlto plan {given} --arch {arch}", err=True)


class Progress(Observer):
    """What is done of long work, on a bar if a person looks."""

    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._bar = bar

    def add(self, count: int) -> None:
        """There is so much more to do."""
        self._bar.length += count
        self._bar.finished = False  # click takes the end of one step for the end of all

    def step(self, *_: Any, **__: Any) -> None:
        """A piece of work is done."""
        self._bar.length = max(self._bar.length, self._bar.pos + 1)  # nobody may know how much there is
        self._bar.update(1)

    def started(self, keys: Collection[FragmentKey]) -> None:
        self.add(len(keys))

    def compiled(self, span: Span) -> None:
        super().compiled(span)
        self.step()

    cached = failed = step


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of long work as a bar on a terminal; a log gets none."""
    shows = not quiet and sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    with click.progressbar(length=0, label=what, file=sys.stderr if shows else io.StringIO(), show_pos=True) as bar:
        yield Progress(bar)


def check_output(path: Path | None, others: Iterable[Path | None] = ()) -> None:
    """Check before any work that a command, which reads or writes ``others`` too, may write a file, and can.

    Raises:
        click.UsageError: If it is one of the others.
        DatabaseError: If another kind of file would overwrite a fragment database.
        JitltoError: If it cannot be written.
    """
    if path is None:
        return
    if os.path.realpath(path) in (os.path.realpath(other) for other in others if other is not None):
        raise click.UsageError(f"{path} would overwrite another file of this command: give a different name")
    # A file that cannot be read fails, with the reason, when it is written.
    if os.path.isfile(path) and os.access(path, os.R_OK) and files.is_database(path):  # noqa: PTH113
        what = "is a fragment database: not overwritten with another kind of file"
        hint = "give a different name, or remove the file first"
        raise DatabaseError(what, code="database-not-overwritten", where=str(path), hint=hint)
    with writing(path):
        files.check_replaceable(path)


def write_output(path: Path, data: bytes, *, make_directory: bool = False) -> None:
    """Write a file, whole or not at all.

    Raises:
        JitltoError: If it cannot be written.
    """
    with writing(path):
        if make_directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, data, sync=not make_directory)  # of many files, which are quickly made again, none is synced


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make an :class:`OSError` the error that a command ends with."""
    try:
        yield
    except OSError as error:
        hint = "name a regular file, or a new one in a directory that exists and that you may write"
        raise files.unwritable(error, path, hint) from error
