"""jitlto as pip leaves it: compiled, and apart from the checkout."""

from __future__ import annotations

import compileall
import shutil
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2] / "jitlto"


def install(place: Path) -> dict[str, str]:
    """A copy of the package under ``place``; gives the environment variables with which a process finds it."""
    directory = place / "installed"
    if not directory.is_dir():
        shutil.copytree(_PACKAGE, directory / "jitlto", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(directory, quiet=1)
    return {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": ""}
