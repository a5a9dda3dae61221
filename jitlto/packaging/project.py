"""Packages that carry families: from ``pyproject.toml`` to the database in their wheel, compiled or taken from CI."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jitlto import database
from jitlto.base import config
from jitlto.base.errors import ProjectError
from jitlto.build import pipeline
from jitlto.build.cache.cache import open_shared_cache
from jitlto.build.merge import MergeReport, merge_databases
from jitlto.build.pipeline import BuildReport
from jitlto.build.rendered_families import family_files, family_record, render, with_used
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.pyproject import PackageConfig, check_entry_points, load_config
from jitlto.record.fragment import BINARY, ImageKind

# Directories that builds leave at the top of a project.
_BUILD_OUTPUTS = ("build", "dist")


@dataclass(frozen=True, slots=True)
class Package:
    """A package's ``[tool.jitlto]``, and its families, also those that they use."""

    config: PackageConfig
    families: tuple[FamilyDeclaration, ...]


def load_package(project: Path) -> Package:
    """Read ``[tool.jitlto]`` and the families of a ``pyproject.toml``, or of the directory that holds it.

    Raises:
        ProjectError: If the table is invalid, or does not match the package's entry points.
        FamilyError: If a family's declaration is invalid.
    """
    package_config = load_config(project)
    families = [declaration.load_family(path) for path in package_config.families]
    named = package_config.entry_points or {}
    # Callers find kernels by an entry point; groups that are only for other families need none.
    check_entry_points(package_config, [f.name for f in families if f.name in named or f.has_kernels])
    return Package(package_config, with_used(families))


def build_package(pyproject: Path, output: Path, *, jobs: int | None = None) -> BuildReport | MergeReport:
    """Build the database of a package: compile its families, or take the database that ``JITLTO_PREBUILT`` names.

    Args:
        pyproject: The package's ``pyproject.toml``, or the directory that holds it.
        output: The database file. It is written after all checks, or not at all.
        jobs: Number of parallel compilers; by default as many as cores and memory allow.

    Raises:
        JitltoError: The first error.
    """
    package, output = load_package(Path(pyproject)), Path(output)
    if taken := copy_prebuilt(package, output):
        return taken
    return pipeline.build(package.families, output, jobs=jobs, cache=open_shared_cache())


def list_sources(package: Package) -> list[Path]:
    """List every file that building a package's families may read, sorted, for its sdist.

    Raises:
        ProjectError: If one of them is outside the project.
    """
    root, recorded = package.config.root, package.config.recording
    found = sorted({*family_files(package.families), *([recorded] if recorded else [])})
    for path in found:
        if not path.is_relative_to(root):
            what = f"{path} is outside the project and cannot be part of an sdist"
            hint = "move it into the project, or build the wheel from the source tree: python -m build --wheel"
            raise ProjectError(what, code="project-outside-file", where=str(package.config.path), hint=hint)
    return [path for path in found if path.relative_to(root).parts[0] not in _BUILD_OUTPUTS]


def copy_prebuilt(package: Package, output: Path, *, allow_incomplete: bool = False) -> MergeReport | None:
    """Take the database that ``JITLTO_PREBUILT`` names, if it is that of the package; None if it is not set.

    What a build would make is compared as far as possible without compiling: a changed body of a device function is not
    noticed.

    Args:
        allow_incomplete: As for :func:`jitlto.build.pipeline.build`.

    Raises:
        ProjectError: If the database does not exist, or does not match.
        BuildError: If one of its kernels does not plan.
        DatabaseError: If it is damaged, or cannot be written to ``output``.
    """
    path = config.current().prebuilt
    if path is None:
        return None
    if not path.is_file():
        what, hint = "JITLTO_PREBUILT: no such file", "give an absolute path: build front ends change the directory"
        raise ProjectError(what, code="project-prebuilt-missing", where=str(path), hint=hint)
    with FragmentDatabase(path) as opened:
        if difference := _find_difference(opened, package.families):
            what = f"JITLTO_PREBUILT: the database {difference}"
            rebuild = "build it from these sources, e.g. jitlto build --project . -o DB, or unset JITLTO_PREBUILT"
            hint = database.MERGE_HINT if opened.part else rebuild
            raise ProjectError(what, code="project-prebuilt-differs", where=str(opened.path), hint=hint)
    return merge_databases([path], output, allow_incomplete=allow_incomplete)  # writes the same bytes


def _find_difference(opened: FragmentDatabase, families: Sequence[FamilyDeclaration]) -> str | None:
    """Return what of a database is not as families declare it."""
    if opened.part is not None:
        return f"is {opened.part} of a build"
    names = sorted(family.name for family in families)
    if names != sorted(opened.families):
        return f"holds {', '.join(opened.families)}, and the package declares {', '.join(names)}"
    for family in families:
        expected, record = family_record(family), opened.families[family.name]
        if {*expected.architectures} <= {*record.architectures}:  # "auto" adds some
            expected = msgspec.structs.replace(expected, architectures=record.architectures)
        fragments = opened.fragments(family.name)
        same = {name: getattr(expected, name) == getattr(record, name) for name in expected.__struct_fields__}
        same["fragments"] = {each.key for each in render(family)} == {each.key for each in fragments}
        own = [each for each in fragments if all(image.toolchain != BINARY for image in each.images)]
        same["toolchain"] = all(i.toolchain == family.toolchain for f in own for i in f.images)
        same["images"] = all({i.kind for i in f.images} - {ImageKind.SASS} == {*family.images} for f in own)
        same["sass"] = all(tuple(i.architecture for i in f.images_of(ImageKind.SASS)) == family.sass for f in own)
        if differing := [name for name, is_same in same.items() if not is_same]:
            return f"was built from a different declaration of {family.name}: {', '.join(differing)} differ"
    return None
