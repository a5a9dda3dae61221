"""``[tool.jitlto]`` in a ``pyproject.toml``: which families a wheel carries, in which file, and compiled how."""

from __future__ import annotations

import difflib
import os.path
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jitlto.errors import FamilyError, ProjectError
from jitlto.model.versions import Architecture
from jitlto.storage import declaration
from jitlto.storage.declaration import CompilerTables
from jitlto.storage.files import GROUP, SUFFIX

_TABLE = "tool.jitlto"
_KEYS = ("families", "database", "archs", "toolchain", "options")
# What importlib.metadata takes for the value of an entry point, and no dot but between the parts.
_PART = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PackageConfig:
    """What ``[tool.jitlto]`` says.

    Parameters
    ----------
    path : Path
        The ``pyproject.toml``, absolute.
    families : tuple of Path
        The ``family.toml`` of each family.
    database : PurePosixPath
        Where the database lies in the wheel.
    architectures : tuple of Architecture or None
        What LTO-IR is made for; None: as each family says.
    toolchain : str or None
        ``nvrtc`` or ``nvcc``; None: as each family says.
    options : tuple of str
        Compiler options after those of each family.
    entry_points : mapping of str to str, or None
        The package's entry points of the group ``jitlto.fragments``, by the family's name; None if something else than
        ``pyproject.toml`` declares the package's entry points.
    """

    path: Path
    families: tuple[Path, ...]
    database: PurePosixPath
    architectures: tuple[Architecture, ...] | None
    toolchain: str | None
    options: tuple[str, ...]
    entry_points: Mapping[str, str] | None

    @property
    def root(self) -> Path:
        """The directory of the project."""
        return self.path.parent

    @property
    def entry_point(self) -> str:
        """The value that the entry point of each family must have: the database's dotted path without its suffix."""
        return ".".join(self.database.with_suffix("").parts)


def has_config(pyproject: Path) -> bool:
    """Whether a file is a ``pyproject.toml`` that holds ``[tool.jitlto]``."""
    try:
        return "jitlto" in tomllib.loads(pyproject.read_text("utf-8-sig")).get("tool", {})
    except (OSError, ValueError, TypeError, RecursionError):
        return False  # whoever needs the file will say so


