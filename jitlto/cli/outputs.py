"""Files that commands write: never over what they read, over each other, or over a database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from jitlto.base import files
from jitlto.base.errors import DatabaseError, JitltoError


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
        if option != database and _holds_database(path):
            what = "is a fragment database: not overwritten with another kind of file"
            hint = f"give a different name with {option}, or remove the file first"
            raise DatabaseError(what, code="database-not-overwritten", where=str(path), hint=hint)


def _holds_database(path: Path) -> bool:
    try:
        return path.is_file() and files.is_database(path)
    except OSError:
        return False  # writing it will fail and report the reason


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
