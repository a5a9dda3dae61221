"""Errors for families that are not found, or found more than once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jitlto.base.errors import DatabaseError, JitltoError, RegistryError
from jitlto.base.files import SUFFIX, digest_of
from jitlto.base.text import suggest
from jitlto.database import MERGE_HINT
from jitlto.families import declaration
from jitlto.link.requests import Contents
from jitlto.runtime.discovery import editable, entry_points
from jitlto.runtime.discovery.entry_points import InstalledFamily

_MOST_NAMED = 5  # of the databases that were searched
_DIGITS = 12  # of a digest, enough to tell databases apart


def ambiguous_package(family: str, titles: list[str], example: str) -> RegistryError:
    """Return the error for a family that several installed packages provide."""
    return RegistryError(
        f"several installed packages provide the family {family!r}: {', '.join(titles)}",
        code="registry-ambiguous-package",
        hint=f"name one: jitlto.family({family!r}, distribution={example!r}); on the command line {example}:{family}",
    )


def not_in_package(distribution: str, family: str) -> RegistryError:
    """Return the error for a package that is not installed or does not provide a family."""
    wanted, installed = entry_points.canonical_name(distribution), entry_points.families()
    own = [each for each in installed if entry_points.canonical_name(each.distribution) == wanted]
    if outdated := _outdated_metadata(family, own):
        return outdated
    if own:
        names = sorted({each.family for each in own})
        return RegistryError(
            f"{own[0].title} provides no family {family!r}",
            code="registry-not-in-package",
            hint=_meant(family, names) + f"it provides {', '.join(names)}",
        )
    titles = sorted({each.distribution for each in installed})
    return RegistryError(
        f"no installed package {distribution!r} provides a family",
        code="registry-unknown-package",
        hint=_meant(distribution, titles)
        + (f"packages with families: {', '.join(titles)}" if titles else "no installed package provides a family")
        + "; to list them: jitlto ls --installed",
    )


def unknown(family: str, on_path: set[str]) -> RegistryError:
    """Return the error for a family that no database holds.

    Args:
        family : str
        on_path: The families of the databases on the search path.
    """
    if family.endswith(SUFFIX):
        return RegistryError(
            f"{family!r} names a database, not a family",
            code="registry-not-a-family",
            hint="give a family that it holds, and the database separately: jitlto.load(FAMILY, DB), or --db DB",
        )
    installed = entry_points.families()
    if outdated := _outdated_metadata(family, installed):
        return outdated
    packages: dict[str, set[str]] = {}
    for each in installed:
        packages.setdefault(each.family, set()).add(each.distribution)
    known = sorted(on_path | packages.keys())
    listed = (f"{name} ({', '.join(sorted(packages[name]))})" if name in packages else name for name in known)
    seen = "no database is on JITLTO_DATABASE_PATH, and no installed package provides a family"
    declared = declaration.list_families()
    can_be_built = family in declared
    example = f"{family} -o {family}.fragdb" if can_be_built else "FAMILY -o DB"
    return RegistryError(
        f"no database holds the family {family!r}",
        code="registry-unknown-family",
        hint=("" if can_be_built else _meant(family, [*known, *declared]))
        + (f"known families: {', '.join(listed)}" if known else seen)
        + "; install the package that provides it, give its database (jitlto.load(FAMILY, DB); on the command line "
        + f"--db DB, or DB in place of the name), or build one: jitlto build {example}",
    )


def _outdated_metadata(family: str, installed: Iterable[InstalledFamily]) -> RegistryError | None:
    """Return the error for a family that only the ``pyproject.toml`` of an editable install declares."""
    for each in installed:
        if each.source is not None and family in (editable.declared_families(each.source) or ()):
            return editable.outdated_metadata(each, each.source)
    return None


def not_held(name: str, contents: Contents, path: Path) -> JitltoError:
    """Return the error for a database that does not hold a family, or only a part of it."""
    if contents.part is not None:
        what = f"database is {contents.part} of a build: its kernels lack fragments"
        return DatabaseError(what, code="database-part", where=str(path), hint=MERGE_HINT)
    known = sorted(contents.families)
    return RegistryError(
        f"database holds no family {name!r}",
        code="registry-unknown-family",
        where=str(path),
        hint=_meant(name, known) + f"it holds {', '.join(known) or 'none'}",
    )


def not_found_again(family: str, digest: str, location: Path, searched: Iterable[Path]) -> RegistryError:
    """Return the error for a family that another process loaded from a database that this one does not find.

    Args:
        family: The family's name.
        digest: The database's digest.
        location: Its path in the other process.
        searched: The databases that this one sees, with other digests.
    """
    found = {path: digest_of(path) for path in (location, *searched)}
    others = [f"{path} ({other[:_DIGITS]}…)" for path, other in found.items() if other is not None][:_MOST_NAMED]
    seen = f"others are {', '.join(others)}" if others else "it sees no other either"
    return RegistryError(
        f"this process finds no database with the digest {digest[:_DIGITS]}…, from which {family!r} was loaded",
        code="registry-not-found-again",
        where=str(location),
        hint=f"{seen}; have the same one on both sides: in an installed package, on JITLTO_DATABASE_PATH, at the same "
        f"path, or loaded there before: jitlto.load({family!r}, DB)",
    )


def _meant(name: str, known: list[str]) -> str:
    question = suggest(name, known)
    return question and f"{question} "
