"""Families that are not there, or there more than once: what is said of them."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.errors import JitltoError, RegistryError
from jitlto.runtime.discovery import entry_points
from jitlto.storage.files import SUFFIX, digest_of

if TYPE_CHECKING:
    from jitlto.runtime.discovery.entry_points import InstalledFamily
    from jitlto.runtime.discovery.registry import DatabaseFile


def only_one(family: str, found: list[InstalledFamily]) -> Path:
    """The database that several installed packages bring, if it is but one.

    Raises
    ------
    RegistryError
        If they bring different ones, or one of them cannot be had.
    """
    paths: list[Path] = []
    titles, digests = [], set()
    for each in sorted(found, key=lambda each: each.distribution):
        try:
            paths.append(each.database())
            digests.add(digest_of(paths[-1]))
            titles.append(each.title)
        except JitltoError as error:
            titles.append(f"{each.title} ({error.where}: {error.what})")
    if len(paths) == len(found) and len(digests) == 1 and None not in digests:
        return paths[0]
    name = min(each.distribution for each in found)
    raise RegistryError(
        f"several installed packages bring the family {family!r}: {', '.join(titles)}",
        hint=f"say which: jitlto.family({family!r}, distribution={name!r}), on the command line {name}:{family}, "
        "or --db DB",
    )


def not_in(distribution: str, family: str) -> RegistryError:
    """That an installed package does not bring a family."""
    wanted, brought = entry_points.normalised(distribution), entry_points.families()
    of_it = [each for each in brought if entry_points.normalised(each.distribution) == wanted]
    if of_it:
        names = sorted({each.family for each in of_it})
        return RegistryError(
            f"{of_it[0].title} brings no family {family!r}",
            hint=_meant(family, names) + f"it brings {', '.join(names)}",
        )
    titles = sorted({each.distribution for each in brought})
    return RegistryError(
        f"no installed package {distribution!r} brings families",
        hint=_meant(distribution, titles)
        + (f"these do: {', '.join(titles)}" if titles else "no installed package does")
        + "; `jitlto ls --installed` lists them",
    )


def unknown(family: str, on_path: set[str]) -> RegistryError:
    """That nothing holds a family; ``on_path`` are those of the databases on the search path."""
    if family.endswith(SUFFIX):
        return RegistryError(
            f"{family!r} is the name of a database, and no family's",
            hint="name a family that it holds, and the database beside it: --db DB, or jitlto.load(FAMILY, DB)",
        )
    brought = entry_points.families()
    packages = {
        name: sorted({b.distribution for b in brought if b.family == name}) for name in {b.family for b in brought}
    }
    known = sorted(on_path | packages.keys())
    listed = (f"{name} ({', '.join(packages[name])})" if name in packages else name for name in known)
    seen = "no database is on JITLTO_DATABASE_PATH, and no installed package brings a family"
    return RegistryError(
        f"no database holds the family {family!r}",
        hint=_meant(family, known)
        + (f"families seen: {', '.join(listed)}" if known else seen)
        + "; install the package that brings it, name a database (--db DB, or jitlto.load), "
        + f"or build one: jitlto build {family} -o {family}.fragdb",
    )


def not_held(name: str, file: DatabaseFile) -> RegistryError:
    """That a database does not hold a family."""
    families = sorted(file.contents.families)
    return RegistryError(
        f"holds no family {name!r}",
        where=str(file.path),
        hint=_meant(name, families) + f"it holds {', '.join(families) or 'none'}",
    )


def _meant(given: str, known: list[str]) -> str:
    """The nearest of the names that are known, as a question; nothing if none is near."""
    near = difflib.get_close_matches(given, known, 1)
    return f"did you mean {near[0]!r}? " if near else ""
