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
from jitlto.storage.declaration import CompilerTable, check_options, parse_architectures
from jitlto.storage.files import GROUP, SUFFIX
from jitlto.storage.toml_reader import TomlTable, read_toml

_TABLE = "tool.jitlto"
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
    document = read_toml(Path(os.path.normpath(path.absolute())), ProjectError)
    tools = document.values.get("tool")
    if not isinstance(tools, Mapping) or not isinstance(tools.get("jitlto"), Mapping):
        hint = 'write [tool.jitlto] with database = "PACKAGE/fragments.fragdb"'
        raise document.error(f"missing table [{_TABLE}]", hint, case="missing-table")
    table = document.table("tool").table("jitlto")
    config = table.decode(_Table)
    check_options(table, config.options)
    return PackageConfig(
        table.path,
        _find_families(table, config.families),
        _database(document, table, config.database),
        None if config.archs is None else parse_architectures(table, config.archs),
        config.toolchain,
        config.options,
        _entry_points(document),
    )


class _Table(CompilerTable, kw_only=True):
    database: str | None = None
    families: tuple[str, ...] | None = None


def _find_families(table: TomlTable, names: tuple[str, ...] | None) -> tuple[Path, ...]:
    root = table.path.parent
    if names is None:
        found = sorted(root.glob("fragments/*/family.toml"))
        if not found:
            hint = 'write families = ["FOLDER"], or put them under fragments/ beside this file'
            raise table.error("no families", hint, case="no-families")
        return tuple(found)
    if not names:
        raise table.error("families is empty", "leave the key out for all under fragments/", case="no-families")
    found = []
    for name in names:
        try:
            found.append(declaration.find_family(name, root))
        except FamilyError as error:
            advice = f"there is no {root / name / 'family.toml'}" if "/" in name else error.hint
            raise table.error(f"invalid families: {error.what}", advice, case="unknown-family") from None
    return tuple(dict.fromkeys(found))


def _database(document: TomlTable, table: TomlTable, text: str | None) -> PurePosixPath:
    project = document.values.get("project")
    name = project.get("name") if isinstance(project, Mapping) else None
    package = re.sub(r"\W", "_", name.lower()) if isinstance(name, str) else "PACKAGE"
    hint = f'write database = "{package}/fragments.fragdb"'
    if text is None:
        raise table.error("missing key 'database': the path of the database in the wheel", hint, case="missing-key")
    *packages, file = text.split("/")
    stem = file.removesuffix(SUFFIX)
    if stem == file or not packages or not all(map(_PART.fullmatch, (*packages, stem))):
        raise table.error(
            f"invalid database {text!r}: expected the path of a .fragdb file in a package, of letters, digits and _",
            hint,
        )
    return PurePosixPath(text)


def _entry_points(document: TomlTable) -> Mapping[str, str] | None:
    if not isinstance(document.values.get("project"), Mapping):
        return None
    project = document.table("project")
    dynamic = project.values.get("dynamic", ())
    if isinstance(dynamic, list) and "entry-points" in dynamic:
        return None
    points = project.table("entry-points", required=False).table(GROUP, required=False)
    for name, point in points.values.items():
        if not isinstance(point, str):
            raise points.error(f"invalid {name}: expected a string")
    return {name: str(value) for name, value in points.values.items()}


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
