"""The files that building families may read."""

from collections.abc import Iterable
from pathlib import Path

from jitlto.base.files import normal_path
from jitlto.build.rendered_families import header_search, render
from jitlto.compile.source_files import walk_sources
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.headers import STD_HEADERS


def family_files(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """List the files that building families may read, but for jitlto's own, as absolute paths; sorted.

    They are declarations and matrices, all in the directories of templates and headers, and what rendered sources name
    elsewhere: outside the directories, hidden, or behind links.

    Raises:
        JitltoError: If a family cannot be rendered.
    """
    every: set[Path] = set()
    for family in families:
        files, folders = declared_places(family)
        every.update(files, walk_sources(sorted({*folders, *family.include}), thorough=False))
        search, names = header_search(family), set[str]()
        for each in render(family):
            if each.group.binary:
                every.add(Path(each.text))
            else:
                names |= search.closure(each.source.encode(), each.headers).headers.keys()
        every.update(filter(None, map(search.path, names)))
    own = {path for path in every if path.is_file() and STD_HEADERS not in path.parents}  # reading a FIFO would block
    return sorted({normal_path(path.absolute()) for path in own})


def declared_places(family: FamilyDeclaration) -> tuple[set[Path], set[Path]]:
    """Return the files that a declaration names, itself too, and the directories of its templates."""
    templates = {group.template for group in family.groups if group.template}
    templates |= {template for _, template in family.generated}
    matrices = {group.matrix for group in family.groups if group.matrix}
    return {family.path, *matrices, *templates}, {*family.templates, *(each.parent for each in templates)}
