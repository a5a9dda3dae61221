"""The sources of an existing family, as they go into a new package: ``jitlto new --family``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jitlto.base.errors import ProjectError
from jitlto.compile.header_search import HeaderSearch
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.source_files import walk_sources
from jitlto.families.templates import render_family

_FOLDERS = ("matrices", "templates")


def place_sources(family: FamilyDeclaration) -> dict[Path, Path]:
    """Return where the files of a family, and of those that it uses, go in a project: file → relative path.

    A family lies in ``fragments/``, its matrices and templates where they are found from there.

    Raises:
        ProjectError: If a file is outside the places that a project has.
    """
    families = [family, *family.all_used().values()]
    places: dict[Path, Path] = {}
    directories = [each.path.parent.absolute() for each in families]
    for each in families:
        directory = each.path.parent.absolute()
        if directory.parent != family.path.parent.absolute().parent:
            raise _outside(family, f"the family {each.name} in {directory}")
        places |= dict(_place_family(each, directory, directories))
    for include in (Path(os.path.normpath(path.absolute())) for path in family.include):
        if not any(include.is_relative_to(directory) for directory in directories):
            raise _outside(family, f"the include directory {include}")
    return places


def _place_family(
    family: FamilyDeclaration, directory: Path, directories: Sequence[Path]
) -> Iterator[tuple[Path, Path]]:
    root = declaration.project_root(family.path.absolute())
    beside = [root / folder for folder in _FOLDERS]
    found = set(walk_sources([directory], thorough=False))
    for path in sorted(found | set(find_headers(family, found))):
        if not any(path.is_relative_to(folder) for folder in beside):
            place = Path(os.path.normpath(path))
            if not place.is_relative_to(directory):
                if any(place.is_relative_to(other) for other in directories):
                    continue  # placed with the family whose header it is
                raise _outside(family, str(place))
            yield path, Path("fragments", directory.name, place.relative_to(directory))
    for group in family.groups:
        if group.matrix is None or group.template is None:
            continue
        # A template includes others of its directory.
        matrices = (path.absolute() for path in group.matrices)
        for path in (*matrices, *walk_sources([group.template.absolute().parent], thorough=False)):
            place = Path(os.path.normpath(path))
            if any(place.is_relative_to(folder) for folder in beside):
                yield path, place.relative_to(root)
            elif not place.is_relative_to(directory):
                raise _outside(family, str(place))


def find_headers(family: FamilyDeclaration, sources: Iterable[Path]) -> Iterator[Path]:
    """Find the headers that sources include: some are outside the include directories, hidden, or behind links."""
    search = HeaderSearch(family.include)
    texts = [rendered.source.encode() for rendered in render_family(family)]
    texts += [path.read_bytes() for path in sorted(sources)]
    for name in {name for text in texts for name in search.reachable(text)}:
        if path := search.path(name):
            yield path


def _outside(family: FamilyDeclaration, what: str) -> ProjectError:
    return ProjectError(
        f"{what} is outside the family's directory",
        code="project-outside-file",
        where=str(family.path),
        hint="move it below the directory of family.toml, or beside fragments/ into matrices/ or templates/",
    )
