"""``jitlto.load``: a family of a database, or of its sources."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jitlto.base.text import check_type
from jitlto.runtime import session as sessions
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session

if TYPE_CHECKING:  # not imported at run time: a cache hit needs none
    from jitlto.database import FragmentDatabase


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
    if database is None and (not isinstance(family, str) or "/" in name or name.endswith((".", ".toml"))):
        from jitlto.source.family import SourceFamily  # imported late: it loads the build side, and Jinja

        return SourceFamily(name, session)
    file: FragmentDatabase | DatabaseFile
    if database is None:
        file = session.registry.find(name)
    elif isinstance(database, str | os.PathLike):
        file = session.registry.file(database)
    else:
        file = database
    made = KernelFamily(name, file, session)
    session.loaded[name, made.contents.digest] = made  # in the place of one whose file may be gone
    return made
