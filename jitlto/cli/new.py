"""``jitlto new``: write a small working package with a kernel family."""

from __future__ import annotations

from pathlib import Path

import click

from jitlto.base.errors import JitltoError
from jitlto.base.text import pluralize
from jitlto.cli.parameters import DIRECTORY
from jitlto.cuda import toolkit
from jitlto.families.declaration import find_family
from jitlto.packaging.scaffold import derive_import_name, write_package


@click.command(epilog="Example: jitlto new my-kernels")
@click.argument("name")
@click.option("-o", "--output", type=DIRECTORY, help="The project's directory [default: NAME].")
@click.option(
    "--cuda", type=click.Choice(["12", "13"]),
    help="The CUDA major to compile wheels with [default: that of the installed compiler, or 12].",
)  # fmt: skip
@click.option("--family", type=DIRECTORY, help="The directory of a family to copy in place of the sample.")
@click.option("--torch", is_flag=True, help="Add operators of PyTorch, with tests.")
def new(name: str, output: Path | None, cuda: str | None, family: Path | None, torch: bool) -> None:
    """Write a small package NAME with a kernel family, to build, test and adapt.

    It has a family with matrices, templates and device headers, a pyproject.toml whose build hook compiles it, a
    Python module that launches it, tests, and a workflow for CI. No existing file is overwritten.

    With --family, the package has that family in place of the sample: the files in its directory, and the matrices and
    templates that it names.

    With --torch, its kernels are operators of PyTorch too; of another family, one kernel of each entrypoint is declared
    from its signature, to be adapted.
    """
    try:
        derive_import_name(name)
    except JitltoError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    try:
        major = int(cuda) if cuda else toolkit.nvrtc_version().major
    except JitltoError:
        major = 12
    directory = output or Path(name)
    files = write_package(name, directory, major, find_family(family) if family else None, torch=torch)
    click.echo(f"{pluralize(len(files), 'file')} in {directory}; see {directory / 'README.md'}")
