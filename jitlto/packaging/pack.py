"""Packs in wheels: the kernels that ``pack`` in ``[tool.jitlto]`` names, linked into a file beside the database.

Linking belongs to the run side, which the build side never imports: ``jitlto warm`` does it, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

from jitlto.base.errors import ProjectError
from jitlto.packaging.pyproject import PackageConfig

SUFFIX = ".pack"


def pack_in_wheel(package: PackageConfig) -> PurePosixPath | None:
    """Return the path of a package's pack in its wheel, which is beside the database; None if it declares none."""
    return package.database.with_suffix(SUFFIX) if package.pack else None


def recording(package: PackageConfig) -> Path | None:
    """Return the file of recorded plans that ``pack`` names; None if it names a family, or there is none."""
    path = package.root / package.pack if package.pack else None
    return path if path is not None and path.is_file() else None


def build_pack(package: PackageConfig, database: Path) -> Path | None:
    """Link the kernels that ``pack`` names into a pack beside a database; return the pack, or None if none is declared.

    Raises:
        ProjectError: If one of them does not plan or link, as after a change of the family that was recorded.
    """
    if package.pack is None:
        return None
    recorded = recording(package)
    if recorded is None and not package.pack_architectures:
        raise ProjectError(
            f"pack = {package.pack!r} is not a file, and the kernels of a family need pack_archs",
            code="project-pack",
            where=str(package.path),
            hint='correct the path of the recording, or add pack_archs = ["sm_90"], or whatever your users have',
        )
    pack = database.with_suffix(SUFFIX)
    command = [
        *(sys.executable, "-P", "-m", "jitlto", "warm", str(recorded or package.pack)),
        *("--db", str(database), "-o", str(pack)),
        *(word for target in package.pack_architectures for word in ("--arch", target.sm)),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=package.root)
    if done.returncode == 0 and pack.is_file():
        return pack
    said = (done.stdout + done.stderr).decode("utf-8", "replace").strip() or f"exit status {done.returncode}"
    lines = "\n".join(f"    {line}" for line in said.splitlines())
    raise ProjectError(
        f"cannot link the kernels of pack = {package.pack!r}:\n{lines}",
        code="project-pack",
        where=str(package.path),
        hint="name a recording (JITLTO_RECORD), or a family with pack_archs; record again if the family has changed",
    )
