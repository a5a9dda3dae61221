"""The files that building families may read."""

import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from jitlto.base.files import normal_path
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.source_files import walk_sources
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.headers import STD_HEADERS


def family_files(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """List the files that building families may read, but for jitlto's own, as absolute paths; sorted.

    They are declarations and matrices, all in the directories of templates and headers, and the headers that these
    include from elsewhere: outside the directories, hidden, or behind links.
    """
    every: set[Path] = set()
    for family in families:
        templates = {group.template for group in family.groups if group.template}
        templates |= {template for _, template in family.generated}
        folders = {*family.include, *family.templates, *(each.parent for each in templates)}
        found = {family.path, *(group.matrix for group in family.groups if group.matrix)}
        patterns = (re.sub(r"\{\{.*?\}\}|@\w+@", "*", group.binary) for group in family.groups if group.binary)
        binaries = (Path(path) for pattern in patterns for path in glob(pattern))  # noqa: PTH207 - of any directory
        found.update(path for path in binaries if path.is_file())  # reading a FIFO would block
        found.update(walk_sources(sorted(folders), thorough=False))
        search = HeaderSearch(family.include)
        included = {name for path in found for name in search.closure(path.read_bytes()).headers}
        every.update(found, filter(None, map(search.path, included)))
    return sorted({normal_path(path.absolute()) for path in every if STD_HEADERS not in path.parents})
