"""``jitlto.family`` and ``jitlto.load``: a family of a database, or of its sources."""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from jitlto.base.text import check_type
from jitlto.runtime import session as sessions
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session

if TYPE_CHECKING:  # not imported at run time: a cache hit needs none
    from jitlto.database import FragmentDatabase


def family(name: str, *, distribution: str | None = None, session: Session = sessions.default) -> KernelFamily:
    """Find a family by name: in the databases on ``JITLTO_DATABASE_PATH``, then in installed packages.

    No package is imported. The same name gives the same object until the database changes. A family of a package that
    is installed editable is loaded from its sources, as :func:`load` does it.

    Args:
        name: The family's name.
        distribution: The installed package to use, if several have a family of that name.
        session: The session to use; by default that of the process.

    Raises:
        RegistryError: If no database holds the family, or several databases with different contents do.
        DatabaseError: If its database cannot be read.
        ProjectError, FamilyError, MatrixError, RenderError: If the sources of an editable install are not those of it.
    """
    check_type(name, str, "family must be a name")
    check_type(distribution, (str, NoneType), "distribution must be the name of a package")
    families = session.families  # those of before a reset in another thread
    loaded: KernelFamily | None = families.get((name, distribution))
    if loaded is not None and loaded.in_place:
        return loaded
    made = _find(name, distribution, session)
    if loaded is None:
        return families.setdefault((name, distribution), made)  # type: ignore[no-any-return]  # the first thread's
    families[name, distribution] = made
    return made


def load(
    family: str | os.PathLike[str],
    database: str | os.PathLike[str] | FragmentDatabase | None = None,
    *,
    session: Session = sessions.default,
) -> KernelFamily:
    """Load a family from a fragment database, or from its sources.

    From sources, what a plan may need is compiled when it is asked for, into the build cache: for the architecture of
    the plan, and without cubins. Edits of headers, templates, matrices and ``family.toml`` are seen by the next
    ``launcher()``, ``plan()`` and ``planner()``; launchers and dispatchers that were made before stay as they are.

    Args:
        family: The family's name; or the path of its ``family.toml``, or of the directory that holds that. A text with
            a slash, ``.`` and ``..`` are paths.
        database: The database, or its path. By default it is searched for as by :func:`jitlto.family`.
        session: The session to use; by default that of the process.

    Raises:
        RegistryError: If no database holds the family, or several databases with different contents do.
        DatabaseError: If a database cannot be read.
        FamilyError, MatrixError, RenderError: If sources are not those of a family.
    """
    check_type(family, (str, os.PathLike), "family must be a name, or the path of sources")
    name = os.fspath(family)
    if database is None:
        is_path = not isinstance(family, str) or "/" in name or name.endswith((".", ".toml"))
        return _load_sources(Path(name), session) if is_path else _find(name, None, session)
    file = session.registry.file(database) if isinstance(database, str | os.PathLike) else database
    made = KernelFamily(name, file, session)
    session.loaded[name, made.contents.digest] = made  # in the place of one whose file may be gone
    return made


def _find(name: str, distribution: str | None, session: Session) -> KernelFamily:
    found = session.registry.find(name, distribution)
    if not isinstance(found, DatabaseFile):  # a package that is installed editable
        from jitlto.families.pyproject import find_sources  # imported late: few processes read a declaration

        if found.source and (path := find_sources(found.source, name)):
            return _load_sources(path, session)
        found = session.registry.of_package(found)
    return KernelFamily(name, found, session)


def _load_sources(path: Path, session: Session) -> KernelFamily:
    from jitlto.source.family import SourceFamily  # imported late: it loads the build side, and Jinja

    return SourceFamily(path, session)
