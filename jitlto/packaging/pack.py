"""Packs in wheels: the kernels that ``pack`` in ``[tool.jitlto]`` names, linked into a file beside the database."""

from pathlib import Path

from jitlto.base.errors import JitltoError, ProjectError
from jitlto.packaging.pyproject import PackageConfig
from jitlto.runtime.family import load
from jitlto.runtime.warming import family_jobs, link_jobs, recorded_jobs


def build_pack(package: PackageConfig, database: Path) -> Path | None:
    """Link the kernels that ``pack`` names into a pack beside a database; return the pack, or None if none is declared.

    Raises:
        ProjectError: If one of them does not plan or link, as after a change of the family that was recorded.
    """
    if package.pack is None:
        return None
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
    return pack
