"""Errors for families that are not found, or found more than once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jitlto.base.errors import DatabaseError, JitltoError, RegistryError
from jitlto.base.files import SUFFIX, digest_of
from jitlto.base.text import pluralize, suggest
from jitlto.database import MERGE_HINT
from jitlto.link.requests import Contents
from jitlto.runtime.discovery import entry_points
from jitlto.runtime.discovery.entry_points import InstalledFamily

_DIGITS = 12  # of a digest, enough to tell databases apart
_REMEDY = (
    "install the package that provides it, give its database (jitlto.load(FAMILY, DB); on the command line --db DB, or "
    "DB in place of the name), or build one: jitlto build FAMILY -o DB"
)


def ambiguous(family: str, paths: Sequence[Path], packages: Sequence[InstalledFamily]) -> RegistryError:
    """Return the error for a family that several databases hold, of the search path or of installed packages."""
    if not packages:
        what = f"several databases hold the family {family!r}: {', '.join(map(str, paths))}"
        return RegistryError(what, code="registry-ambiguous-database", hint="name one: --db DB, or database=")
    example = packages[0].distribution
    return RegistryError(
        f"several installed packages provide the family {family!r}: {', '.join(each.title for each in packages)}",
        code="registry-ambiguous-package",
        hint=f"name one: jitlto.family({family!r}, distribution={example!r}); on the command line {example}:{family}",
    )


def unknown(family: str, distribution: str | None, on_path: Sequence[Contents]) -> RegistryError:
    """Return the error for a family that no database holds, or none of the package that was named.

    Args:
        family: The name of the family.
        distribution: The installed package that was named.
        on_path: The contents of the databases on the search path.
    """
    installed = entry_points.families()
    known = {name: name for contents in on_path for name in contents.families}
    known |= {each.family: f"{each.family} ({each.distribution})" for each in installed}
    packages = sorted({each.distribution for each in installed})
    nearest = suggest(distribution, packages) if distribution and family in known else suggest(family, known)
    if family.endswith(SUFFIX):
        nearest = "this names a database: give a family that it holds as well;"
    listed = ", ".join(known[name] for name in sorted(known)) or "none"
    return _not_found(
        f"the package {distribution!r} provides no" if distribution else "no database holds the",
        family,
        f"{nearest} searched {pluralize(len(on_path), 'database')} on JITLTO_DATABASE_PATH and "
        f"{pluralize(len(packages), 'installed package')}, with the known families: {listed}; {_REMEDY}",
    )


def not_held(name: str, contents: Contents, path: Path) -> JitltoError:
    """Return the error for a database that does not hold a family, or only a part of it."""
    if contents.part is not None:
        what = f"database is {contents.part} of a build: its kernels lack fragments"
        return DatabaseError(what, code="database-part", where=str(path), hint=MERGE_HINT)
    known = sorted(contents.families)
    hint = f"{suggest(name, known)} it holds {', '.join(known) or 'none'}"
    return _not_found("database holds no", name, hint, str(path))


def _not_found(who: str, family: str, hint: str, where: str | None = None) -> RegistryError:
    what = f"{who} family {family!r}"
    return RegistryError(what, code="registry-unknown-family", where=where, hint=hint.lstrip())


def not_found_again(family: str, digest: str, location: Path) -> RegistryError:
    """Return the error for a family that another process loaded from a database that this one does not find."""
    other = f"; there is {found[:_DIGITS]}…" if (found := digest_of(location)) else ""
    return RegistryError(
        f"this process finds no database with the digest {digest[:_DIGITS]}…, from which {family!r} was loaded{other}",
        code="registry-not-found-again",
        where=str(location),
        hint="have the same one on both sides: in an installed package, on JITLTO_DATABASE_PATH, at the same path, or "
        f"loaded there before: jitlto.load({family!r}, DB)",
    )
