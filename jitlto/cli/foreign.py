"""``jitlto import``: declarations of families from other build systems."""

from __future__ import annotations

import re
from pathlib import Path

import click

from jitlto.base.errors import ForeignBuildError
from jitlto.base.text import pluralize
from jitlto.cli.ending import print_warning
from jitlto.cli.output import write_output
from jitlto.cli.parameters import DIRECTORY, FILE, parse_pairs
from jitlto.packaging.foreign.cmake import read_project
from jitlto.packaging.foreign.declarations import make_families


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
@click.argument("lists", metavar="CMAKELISTS", type=FILE)
@click.option("-o", "--output", type=DIRECTORY, required=True, help="The directory for the folders of the families.")
@click.option(
    "-D", "definitions", metavar="NAME=VALUE", multiple=True, callback=_definitions,
    help="Set a variable of CMake. Repeatable.",
)  # fmt: skip
def cmake(lists: Path, output: Path, definitions: dict[str, str]) -> None:
    """Read the calls of generate_jit_lto_kernels in a CMakeLists.txt of RAPIDS cuVS or librtcx.

    Writes a family.toml for each directory of templates; matrices, templates and headers stay where they are. CMake
    evaluates the file, without a compiler and without the project's dependencies; execute_process() does
    nothing. Import only projects that you trust: CMake may read and write any of your files. A family without
    kernels is used by all others.
    """
    calls, unknown = read_project(lists, definitions)
    families, notes = make_families(calls, lists.absolute().parent, output.absolute(), lists.name)
    files = {path: text for family in families for path, text in family.files.items()}
    for path in files:
        if path.exists():
            hint = "give an empty directory with -o, or remove what is there"
            raise ForeignBuildError("exists already", code="import-exists", where=str(path), hint=hint)
    for path, text in files.items():
        write_output(path, text.encode(), make_directory=True)
    if unknown:
        print_warning(f"unknown without the project's dependencies, and left out: {', '.join(unknown)}")
    for note in notes:
        print_warning(note)
    paths = [output / family.name / "family.toml" for family in families]
    for family, path in zip(families, paths, strict=True):
        click.echo(f"{path}: {pluralize(family.groups, 'group')}")
    click.echo(f"build them: jitlto build {' '.join(map(str, paths))} -o kernels.fragdb")
