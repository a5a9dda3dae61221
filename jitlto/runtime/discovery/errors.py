"""Errors for families that are not there, or there more than once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jitlto.errors import RegistryError
from jitlto.model.text import suggest
from jitlto.runtime.discovery import entry_points
from jitlto.storage.files import SUFFIX


def ambiguous_package(family: str, titles: list[str], example: str) -> RegistryError:
    """The error for a family that several installed packages bring."""
    return RegistryError(
        f"several installed packages bring the family {family!r}: {', '.join(titles)}",
        code="registry-ambiguous-package",
        hint=f"name one: jitlto.family({family!r}, distribution={example!r}), on the command line {example}:{family}, "
        "or --db DB",
    )


def not_in_package(distribution: str, family: str) -> RegistryError:
    """The error for an installed package that does not bring a family."""
    wanted, brought = entry_points.canonical_name(distribution), entry_points.families()
    of_it = [each for each in brought if entry_points.canonical_name(each.distribution) == wanted]
    if of_it:
        names = sorted({each.family for each in of_it})
        return RegistryError(
            f"{of_it[0].title} brings no family {family!r}",
            code="registry-not-in-package",
            hint=_meant(family, names) + f"it brings {', '.join(names)}",
        )
    titles = sorted({each.distribution for each in brought})
    return RegistryError(
        f"no installed package {distribution!r} brings families",
        code="registry-unknown-package",
        hint=_meant(distribution, titles)
        + (f"these do: {', '.join(titles)}" if titles else "no installed package does")
        + "; `jitlto ls --installed` lists them",
    )


def unknown(family: str, on_path: set[str]) -> RegistryError:
    """The error for a family that nothing holds.

    Args:
        family : str
        on_path: The families of the databases on the search path.
    """
    if family.endswith(SUFFIX):
        return RegistryError(
            f"{family!r} names a database, not a family",
            code="registry-not-a-family",
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
        code="registry-unknown-family",
        hint=_meant(family, known)
        + (f"families seen: {', '.join(listed)}" if known else seen)
        + "; install the package that brings it, name a database (--db DB, or jitlto.load), "
        + f"or build one: jitlto build {family} -o {family}.fragdb",
    )


def not_held(name: str, families: Iterable[str], path: Path) -> RegistryError:
    """The error for a database that does not hold a family."""
    known = sorted(families)
    return RegistryError(
        f"database holds no family {name!r}",
        code="registry-unknown-family",
        where=str(path),
        hint=_meant(name, known) + f"it holds {', '.join(known) or 'none'}",
    )


def _meant(name: str, known: list[str]) -> str:
    question = suggest(name, known)
    return question and f"{question} "
