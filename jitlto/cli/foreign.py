"""`jitlto import`: declarations of families from other build systems."""

from __future__ import annotations

import os.path
import re
from pathlib import Path

import click

from jitlto.base.errors import ForeignBuildError
from jitlto.base.text import pluralize
from jitlto.cli.ending import print_warning
from jitlto.cli.outputs import write_output
from jitlto.cli.parameters import DIRECTORY, FILE, parse_pairs
from jitlto.packaging.foreign.cmake import read_project
from jitlto.packaging.foreign.declarations import make_families
from jitlto.packaging.foreign.toml_writer import family_files


@click.group(name="import", epilog="Example: jitlto import cmake cpp/CMakeLists.txt -o fragments/")
def import_() -> None:
    """Write declarations of kernels that another build system builds."""


def _definitions(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    given = dict(parse_pairs(values))
    for name in given:
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise click.BadParameter(f"{name!r} is no name of a variable")
    return given


@import_.command(epilog="Example: jitlto import cmake cpp/CMakeLists.txt -o fragments/")
@click.argument("lists", metavar="CMAKELISTS...", type=FILE, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=DIRECTORY, required=True, help="The directory to write to, a folder for each family."
)
@click.option(
    "-D",
    "definitions",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_definitions,
    help="Set a variable of CMake. Repeatable.",
)
@click.option("--include", type=DIRECTORY, multiple=True, help="A further directory of headers. Repeatable.")
@click.option("--option", "options", metavar="OPTION", multiple=True, help="A further option of nvcc. Repeatable.")
@click.option("--force", is_flag=True, help="Replace declarations that are there already.")
def cmake(
    lists: tuple[Path, ...],
    output: Path,
    definitions: dict[str, str],
    include: tuple[Path, ...],
    options: tuple[str, ...],
    force: bool,
) -> None:
    """Read the calls of generate_jit_lto_kernels in CMakeLists.txt files of RAPIDS cuVS or librtcx.

    Writes a family.toml for each directory of templates; matrices, templates and headers stay where they are. CMake
    evaluates the files, without a compiler and without the project's dependencies; execute_process() does
    nothing. Import only projects that you trust: CMake may read and write any of your files. A family without
    kernels is used by all others.
    """
    calls, notes = [], list[str]()
    for path in lists:
        recorded, unknown = read_project(path, definitions)
        calls += recorded
        if unknown:
            notes.append(f"{path}: unknown without the project's dependencies, and left out: {', '.join(unknown)}")
    source = Path(os.path.commonpath([path.absolute().parent for path in lists]))
    families, left_out = make_families(calls, source)
    files: dict[Path, str] = {}
    for family in families:
        family.include += [each.absolute() for each in include]
        for option in options:
            family.flags.add(option)
        files |= family_files(family, output.absolute(), ", ".join(path.name for path in lists))
    for path in () if force else files:
        if path.exists():
            hint = "give an empty directory with -o, or replace it with --force"
            raise ForeignBuildError("exists already", code="import-exists", where=str(path), hint=hint)
    for path, text in files.items():
        write_output(path, text.encode(), make_directory=True)
    for note in (*notes, *left_out):
        print_warning(note)
    paths = {family.name: output / family.name / "family.toml" for family in families}
    for family in families:
        click.echo(f"{paths[family.name]}: {pluralize(len(family.groups), 'group')}")
    click.echo(f"build them: jitlto build {' '.join(map(str, paths.values()))} -o kernels.fragdb")
