"""Packages that carry families: from ``pyproject.toml`` to the database in their wheel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jitlto import config
from jitlto.build import pipeline
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.packaging import prebuilt
from jitlto.build.packaging.pyproject import PackageConfig, check_entry_points, load_config
from jitlto.build.pipeline import BuildReport
from jitlto.build.templates import render_family
from jitlto.errors import ProjectError
from jitlto.model.headers import HeaderSearch
from jitlto.storage import declaration
from jitlto.storage.declaration import FamilyDeclaration

# What builds leave at the top of a project, should a family lie there too.
_MADE = ("build", "dist")


@dataclass(frozen=True, slots=True)
class Package:
    """A package's ``[tool.jitlto]``, and its families as that has them compiled."""

    config: PackageConfig
    families: tuple[FamilyDeclaration, ...]


def load_package(project: Path) -> Package:
    """Read a package's ``[tool.jitlto]`` and its families.

    Parameters
    ----------
    project : Path
        Its ``pyproject.toml``, or the directory that holds it.

    Raises
    ------
    ProjectError
        If the table makes no sense, or do not go with the package's entry points.
    FamilyError
        If a family does not hold.
    """
    found = load_config(project)
    families = tuple(_adapted(declaration.load_family(path), found) for path in found.families)
    check_entry_points(found, [family.name for family in families])
    return Package(found, families)


def _adapted(declared: FamilyDeclaration, found: PackageConfig) -> FamilyDeclaration:
    return replace(
        declared,
        architectures=found.architectures or declared.architectures,
        toolchain=found.toolchain or declared.toolchain,
        options=declared.options + found.options,
    )


def build_package(
    pyproject: Path,
    output: Path,
    *,
    jobs: int | None = None,
    cache: Cache | None = None,
    observer: Observer = NO_OBSERVER,
) -> BuildReport:
    """Make the database of a package: compile its families, or take it from where ``JITLTO_PREBUILT`` says.

    Parameters
    ----------
    pyproject : Path
        The package's ``pyproject.toml``, or the directory that holds it.
    output : Path
        The database file. It appears when everything has held, or not at all.
    jobs : int, optional
        Compilers at once; by default as many as cores and memory bear.
    cache : Cache, optional
        Where units are looked for and kept; by default the user's build cache.
    observer : Observer
        Told what happens.

    Returns
    -------
    BuildReport

    Raises
    ------
    JitltoError
        The first thing that does not hold, from ``pyproject.toml`` to the file.
    """
    package = load_package(pyproject)
    taken = prebuilt.copy_prebuilt(package.config, package.families, output)
    if taken is not None:
        return taken
    return pipeline.build(package.families, output, jobs=jobs, cache=cache or open_cache(), observer=observer)


def summarize(report: BuildReport) -> str:
    """What :func:`build_package` did, in a line."""
    taken = config.current().prebuilt
    how = f"taken from {taken}" if taken else f"{report.compiled or 'none'} compiled, {report.seconds:.1f} s"
    return f"{len(report.fragments)} fragments ({how}), digest {report.digest}"


def list_sources(package: Package) -> list[Path]:
    """Every file that building a package's families may read, sorted: what an sdist must hold.

    Raises
    ------
    ProjectError
        If one of them lies outside the project.
    """
    found: set[Path] = set()
    for declared in package.families:
        found.add(declared.path)
        folders = set(declared.include)
        for group in declared.groups:
            if group.matrix and group.template:
                found.add(group.matrix)
                folders.add(group.template.parent)  # templates include others of their directory
        for folder in folders:
            found.update(_below(folder))
        found.update(_beyond(declared, found))
    root = package.config.root
    files = sorted({Path(os.path.normpath(path)) for path in found})
    for path in files:
        if not path.is_relative_to(root):
            raise ProjectError(
                f"{path} lies outside the project, so that an sdist cannot hold it",
                where=str(package.config.path),
                hint="move it into the project, or build the wheel from the source tree: python -m build --wheel",
            )
    return [path for path in files if path.relative_to(root).parts[0] not in _MADE]


def _beyond(declared: FamilyDeclaration, found: set[Path]) -> Iterator[Path]:
    """The headers that lie beside the include directories, as ``../common.cuh`` does."""
    search = HeaderSearch(declared.include)
    texts = [rendered.source.encode() for rendered in render_family(declared)]
    texts += [path.read_bytes() for path in sorted(found)]
    for name in sorted({name for text in texts for name in search.reachable(text) if name.startswith("..")}):
        yield next(path for root in declared.include if (path := root / name).is_file())


def _below(folder: Path) -> Iterator[Path]:
    """The files below a directory, without what is hidden, compiled, or a virtual environment's."""
    for directory, names, files in os.walk(folder):
        names[:] = [n for n in names if not n.startswith(".") and n != "__pycache__"]
        if "pyvenv.cfg" in files:
            names.clear()
            continue
        paths = (Path(directory, name) for name in files if not name.startswith("."))
        yield from (path for path in paths if path.is_file())  # no FIFO, which would be waited for