def find_missing_config(pyproject: Path) -> str | None:
    """What is wrong if a ``pyproject.toml`` has entry points for families and no ``[tool.jitlto]``; None if nothing.

    A package may also bring databases as files of its own, which then lie in its source tree.
    """
    try:
        document = tomllib.loads(pyproject.read_text("utf-8-sig"))
        tools, points = list(document.get("tool", ())), document["project"]["entry-points"][GROUP]
        places = [Path(*value.split(".")).with_suffix(SUFFIX) for value in points.values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # whoever needs the file will say so
    lacking = [place for place in places if not any((root / place).is_file() for root in _roots(pyproject.parent))]
    if "jitlto" in tools or not lacking:
        return None
    near = difflib.get_close_matches("jitlto", tools, 1)
    meant = f"; is it [tool.{near[0]}]?" if near else ""
    return (
        f"entry points of the group {GROUP} promise {lacking[0]}, and there is no table [{_TABLE}] to build it by"
        f"{meant}: this package comes without it"
    )


def load_config(project: Path) -> PackageConfig:
    """Read the config of a package.

    Parameters
    ----------
    project : Path
        Its ``pyproject.toml``, or the directory that holds it.

    Raises
    ------
    ProjectError
        If the file cannot be read, has no ``[tool.jitlto]``, or says something there that makes no sense.
    """
    path = project / "pyproject.toml" if project.is_dir() else project
    return _Reader(Path(os.path.normpath(path.absolute()))).config()


class _Reader(CompilerTables):
    """Turns a ``pyproject.toml`` into PackageConfig."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ProjectError)

    def config(self) -> PackageConfig:
        document = self.document()
        tool = document.get("tool")
        if not isinstance(tool, Mapping) or "jitlto" not in tool:
            raise self._error(
                "", f"there is no table [{_TABLE}]", 'write [tool.jitlto] with database = "PACKAGE/fragments.fragdb"'
            )
        table = self._table(tool, "jitlto", where="tool")
        self._known(_TABLE, table, _KEYS)
        return PackageConfig(
            self._path,
            self._families(table),
            self._database(document, table),
            self._architectures(_TABLE, table) if "archs" in table else None,
            self._toolchain(_TABLE, table) if "toolchain" in table else None,
            self._options(_TABLE, table),
            self._entry_points(document),
        )

    def _families(self, table: Mapping[str, object]) -> tuple[Path, ...]:
        root = self._path.parent
        if "families" not in table:
            found = sorted(root.glob("fragments/*/family.toml"))
            if not found:
                raise self._error(
                    _TABLE, "no families", 'write families = ["FOLDER"], or put them under fragments/ beside this file'
                )
            return tuple(found)
        names = self._texts(_TABLE, table, "families", ())
        if not names:
            raise self._error(_TABLE, "families is empty", "leave the key out for all under fragments/")
        found = []
        for name in names:
            try:
                found.append(declaration.find(name, root))
            except FamilyError as error:
                hint = f"there is no {root / name / 'family.toml'}" if "/" in name else error.hint
                raise self._error(_TABLE, f"families: {error.what}", hint) from None
        return tuple(dict.fromkeys(found))

    def _database(self, document: Mapping[str, object], table: Mapping[str, object]) -> PurePosixPath:
        project = document.get("project")
        name = project.get("name") if isinstance(project, Mapping) else None
        package = re.sub(r"\W", "_", name.lower()) if isinstance(name, str) else "PACKAGE"
        hint = f'write database = "{package}/fragments.fragdb"'
        if "database" not in table:
            raise self._error(_TABLE, "database is missing: where the database lies in the wheel", hint)
        text = self._text(_TABLE, table, "database")
        *packages, file = text.split("/")
        stem = file.removesuffix(SUFFIX)
        if stem == file or not packages or not all(map(_PART.fullmatch, (*packages, stem))):
            raise self._error(
                _TABLE,
                f"database {text!r} is no path of a .fragdb file in a package: letters, digits and _ between slashes",
                hint,
            )
        return PurePosixPath(text)

    def _entry_points(self, document: Mapping[str, object]) -> Mapping[str, str] | None:
        project = document.get("project")
        if not isinstance(project, Mapping):
            return None
        dynamic = project.get("dynamic", ())
        if isinstance(dynamic, list) and "entry-points" in dynamic:
            return None
        points = self._table(self._table(project, "entry-points", {}, "project"), GROUP, {}, "project.entry-points")
        for name in points:
            self._text(f"project.entry-points.{GROUP!r}", points, name)
        return {name: str(value) for name, value in points.items()}


def check_entry_points(config: PackageConfig, names: list[str]) -> None:
    """Check that the package's entry points name its families, and the database.

    Parameters
    ----------
    config : PackageConfig
    names : list of str
        The families that the database holds.

    Raises
    ------
    ProjectError
        If they do not; the hint has the lines to write.
    """
    first, *rest = config.database.parts
    _, source = _roots(config.root)
    if first == "src" and (source / rest[0]).is_dir() and not (source / "__init__.py").exists():
        raise ProjectError(
            f"the database {str(config.database)!r} would lie outside the package: src is no part of it in the wheel",
            where=str(config.path),
            hint=_place("/".join(rest)),
        )
    wanted = dict.fromkeys(sorted(names), config.entry_point)
    if config.entry_points is None or config.entry_points == wanted:
        return
    given = config.entry_points
    missing = [name for name in wanted if name not in given]
    strange = [name for name in given if name not in wanted]
    faults = []
    if missing:
        faults.append(f"no entry point says where to find {', '.join(missing)}")
    if strange:
        faults.append(f"entry points for what is no family of this package: {', '.join(strange)}")
    lines = [f'[project.entry-points."{GROUP}"]']
    lines += [f'{_toml_key(name)} = "{value}"' for name, value in wanted.items()]
    # A table that is there already cannot be written a second time.
    hint = "\n".join(["let the table that is there hold just" if given else "write", *lines])
    if not faults:
        other = next(name for name in wanted if given[name] != wanted[name])
        faults.append(f"the entry point of {other} is {given[other]!r}, but the database is {str(config.database)!r}")
        meant = given[other].split(".")
        if not _is_package(config, config.database.parts[0]) and _is_package(config, meant[0]):
            place = _place(f"{'/'.join(meant)}{SUFFIX}")
            hint = f"this project has no package {config.database.parts[0]}: {place}"
    raise ProjectError("; ".join(faults), where=str(config.path), hint=hint)


def _is_package(config: PackageConfig, name: str) -> bool:
    """Whether a project has a package of that name, in one of the two usual layouts."""
    return any((root / name).is_dir() for root in _roots(config.root))


def _roots(project: Path) -> tuple[Path, Path]:
    """Where a project's packages lie, in the two usual layouts."""
    return (project, project / "src")


def _place(path: str) -> str:
    """What to write for a database at that place."""
    return f'write database = "{path}" under [{_TABLE}]'


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
