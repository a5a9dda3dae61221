"""Files that commands write: never over what they read, over each other, or over a database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base import files
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.files import is_database

if TYPE_CHECKING:  # not imported at run time, so that usage errors and other commands start fast
    from jitlto.families.declaration import FamilyDeclaration


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
    paths = {option: path for option, path in outputs.items() if path is not None}
    read = [path for path in inputs if path is not None]
    seen: dict[str, Path] = {}
    for option, path in paths.items():
        for other, taken in seen.items():
            if _is_same(path, taken):
                raise click.UsageError(f"{other} and {option} are the same file, {path}: give different names")
        seen[option] = path
        for source in read:
            if _is_same(path, source):
                raise click.UsageError(
                    f"{option} {path} would overwrite an input of this command: give a different name"
                )
        if option != database and os.path.isfile(path) and _holds_database(path):  # noqa: PTH113 - long names
            what = "is a fragment database: not overwritten with another kind of file"
            hint = f"give a different name with {option}, or remove the file first"
            raise DatabaseError(what, code="database-not-overwritten", where=str(path), hint=hint)


def family_sources(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """Return the declarations, matrices and templates of families."""
    found: list[Path] = []
    for family in families:
        found.append(family.path)
        found += [path for group in family.groups for path in (*group.matrices, group.template) if path is not None]
    return found


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
    try:
        yield
    except OSError as error:
        hint = files.write_hint(
            error, "name a regular file, or a new one in a directory that exists and that you may write"
        )
        what, code = f"cannot be written: {error.strerror or error}", "jitlto-unwritable-file"
        raise JitltoError(what, code=code, where=str(path), hint=hint) from error


def _is_same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file, which may not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _holds_database(path: Path) -> bool:
    try:
        return is_database(path)
    except OSError:
        return False  # writing it will fail and report the reason
