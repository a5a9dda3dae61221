"""A new package with a family, for ``jitlto new``.

The directory ``new_package/`` holds a Jinja template of each file, with the conditions ``sample`` and ``torch``; what
renders to nothing is left out. For a family that exists already, its own files take the place of the sample's. That of
a family alone is ``new_family/``.
"""

import json
import keyword
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jinja2

from jitlto.base import __version__, files
from jitlto.base.errors import ProjectError
from jitlto.base.types import DTYPES, Parameter, find_scalar
from jitlto.build import pipeline
from jitlto.build.cache.cache import open_shared_cache
from jitlto.build.rendered_families import family_files
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.plan import enumeration
from jitlto.plan.enumeration import Kernel
from jitlto.record.headers import STD_HEADERS

_TEMPLATES = Path(__file__).parent / "new_package"
_MINIMAL = Path(__file__).parent / "new_family"
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
    name: str, directory: Path, cuda: int, family: Path | None = None, *, torch: bool = False, minimal: bool = False
) -> list[Path]:
    """Write a new package, completely or not at all, and return its files, sorted.

    Args:
        name: The distribution's name.
        directory: The project's; it must not exist yet, or be empty.
        cuda: The CUDA major that its wheel is compiled with.
        family: The ``family.toml`` of a family, which takes the place of the sample.
        torch: Whether it has operators of PyTorch. To declare those of a family, it is built.
        minimal: Whether it is no package but a family of two files.

    Raises:
        ProjectError: If the name is invalid, the directory is not empty or cannot be written, or a file of the family
            is in a place that a project does not have.
        FamilyError: If the declaration of the family is invalid.
        JitltoError: If the family does not build, or no kernel can be an operator.
    """
    declared = declaration.load_family(family.absolute()) if family else None
    package = derive_import_name(name)
    values: dict[str, Any] = {
        "name": name,
        "package": package,
        "cuda": cuda,
        "version": __version__,
        # A newer CUDA links what an older one has compiled (as PTX across majors), but not vice versa.
        "majors": [major for major in _CUDA_MAJORS if major >= cuda],
        "sample": declared is None,
        "torch": torch,
        "family": declared.name if declared else package,
        "folder": declared.path.parent.name if declared else package,
        "operators": [],
    }
    try:
        files.check_path(directory)
        if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            what, hint = "exists, and is not an empty directory", "use -o to write to a different directory"
            raise ProjectError(what, code="project-exists", where=str(directory), hint=hint)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jitlto-") as temporary:
            # A subdirectory, because the temporary directory itself is readable by its owner only.
            root = Path(temporary) / "project"
            for source, place in _place_sources(declared).items() if declared else ():
                (root / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, root / place)
            if torch and declared:
                built = Path(temporary) / "built.fragdb"
                report = pipeline.build([declared], built, cache=open_shared_cache())
                with FragmentDatabase(report.path) as database:
                    values["operators"] = _operators(database, declared.name)
            _write(root, values, _MINIMAL if minimal else _TEMPLATES)
            root.rename(directory)
    except OSError as error:
        hint = "name a directory that you may write"
        raise files.unwritable(error, directory, hint, ProjectError, "project-unwritable") from error
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _place_sources(family: FamilyDeclaration) -> dict[Path, Path]:
    """Return where the files of a family, and of those that it uses, go in a project: file → relative path.

    A family lies in ``fragments/``, its matrices and templates where they are found from there.

    Raises:
        ProjectError: If a file is outside the places that a project has.
    """
    families = (family, *family.all_used().values())
    root, above = declaration.project_root(family.path), family.path.parents[1]
    folders = [each.path.parent for each in families if each.path.parents[1] == above]
    directories = {path for each in families for path in (*each.include, *each.templates)} - {STD_HEADERS}
    places: dict[Path, Path] = {}
    for path in (*family_files(families), *sorted(directories)):
        folder = next((each for each in folders if path.is_relative_to(each)), None)
        if folder is not None:
            places[path] = Path("fragments", folder.name, path.relative_to(folder))
        elif path.is_relative_to(root) and path.relative_to(root).parts[0] in ("matrices", "templates"):
            places[path] = path.relative_to(root)
        else:
            what = f"{path} is outside the family's directory"
            hint = "move it below the directory of family.toml, or beside fragments/ into matrices/ or templates/"
            raise ProjectError(what, code="project-outside-file", where=str(family.path), hint=hint)
    return {path: place for path, place in places.items() if path.is_file()}


