"""A new package that carries a family: what ``jitlto new`` writes."""

from __future__ import annotations

import keyword
import re
import sys
import tempfile
from pathlib import Path

from jitlto import __version__
from jitlto.errors import ProjectError

_TEMPLATES = Path(__file__).parent / "new_package"
# Template → file; @package@ stands for the import name in both.
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/ci.yml",
    "family.toml": "fragments/@package@/family.toml",
    "op.cuh": "fragments/@package@/op.cuh",
    "square.cuh": "fragments/@package@/square.cuh",
    "negate.cuh": "fragments/@package@/negate.cuh",
    "map_kernel.cuh": "fragments/@package@/map_kernel.cuh",
    "map_kernel.json": "matrices/@package@/map_kernel.json",
    "op.json": "matrices/@package@/op.json",
    "map_kernel.cu.jinja": "templates/@package@/map_kernel.cu.jinja",
    "op.cu.jinja": "templates/@package@/op.cu.jinja",
    "init.py": "src/@package@/__init__.py",
    "test.py": "tests/test_@package@.py",
}
_MAJORS = (12, 13)  # of CUDA, each with an extra of jitlto
# What a package's own modules and tests import, beside the standard library.
_TAKEN = frozenset({"jitlto", "cuda", "cupy", "numpy", "pytest", "tests"})


def derive_import_name(name: str) -> str:
    """The import name of a distribution.

    Parameters
    ----------
    name : str
        A distribution's name: ASCII letters, digits, ``.``, ``-`` and ``_``, beginning with a letter.

    Raises
    ------
    ProjectError
        If it is no such name, or its import name is taken.
    """
    # PyPA's rule for names, with a letter at the beginning, since import names begin with one.
    if not re.fullmatch(r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name) or len(name) > 100:
        raise ProjectError(
            f"{name!r} is no name of a package",
            hint="ASCII letters, digits, and between them . - _; it begins with a letter: my-kernels",
        )
    package = re.sub(r"[-_.]+", "_", name).lower()
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        raise ProjectError(
            f"a package {name!r} would be imported as {package}, which is taken", hint=f"try {name}-kernels"
        )
    return package


def write_package(name: str, directory: Path, cuda: int) -> list[Path]:
    """Write a new package, whole or not at all.

    Parameters
    ----------
    name : str
        The distribution's name.
    directory : Path
        The project's; it must not exist yet, or be empty.
    cuda : int
        The CUDA major that its wheel is compiled with.

    Returns
    -------
    list of Path
        The files, sorted.

    Raises
    ------
    ProjectError
        If the name is none, or the directory holds something or cannot be written.
    """
    package = derive_import_name(name)
    # What CUDA 12 has made links with 13 too, as PTX at least; not the other way round.
    majors = [str(major) for major in _MAJORS if major >= cuda]
    values = {
        "name": name,
        "package": package,
        "cuda": str(cuda),
        "version": __version__,
        "extras": "\n".join(f'cu{major} = ["jitlto[cu{major}]"]' for major in majors),
        "majors": ", ".join(f'"{major}"' for major in majors),
        "either": " or ".join(f"`cu{major}`" for major in majors),
    }
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ProjectError(
            "exists: nothing is overwritten", where=str(directory), hint="give another directory with -o"
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jitlto-") as temporary:
            # Below it, since a temporary directory itself is its owner's alone.
            root = Path(temporary) / "project"
            for template, file in _FILES.items():
                path = root / _filled(file, values)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_filled((_TEMPLATES / f"{template}.in").read_text("utf-8"), values), "utf-8")
            root.rename(directory)
    except OSError as error:
        raise ProjectError(f"cannot be written: {error.strerror}", where=str(directory)) from error
    return sorted(directory / _filled(file, values) for file in _FILES.values())


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
