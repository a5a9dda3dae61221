"""A new package with a family, for ``jitlto new``.

The directory ``new_package/`` holds its files with the suffix ``.in``. ``@package@`` and other names between @ are
replaced, also in paths. For a family that exists already, the files in ``new_package_of_family/`` replace those with
the same name, and the family's own files those of the sample. ``new_package_torch/`` adds operators of PyTorch,
and ``new_package_torch_readme.in`` a section of the README.
"""

from __future__ import annotations

import keyword
import os.path
import re
import shutil
import sys
import tempfile
from pathlib import Path

from jitlto.build.packaging.family_sources import place_sources
from jitlto.errors import ProjectError
from jitlto.storage import declaration, files
from jitlto.version import __version__

_TEMPLATES = Path(__file__).parent / "new_package"
_OF_FAMILY = Path(__file__).parent / "new_package_of_family"
_TORCH = Path(__file__).parent / "new_package_torch"
_TORCH_README = Path(__file__).parent / "new_package_torch_readme.in"  # a section of it
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
        torch: Whether the sample's kernels are also operators of PyTorch.

    Raises:
        ProjectError: If the name is invalid, the directory is not empty or cannot be written, or a file of the family
            is in a place that a project does not have.
        FamilyError: If the declaration of the family is invalid.
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
    values["operators"] = _fill(_TORCH_README.read_text("utf-8"), values) if torch else ""
    try:
        files.check_path(directory)
        if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            hint = "use -o to write to a different directory"
            raise ProjectError("directory is not empty", code="project-exists", where=str(directory), hint=hint)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jitlto-") as temporary:
            # A subdirectory, because the temporary directory itself is readable by its owner only.
            root = Path(temporary) / "project"
            for place, template in _templates(sample=declared is None, torch=torch).items():
                path = root / _fill(str(place), values)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_fill(template.read_text("utf-8"), values), "utf-8")
            for source, place in sources.items():
                (root / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, root / place)
            root.rename(directory)
    except OSError as error:
        what = f"cannot write the package: {error.strerror}"
        hint = files.write_hint(error, "name a directory that you may write")
        raise ProjectError(what, code="project-unwritable", where=str(directory), hint=hint) from error
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _templates(*, sample: bool, torch: bool) -> dict[Path, Path]:
    """Return the templates of a new package by their place in it."""
    found = {path.relative_to(_TEMPLATES).with_suffix(""): path for path in _TEMPLATES.rglob("*.in")}
    if sample:
        more = _TORCH.rglob("*.in") if torch else ()
        return found | {path.relative_to(_TORCH).with_suffix(""): path for path in more}
    kept = {place: path for place, path in found.items() if place.parts[0] not in _SAMPLE}
    return kept | {path.relative_to(_OF_FAMILY).with_suffix(""): path for path in _OF_FAMILY.rglob("*.in")}


def _fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
