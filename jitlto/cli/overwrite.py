"""What commands may not overwrite: what they read, another file that they write, and databases by something else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.errors import DatabaseError
from jitlto.storage.database import is_database

if TYPE_CHECKING:  # what other commands need not wait for
    from jitlto.storage.declaration import FamilyDeclaration


def refuse(written: Mapping[str, Path | None], inputs: Iterable[Path | None], *, database: str | None = None) -> None:
    """Refuse files that a command is to write in the place of what it must not touch, before it does any work.

    Parameters
    ----------
    written : mapping of str to Path or None
        The files to write, by the option that names them; None if it was not given.
    inputs : iterable of Path or None
        What the command reads.
    database : str, optional
        The option whose file becomes a fragment database, which may replace another.

    Raises
    ------
    click.UsageError
        If a file is an input, or two of them are one.
    DatabaseError
        If a file is a fragment database and something else is to be written there.
    """
    given = {option: path for option, path in written.items() if path is not None}
    read = [path for path in inputs if path is not None]
    seen: dict[str, Path] = {}
    for option, path in given.items():
        for other, taken in seen.items():
            if _same(path, taken):
                raise click.UsageError(f"{other} and {option} name one file, {path}: give two names")
        seen[option] = path
        for source in read:
            if _same(path, source):
                raise click.UsageError(f"{option} {path} would replace what this command reads: give another name")
        if option != database and os.path.isfile(path) and _holds_database(path):  # noqa: PTH113 - long names
            raise DatabaseError(
                "is a fragment database: it is not replaced by anything else",
                where=str(path),
                hint=f"give another name with {option}, or remove it first",
            )


def sources(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """The files that families are declared in, matrices and templates too."""
    found: list[Path] = []
    for family in families:
        found.append(family.path)
        found += [path for group in family.groups for path in (group.matrix, group.template) if path is not None]
    return found


def _same(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, be it there yet or not."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _holds_database(path: Path) -> bool:
    try:
        return is_database(path)
    except OSError:
        return False  # it cannot be written either, or is told where it is
