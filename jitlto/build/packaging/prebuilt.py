"""A package's database that CI has built and merged before: ``JITLTO_PREBUILT`` names it, and nothing is compiled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from jitlto import config
from jitlto.build.packaging.pyproject import PackageConfig
from jitlto.build.pipeline import BuildReport, family_record
from jitlto.build.templates import render_family
from jitlto.errors import DatabaseError, ProjectError
from jitlto.model.fragment import ImageKind
from jitlto.storage import database, files
from jitlto.storage.database import FragmentDatabase
from jitlto.storage.declaration import FamilyDeclaration

_AGAIN = "build it from these sources, e.g. jitlto build --project . -o DB, or unset JITLTO_PREBUILT"


def copy_prebuilt(
    package_config: PackageConfig, families: Sequence[FamilyDeclaration], output: Path
) -> BuildReport | None:
    """Copy the database that ``JITLTO_PREBUILT`` names, if it is what the package declares.

    Parameters
    ----------
    package_config : PackageConfig
        The package's.
    families : sequence of FamilyDeclaration
        The package's, as they would be compiled.
    output : Path
        The database file. It appears when everything has held, or not at all.

    Returns
    -------
    BuildReport or None
        None if ``JITLTO_PREBUILT`` is not set.

    Raises
    ------
    ProjectError
        If there is no such database, or it holds something else than declared.
    DatabaseError
        If it is damaged, or cannot be written to ``output``.
    """
    given = config.current().prebuilt
    if given is None:
        return None
    begin = time.perf_counter()
    path = _find(given, package_config)
    with FragmentDatabase(path) as found:
        found.verify()
        check_prebuilt(found, families)
        _copy(path, output)
        return BuildReport(output, found.digest, tuple(found.fragments()), 0, (), time.perf_counter() - begin)


def _find(given: Path, package_config: PackageConfig) -> Path:
    """The file; in a directory the one that lies, or is called, as the database in the wheel."""
    if not given.is_dir():
        if not given.exists():
            raise ProjectError(
                "JITLTO_PREBUILT names nothing that exists",
                where=str(given),
                hint="give an absolute path: build front ends change the directory",
            )
        return given
    candidates = (given / package_config.database, given / package_config.database.name)
    for path in candidates:
        if path.is_file():
            return path
    raise ProjectError(
        f"JITLTO_PREBUILT: the directory holds no {package_config.database.name}",
        where=str(given),
        hint=f"looked for {' and '.join(map(str, candidates))}; name the file itself",
    )


def check_prebuilt(found: FragmentDatabase, families: Sequence[FamilyDeclaration]) -> None:
    """Check that a database is what a build of these families would give, as far as can be told without compiling.

    That is: the families, what each declares, every fragment, and its images for every architecture, made by the
    declared compiler. A device function whose body has changed since cannot be told.

    Raises
    ------
    ProjectError
        At the first thing that differs.
    """

    def differs(what: str) -> ProjectError:
        return ProjectError(f"JITLTO_PREBUILT: {what}", where=str(found.path), hint=_AGAIN)

    if found.part is not None:
        raise ProjectError(
            f"JITLTO_PREBUILT: is {found.part} of a build",
            where=str(found.path),
            hint=database.MERGE_HINT,
        )
    names = {family.name for family in families}
    if missing := sorted(names - found.families.keys()):
        raise differs(f"does not hold {', '.join(missing)}")
    if strange := sorted(found.families.keys() - names):
        raise differs(f"holds {', '.join(strange)}, which this package does not declare")
    for family in families:
        wanted, record = family_record(family), found.families[family.name]
        if lacking := [arch for arch in wanted.architectures if arch not in record.architectures]:
            raise differs(f"{family.name} was not built for {', '.join(arch.compute for arch in lacking)}")
        wanted = replace(wanted, architectures=record.architectures)
        if other := [f.name for f in fields(wanted) if getattr(wanted, f.name) != getattr(record, f.name)]:
            raise differs(f"{family.name} was built from another declaration: {', '.join(other)} differ")
        keys = {rendered.key for rendered in render_family(family)}
        held = {fragment.key for fragment in found.fragments(family.name)}
        if keys != held:
            example = min(keys ^ held)
            what = f"lacks {example}" if example in keys else f"holds {example}, which is not declared"
            raise differs(f"{what} ({len(keys - held)} missing, {len(held - keys)} too many)")
        for fragment in found.fragments(family.name):
            made = {image.architecture for image in fragment.images_of(ImageKind.LTOIR)}
            if not made.issuperset(family.architectures):
                raise differs(f"{fragment.key} lacks LTO-IR for an architecture that is declared")
            if {image.kind for image in fragment.images} != set(family.images):
                raise differs(f"{fragment.key} does not hold {' and '.join(family.images)}, as declared")
            if {image.toolchain for image in fragment.images} != {family.toolchain}:
                raise differs(f"{fragment.key} was not compiled by {family.toolchain}")


def _copy(path: Path, output: Path) -> None:
    database.check_writable(output)
    if output.exists() and path.samefile(output):
        return
    try:
        with files.replacing(output) as temporary:
            shutil.copyfile(path, temporary)
    except OSError as error:
        raise DatabaseError(f"cannot be written: {error.strerror}", where=str(output)) from error
