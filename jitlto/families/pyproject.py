"""``[tool.jitlto]`` in a ``pyproject.toml``: the families of a wheel, their database, and the pack beside it."""

import json
import os.path
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from jitlto.base.errors import FamilyError, ProjectError
from jitlto.base.files import GROUP, SUFFIX
from jitlto.base.toml_reader import TomlTable, read_toml
from jitlto.base.versions import Architecture
from jitlto.families import declaration

# The path of a database in a wheel, of names that an entry point may have; its package is not below a directory src.
_DATABASE = re.compile(rf"(?!src/)(?:\w+/)+\w+{re.escape(SUFFIX)}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PackageConfig:
    """Values of ``[tool.jitlto]``, and the entry points that go with them."""

    path: Path  # of the pyproject.toml, absolute
    families: tuple[Path, ...]  # each one's family.toml
    database: PurePosixPath  # its path in the wheel
    #: The entry points of the group ``jitlto.fragments``; None if they are not declared in ``pyproject.toml``.
    entry_points: Mapping[str, str] | None
    pack: str | None = None  # a file of recorded plans, or a family: the kernels to ship linked
    pack_architectures: tuple[Architecture, ...] = ()  # for these; none: as recorded

    @property
    def root(self) -> Path:
        """The directory of the project."""
        return self.path.parent

    @property
    def entry_point(self) -> str:
        """The value of each family's entry point: the dotted path of the database without its suffix."""
        return ".".join(self.database.with_suffix("").parts)

    @property
    def places(self) -> tuple[PurePosixPath, ...]:
        """The paths in the wheel of what is built: the database, and the pack if one is declared."""
        return (self.database, self.database.with_suffix(".pack")) if self.pack else (self.database,)

    @property
    def recording(self) -> Path | None:
        """The file of recorded plans that ``pack`` names; None if it names a family, or there is none."""
        path = self.root / self.pack if self.pack else None
        return path if path is not None and path.is_file() else None


class _Table(msgspec.Struct):
    database: str
    families: tuple[str, ...] | None = None
    pack: str | None = None
    pack_archs: tuple[str, ...] = ()


def has_config(pyproject: Path) -> bool:
    """Return whether a ``pyproject.toml`` exists and has ``[tool.jitlto]``."""
    try:
        return "jitlto" in read_toml(pyproject, ProjectError).table("tool", required=False).values
    except ProjectError:
        return False  # the build backend will report it


def load_config(project: Path) -> PackageConfig:
    """Read ``[tool.jitlto]`` of a ``pyproject.toml``, or of the directory that holds it.

    Raises:
        ProjectError: If the file cannot be read, or ``[tool.jitlto]`` is missing or invalid.
    """
    path = project / "pyproject.toml" if os.path.isdir(project) else project  # noqa: PTH112 - Path.is_dir raises on a name that is too long
    document = read_toml(Path(os.path.normpath(path.absolute())), ProjectError)
    table = document.table("tool", required=False).table("jitlto")
    given = table.decode(_Table)
    if not _DATABASE.fullmatch(given.database):
        what = f"invalid database {given.database!r}: it is no path in the wheel of a .fragdb file in a package"
        hint = 'write database = "PACKAGE/fragments.fragdb", a path of letters, digits and _'
        raise table.error(what, hint, "database")
    if given.pack_archs and given.pack is None:
        raise table.error("pack_archs without pack", 'write pack = "RECORDING", or remove pack_archs', "pack_archs")
    architectures = declaration.parse_architectures(table, given.pack_archs, "pack_archs")
    families, database = _find_families(table, given.families), PurePosixPath(given.database)
    return PackageConfig(table.path, families, database, _read_entry_points(document), given.pack, architectures)


def find_sources(tree: Path, family: str) -> Path | None:
    """Return the ``family.toml`` of a family of a source tree; None if its package has no ``[tool.jitlto]``.

    Raises:
        ProjectError: If the table is invalid, or its families have other names.
        FamilyError: If the declaration of one of them is invalid.
    """
    path = tree / "pyproject.toml"
    if not path.is_file() or "jitlto" not in read_toml(path, ProjectError).table("tool", required=False).values:
        return None
    found = {declaration.load_family(each).name: each for each in load_config(path).families}
    if family not in found:
        what, hint = f"no family {family!r} in [tool.jitlto]", f"its families are {', '.join(sorted(found))}"
        raise ProjectError(what, code="project-unknown-family", where=str(path), hint=f"{hint}; pip install -e again")
    return found[family]


def _find_families(table: TomlTable, names: tuple[str, ...] | None) -> tuple[Path, ...]:
    root = table.path.parent
    found = sorted(root.glob("fragments/*/family.toml")) if names is None else []
    for number, name in enumerate(names or ()):
        try:
            found.append(declaration.find_family(name, root))
        except FamilyError as error:
            advice = f"{root / name / 'family.toml'} does not exist" if "/" in name else error.hint
            what = f"invalid families: {error.what}"
            raise table.error(what, advice, "families", number, case="unknown-family") from None
    if not found:
        hint = 'write families = ["FOLDER"], or create them under fragments/ beside this file'
        raise table.error("no families", hint, "families", case="no-families")
    return tuple(dict.fromkeys(found))


def _read_entry_points(document: TomlTable) -> Mapping[str, str] | None:
    if not isinstance(document.values.get("project"), Mapping):
        return None
    project = document.table("project")
    dynamic = project.values.get("dynamic", ())
    if isinstance(dynamic, list) and "entry-points" in dynamic:
        return None
    points = project.table("entry-points", required=False).table(GROUP, required=False)
    return {name: str(value) for name, value in points.values.items()}


def check_entry_points(config: PackageConfig, families: Iterable[str]) -> None:
    """Check that the package's entry points name its families and the database.

    Raises:
        ProjectError: If they do not; the hint has the lines to write.
    """
    declared, expected = config.entry_points, dict.fromkeys(sorted(families), config.entry_point)
    if declared is None or declared == expected:
        return
    lines = [f"[project.entry-points.{json.dumps(GROUP)}]"]
    lines += [f"{json.dumps(name) if '.' in name else name} = {json.dumps(each)}" for name, each in expected.items()]
    # TOML does not allow a table to be defined twice.
    hint = "\n".join(["replace the table with" if declared else "add", *lines])
    wrong = sorted({name for name, _ in {*declared.items()} ^ {*expected.items()}})
    what = f"the entry points of {', '.join(wrong)} are not those of the families in {str(config.database)!r}"
    raise ProjectError(what, code="project-entry-points", where=str(config.path), hint=hint)
