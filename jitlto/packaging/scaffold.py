"""A new package with a family, for ``jitlto new``.

The directory ``new_package/`` holds its files with the suffix ``.in``. ``@package@`` and other names between @ are
replaced, also in paths. For a family that exists already, the files in ``new_package_of_family/`` replace those with
the same name, and the family's own files those of the sample. ``new_package_torch/`` adds operators of PyTorch,
``new_package_torch_readme.in`` a section of the README; with ``of_family`` in their names, those of another family.
"""

from __future__ import annotations

import keyword
import os.path
import re
import shutil
import sys
import tempfile
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import ProjectError
from jitlto.base.version import __version__
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.packaging import operator_sources, project
from jitlto.packaging.family_sources import place_sources

_TEMPLATES = Path(__file__).parent / "new_package"
_OF_FAMILY = Path(__file__).parent / "new_package_of_family"
_TORCH = Path(__file__).parent / "new_package_torch"
_TORCH_OF_FAMILY = Path(__file__).parent / "new_package_of_family_torch"
_SAMPLE = ("fragments", "matrices", "templates")
_CUDA_MAJORS = (12, 13)  # each with an extra of jitlto
# Modules that the new package or its tests import, beside the standard library.
_TAKEN = frozenset({"jitlto", "cuda", "cupy", "numpy", "pytest", "tests", "torch"})


def derive_import_name(name: str) -> str:
    """Derive the import name of a distribution: ASCII letters, digits, ``.``, ``-`` and ``_``, beginning with a letter.

    Raises:
        ProjectError: If the name is invalid, or its import name is taken.
    """
    # PyPA's rule for names, with a letter at the beginning, since import names begin with one.
    if not re.fullmatch(r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name) or len(name) > 100:
        hint = "use ASCII letters, digits, and between them . - _, beginning with a letter: my-kernels"
        if "/" in name:
            hint = f"it is a name and no path; -o names the directory: jitlto new {Path(name).name or 'NAME'} -o {name}"
        raise ProjectError(f"invalid package name {name!r}", code="project-invalid-name", hint=hint)
    package = re.sub(r"[-_.]+", "_", name).lower()
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        what = f"package {name!r} would be imported as {package}, which is taken"
        raise ProjectError(what, code="project-invalid-name", hint=f"try {name}-kernels")
    return package


def write_package(
    name: str, directory: Path, cuda: int, family: Path | None = None, *, torch: bool = False
) -> list[Path]:
    """Write a new package, completely or not at all, and return its files, sorted.

    Args:
        name: The distribution's name.
        directory: The project's; it must not exist yet, or be empty.
        cuda: The CUDA major that its wheel is compiled with.
        family: The ``family.toml`` of a family, which takes the place of the sample.
        torch: Whether its kernels are also operators of PyTorch. To declare those of a family, the package is built.

    Raises:
        ProjectError: If the name is invalid, the directory is not empty or cannot be written, or a file of the family
            is in a place that a project does not have.
        FamilyError: If the declaration of the family is invalid.
        JitltoError: If the family does not build, or no kernel can be an operator.
    """
    # Without "..", which would hide that a file is below a directory.
    declared = declaration.load_family(Path(os.path.normpath(family.absolute()))) if family else None
    sources = place_sources(declared) if declared else {}
    # A newer CUDA links what an older one has compiled (as PTX across majors), but not vice versa.
    majors = [major for major in _CUDA_MAJORS if major >= cuda]
    values = {
        "name": name,
        "package": derive_import_name(name),
        "cuda": str(cuda),
        "version": __version__,
        "extras": "\n".join(f'cu{major} = ["jitlto[cu{major}-run]"]' for major in majors),
        "majors": ", ".join(f'"{major}"' for major in majors),
        "either": " or ".join(f"`cu{major}`" for major in majors),
    }
    values["family"] = declared.name if declared else values["package"]
    values["folder"] = declared.path.parent.name if declared else values["package"]
    added = _TORCH_OF_FAMILY if declared else _TORCH
    values["operators"] = _fill(added.with_name(f"{added.name}_readme.in").read_text("utf-8"), values) if torch else ""
    try:
        files.check_path(directory)
        if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            hint = "use -o to write to a different directory"
            raise ProjectError("directory is not empty", code="project-exists", where=str(directory), hint=hint)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jitlto-") as temporary:
            # A subdirectory, because the temporary directory itself is readable by its owner only.
            root = Path(temporary) / "project"
            _write(_templates(sample=declared is None), root, values)
            for source, place in sources.items():
                (root / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, root / place)
            if torch:
                more = _operator_values(root, Path(temporary), values) if declared else {}
                _write(_files(added), root, values | more)
            root.rename(directory)
    except OSError as error:
        what = f"cannot write the package: {error.strerror}"
        hint = files.write_hint(error, "name a directory that you may write")
        raise ProjectError(what, code="project-unwritable", where=str(directory), hint=hint) from error
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _files(directory: Path) -> dict[Path, Path]:
    """Return the templates of a directory by their place in a package."""
    return {path.relative_to(directory).with_suffix(""): path for path in directory.rglob("*.in")}


def _templates(*, sample: bool) -> dict[Path, Path]:
    """Return the templates of a new package by their place in it."""
    found = _files(_TEMPLATES)
    if sample:
        return found
    return {place: path for place, path in found.items() if place.parts[0] not in _SAMPLE} | _files(_OF_FAMILY)


def _write(templates: dict[Path, Path], root: Path, values: dict[str, str]) -> None:
    for place, template in templates.items():
        path = root / _fill(str(place), values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(template.read_text("utf-8"), values), "utf-8")


def _operator_values(root: Path, directory: Path, values: dict[str, str]) -> dict[str, str]:
    """Build a new package, and return what its operators and their tests are filled in with."""
    report = project.build_package(root, directory / "built.fragdb")
    with FragmentDatabase(report.path) as database:
        made = operator_sources.make_operators(database, values["family"], values["package"])
    declarations = "\n".join(each.declaration for each in made).rstrip("\n")
    used = [part for part in ("Array", "Flag", "Launch", "Operator", "Scalar") if f"{part}(" in declarations]
    calls = "\n".join(each.call for each in made)
    return {"parts": ", ".join((*used, "torch_operator")), "declarations": declarations, "calls": calls}


def _fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
