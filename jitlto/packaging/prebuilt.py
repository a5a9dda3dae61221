"""Prebuilt databases: ``JITLTO_PREBUILT`` names a package's database, which is checked and copied, not compiled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from jitlto import database
from jitlto.base import config, files
from jitlto.base.errors import DatabaseError, ProjectError
from jitlto.build.pipeline import BuildReport
from jitlto.build.proof import prove
from jitlto.build.rendered_families import family_record
from jitlto.database import FragmentDatabase, writer
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import render_family
from jitlto.packaging.pyproject import PackageConfig


def copy_prebuilt(
    package: PackageConfig, families: Sequence[FamilyDeclaration], output: Path, *, allow_incomplete: bool = False
) -> BuildReport | None:
    """Copy the database that ``JITLTO_PREBUILT`` names, if it matches the declared ``families`` of the package.

    Return None if ``JITLTO_PREBUILT`` is not set.

    Args:
        allow_incomplete: As for :func:`jitlto.build.pipeline.build`.

    Raises:
        ProjectError: If the database does not exist, or does not match.
        BuildError: If one of its kernels does not plan.
        DatabaseError: If it is damaged, or cannot be written to ``output``.
    """
    prebuilt = config.current().prebuilt
    if prebuilt is None:
        return None
    begin = time.perf_counter()
    path = _find(prebuilt, package)
    with FragmentDatabase(path) as opened:
        opened.verify()
        check_prebuilt(opened, families)
        fragments = tuple(opened.fragments())
        advice = prove([*opened.families.values()], fragments, opened.gaps, allow_incomplete=allow_incomplete)
        _copy(path, output)
        return BuildReport(output, opened.digest, fragments, 0, tuple(advice), time.perf_counter() - begin)


def _find(prebuilt: Path, package: PackageConfig) -> Path:
    """Find the file; in a directory, the one with the database's path or name in the wheel."""
    candidates: tuple[Path, ...] = (prebuilt,)
    if prebuilt.is_dir():
        candidates = (prebuilt / package.database, prebuilt / package.database.name)
    for path in candidates:
        if path.exists() and not path.is_dir():
            return path
    hint = f"looked for {' and '.join(map(str, candidates))}; give an absolute path, because build front ends change "
    hint += "the directory"
    what = "JITLTO_PREBUILT: database does not exist"
    raise ProjectError(what, code="project-prebuilt-missing", where=str(prebuilt), hint=hint)


def check_prebuilt(opened: FragmentDatabase, families: Sequence[FamilyDeclaration]) -> None:
    """Check that a database matches what a build of these families would make, as far as possible without compiling.

    It compares the families, their declarations, all fragments, and their images by architecture and compiler, but does
    not notice a changed body of a device function.

    Raises:
        ProjectError: For the first difference.
    """
    rebuild = "build it from these sources, e.g. jitlto build --project . -o DB, or unset JITLTO_PREBUILT"
    for difference in _find_differences(opened, families):
        what = f"JITLTO_PREBUILT: the database {difference}"
        hint = database.MERGE_HINT if opened.part else rebuild
        raise ProjectError(what, code="project-prebuilt-differs", where=str(opened.path), hint=hint)


def _find_differences(opened: FragmentDatabase, families: Sequence[FamilyDeclaration]) -> Iterator[str]:
    if opened.part is not None:
        yield f"is {opened.part} of a build"
    names = {family.name for family in families}
    if missing := sorted(names - opened.families.keys()):
        yield f"does not hold {', '.join(missing)}"
    if extra := sorted(opened.families.keys() - names):
        yield f"holds {', '.join(extra)}, which this package does not declare"
    for family in families:
        expected, record = family_record(family), opened.families[family.name]
        if lacking := [arch for arch in expected.architectures if arch not in record.architectures]:
            yield f"was not built for {', '.join(arch.compute for arch in lacking)}, which {family.name} declares"
        expected = replace(expected, architectures=record.architectures)
        if other := [n for n in expected.__struct_fields__ if getattr(expected, n) != getattr(record, n)]:
            yield f"was built from a different declaration of {family.name}: {', '.join(other)} differ"
        fragments = opened.fragments(family.name)
        keys, held = {rendered.key for rendered in render_family(family)}, {fragment.key for fragment in fragments}
        if keys != held:
            example = min(keys ^ held)
            what = f"lacks {example}" if example in keys else f"holds {example}, which is not declared"
            yield f"{what} ({len(keys - held)} missing, {len(held - keys)} too many)"
        for fragment in fragments:
            if {image.toolchain for image in fragment.images} != {family.toolchain}:
                yield f"holds {fragment.key} from a different compiler than {family.toolchain}"
            if {image.kind for image in fragment.images} != set(family.images):
                yield f"does not hold {fragment.key} as {' and '.join(family.images)}, as declared"


def _copy(path: Path, output: Path) -> None:
    writer.check_writable(output)
    if output.exists() and path.samefile(output):
        return
    try:
        with files.replacing(output) as temporary:
            shutil.copyfile(path, temporary)
    except OSError as error:
        what = f"cannot write the database: {error.strerror}"
        hint = files.write_hint(error, "give a path in a directory that exists and that you may write")
        raise DatabaseError(what, code="database-unwritable", where=str(output), hint=hint) from error
