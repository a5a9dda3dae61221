"""What a wheel carries: the database of its families, and a pack of the kernels that ``[tool.jitlto]`` names."""

from collections.abc import Callable
from pathlib import Path

from jitlto.base import config
from jitlto.base.errors import JitltoError, ProjectError
from jitlto.build.pipeline import BuildReport
from jitlto.families.pyproject import PackageConfig
from jitlto.packaging import project
from jitlto.packaging.project import Package
from jitlto.runtime.warming import family_jobs, link_jobs, recorded_jobs
from jitlto.source.load import load


def build_files(
    package: Package, directory: Path, warn: Callable[[str], object], tell: Callable[[str], object]
) -> None:
    """Build a package's database and pack below a directory, at their places in the wheel.

    Args:
        warn, tell: Are given the build's advice, and its summary.

    Raises:
        JitltoError: The first error.
    """
    output = directory / package.config.database
    output.parent.mkdir(parents=True, exist_ok=True)
    report = project.build_package(package.config.path, output)
    build_pack(package.config, output)
    for advice in report.advice:
        warn(f"jitlto: {advice}")
    how = report.summary if isinstance(report, BuildReport) else f"taken from {config.current().prebuilt}"
    tell(f"jitlto: {len(report.fragments)} fragments ({how}), digest {report.digest}")


def build_pack(package: PackageConfig, database: Path) -> None:
    """Link the kernels that ``pack`` names, if it does, into a pack beside a database.

    Raises:
        ProjectError: If one of them does not plan or link, as after a change of the family that was recorded.
    """
    if package.pack is None:
        return
    pack, targets = database.with_suffix(".pack"), package.pack_architectures
    if package.recording is None and not targets:
        what = f"pack = {package.pack!r} is not a file, and the kernels of a family need pack_archs"
        hint = 'correct the path of the recording, or add pack_archs = ["sm_90"], or whatever your users have'
        raise ProjectError(what, code="project-pack", where=str(package.path), hint=hint)
    try:
        if package.recording is not None:
            work = recorded_jobs(package.recording, lambda name: load(name, database), targets, database)
        else:
            work = family_jobs(load(package.pack, database), (), targets)
        errors = [each.error for each in link_jobs(work.jobs, pack).failures]
    except JitltoError as error:
        errors = [error]
    if errors:
        what = f"cannot link the kernels of pack = {package.pack!r}: {len(errors)} of them, such as:\n{errors[0]}"
        hint = "name a recording (JITLTO_RECORD), or a family with pack_archs; record again if the family has changed"
        raise ProjectError(what, code="project-pack", where=str(package.path), hint=hint)
