"""The files that building families may read: for an sdist, and for a new package with them."""

import os
from collections.abc import Iterable
from pathlib import Path

from jitlto.base.errors import ProjectError
from jitlto.compile.family_files import family_files
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration


def list_files(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """List every file that building families may read, sorted."""
    files = {path for family in families for path in family_files(family)}
    return sorted({Path(os.path.normpath(path.absolute())) for path in files})


def place_sources(family: FamilyDeclaration) -> dict[Path, Path]:
    """Return where the files of a family, and of those that it uses, go in a project: file → relative path.

    A family lies in ``fragments/``, its matrices and templates where they are found from there.

    Raises:
        ProjectError: If a file is outside the places that a project has.
    """
    families = [family, *family.all_used().values()]
    root, above = declaration.project_root(family.path.absolute()), family.path.parent.parent.absolute()
    folders = [each.path.parent.absolute() for each in families if each.path.parent.parent.absolute() == above]
    includes = [
        Path(os.path.normpath(path.absolute())) for each in families for path in (*each.include, *each.templates)
    ]
    places: dict[Path, Path] = {}
    for path in (*list_files(families), *includes):
        folder = next((each for each in folders if path.is_relative_to(each)), None)
        if folder is not None:
            places[path] = Path("fragments", folder.name, path.relative_to(folder))
        elif path.is_relative_to(root) and path.relative_to(root).parts[0] in ("matrices", "templates"):
            places[path] = path.relative_to(root)
        else:
            raise ProjectError(
                f"{path} is outside the family's directory",
                code="project-outside-file",
                where=str(family.path),
                hint="move it below the directory of family.toml, or beside fragments/ into matrices/ or templates/",
            )
    return {path: place for path, place in places.items() if path.is_file()}
