"""The files that building a family may read."""

import re
from glob import glob
from pathlib import Path

from jitlto.compile.headers import HeaderSearch
from jitlto.compile.source_files import walk_sources
from jitlto.families.declaration import FamilyDeclaration


def family_files(family: FamilyDeclaration, *, thorough: bool = False) -> list[Path]:
    """List the files that building a family may read, sorted.

    They are its declaration and matrices, all in the directories of its templates and headers, and the headers that
    these include from elsewhere: outside the directories, hidden, or behind links.

    Args:
        thorough: As for :func:`~jitlto.compile.source_files.walk_sources`.
    """
    templates = {group.template for group in family.groups if group.template}
    templates |= {template for _, template in family.generated}
    folders = {*family.include, *family.templates, *(each.parent for each in templates)}
    found = {family.path, *(group.matrix for group in family.groups if group.matrix)}
    patterns = (re.sub(r"\{\{.*?\}\}|@\w+@", "*", group.binary) for group in family.groups if group.binary)
    found.update(Path(path) for pattern in patterns for path in glob(pattern))  # noqa: PTH207 - of any directory
    found.update(walk_sources(sorted(folders), thorough=thorough))
    search = HeaderSearch(family.include)
    included = {name for path in sorted(found) for name in search.closure(path.read_bytes()).headers}
    return sorted({*found, *filter(None, map(search.path, included))})
