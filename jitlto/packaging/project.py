"""Packages that carry families: from ``pyproject.toml`` to the database in their wheel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from jitlto.base import config
from jitlto.base.errors import ProjectError
from jitlto.build import pipeline
from jitlto.build.cache.cache import Cache, open_shared_cache
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.pipeline import BuildReport
from jitlto.build.rendered_families import with_used
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.packaging.family_sources import list_files
from jitlto.packaging.pack import recording
from jitlto.packaging.prebuilt import copy_prebuilt
from jitlto.packaging.pyproject import PackageConfig, check_entry_points, load_config

# Directories that builds leave at the top of a project.
_BUILD_OUTPUTS = ("build", "dist")


@dataclass(frozen=True, slots=True)
class Package:
    """A package's ``[tool.jitlto]``, and its families with the toolchain, architectures and options from there.

    Also those that they use.
    """

    config: PackageConfig
    families: tuple[FamilyDeclaration, ...]


def load_package(project: Path) -> Package:
    """Read ``[tool.jitlto]`` and the families of a ``pyproject.toml``, or of the directory that holds it.

    Raises:
        ProjectError: If the table is invalid, or does not match the package's entry points.
        FamilyError: If a family's declaration is invalid.
    """
    package_config = load_config(project)
    families = [_configure(declaration.load_family(path), package_config) for path in package_config.families]
    named = package_config.entry_points or {}
    # Callers find kernels by an entry point; groups that are only for other families need none.
    check_entry_points(package_config, [f.name for f in families if f.name in named or f.has_kernels])
    return Package(package_config, with_used(families))


def _configure(family: FamilyDeclaration, package_config: PackageConfig) -> FamilyDeclaration:
    return replace(
        family,
        uses=tuple(_configure(used, package_config) for used in family.uses),
        architectures=package_config.architectures or family.architectures,
        is_auto=package_config.is_auto if package_config.architectures else family.is_auto,
        toolchain=package_config.toolchain or family.toolchain,
        options=family.options + package_config.options,
    )


def build_package(
    pyproject: Path,
    output: Path,
    *,
    jobs: int | None = None,
    cache: Cache | None = None,
    observer: Observer = NO_OBSERVER,
    allow_incomplete: bool = False,
) -> BuildReport:
    """Build the database of a package: compile its families, or copy the database that ``JITLTO_PREBUILT`` names.

    Args:
        pyproject: The package's ``pyproject.toml``, or the directory that holds it.
        output: The database file. It is written after all checks, or not at all.
        jobs: Number of parallel compilers; by default as many as cores and memory allow.
        cache: The build cache; by default the user's, over the stores of the environment.
        observer: Receives the events of the build.
        allow_incomplete: Write the database although kernels lack something, and report that as advice.

    Raises:
        JitltoError: The first error.
    """
    package, output = load_package(Path(pyproject)), Path(output)
    report = copy_prebuilt(package.config, package.families, output, allow_incomplete=allow_incomplete)
    if report is not None:
        return report
    cache = cache or open_shared_cache()
    return pipeline.build(
        package.families, output, jobs=jobs, cache=cache, observer=observer, allow_incomplete=allow_incomplete
    )


def summarize(report: BuildReport) -> str:
    """Describe the result of :func:`build_package` in one line."""
    prebuilt = config.current().prebuilt
    how = f"taken from {prebuilt}" if prebuilt else report.summary
    return f"{len(report.fragments)} fragments ({how}), digest {report.digest}"


def list_sources(package: Package) -> list[Path]:
    """List every file that building a package's families may read, sorted, for its sdist.

    Raises:
        ProjectError: If one of them is outside the project.
    """
    recorded = recording(package.config)
    root = package.config.root
    files = sorted({*list_files(package.families), *([recorded] if recorded else [])})
    for path in files:
        if not path.is_relative_to(root):
            what = f"{path} is outside the project and cannot be part of an sdist"
            hint = "move it into the project, or build the wheel from the source tree: python -m build --wheel"
            raise ProjectError(what, code="project-outside-file", where=str(package.config.path), hint=hint)
    return [path for path in files if path.relative_to(root).parts[0] not in _BUILD_OUTPUTS]