def _write(root: Path, values: dict[str, Any], templates: Path) -> None:
    # Delimiters that neither the templates of families nor workflows have.
    environment = jinja2.Environment(
        variable_start_string="[[", variable_end_string="]]", block_start_string="[%", block_end_string="%]",
        comment_start_string="[#", comment_end_string="#]", trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False,  # noqa: S701 - no HTML
    )  # fmt: skip
    for template in sorted(templates.rglob("*.jinja")):
        place = template.relative_to(templates).with_suffix("")
        if not values["sample"] and place.parts[0] in _SAMPLE:
            continue
        if text := environment.from_string(template.read_text("utf-8")).render(values):
            path = root / str(place).replace("PACKAGE", values["package"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def _operators(database: FragmentDatabase, family: str) -> list[dict[str, Any]]:
    """Return, for each entrypoint, an operator for its first kernel that writes to an array: parts of it as Python."""
    found: dict[str, dict[str, Any]] = {}
    for kernel in enumeration.enumerate_kernels(database.index(family)):
        if isinstance(kernel, Kernel) and not kernel.user_symbols:
            entry = kernel.resolution.entry
            arguments = [_argument(parameter) for parameter in entry.signature]
            if entry.key.group in found or not any("mutated" in argument for argument, _, _ in arguments):
                continue
            values = {name: value for name, value in kernel.configuration.items() if name != "entry"}
            found[entry.key.group] = {
                "name": re.sub(r"\W+", "_", entry.key.group),
                "entry": entry.key.group,
                "parts": [each.partition("(")[0] for each, _, _ in arguments],
                "arguments": [*(each for each, _, _ in arguments), 'Flag("grid", "int")', 'Flag("block", "int", 256)'],
                "parameters": [passed for _, passed, _ in arguments],
                "configuration": [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()],
                "examples": [*(each for _, _, each in arguments if each), '"grid": (1,)', '"block": (256,)'],
            }
    if not found:
        what, hint = "no kernel can be an operator", "its kernel writes to an array, and needs no caller's code"
        raise ProjectError(what, code="project-operators", where=family, hint=hint)
    return list(found.values())


def _argument(parameter: Parameter) -> tuple[str, str, str]:
    """Return as Python: an argument, what the kernel is passed, and an example if the argument is a flag."""
    name = f"{parameter.name}_" if keyword.iskeyword(parameter.name) else parameter.name
    name = f"{name}_" if name in ("grid", "block", "given") else name
    pointed, star, rest = parameter.type.strip().rpartition("*")
    if star and not rest.replace("const", "").strip():
        known = find_scalar(pointed)
        # Pointers are passed as integers, and what no dtype is as bytes.
        dtype = "int64" if pointed.strip().endswith("*") else DTYPES[known.typestr] if known else "uint8"
        mutated = "" if "const" in pointed.split() else ", mutated=True"
        return f'Array("{name}", "{dtype}", "*{name}_sizes"{mutated})', f'"{name}"', ""
    known = find_scalar(parameter.type)
    if known and (kind := {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(known.typestr[0])):
        return f'Scalar("{name}", "{kind}")', f'"{name}"', ""
    # A structure: its bytes, for which a program is compiled.
    passed, example = f"lambda case: bytes.fromhex(case.{name})", f'"{name}": ("{"00" * parameter.size}",)'
    return f'Flag("{name}", "str")', passed, example
