"""``jitlto new`` and ``import``: write a package with a kernel family, and declarations of foreign kernels."""

import shlex
from pathlib import Path

import click

from jitlto.base.errors import ForeignBuildError
from jitlto.base.text import pluralize
from jitlto.cli.ending import print_warning
from jitlto.cli.output import write_output
from jitlto.cli.parameters import PATH, as_callback, parse_pairs
from jitlto.cuda import toolkit
from jitlto.families.declaration import find_family
from jitlto.packaging.foreign.cmake import read_project
from jitlto.packaging.foreign.declarations import make_families
from jitlto.packaging.scaffold import derive_import_name, write_package


@click.command(epilog="Example: jitlto new my-kernels")
@click.argument("name", callback=as_callback(lambda name: derive_import_name(name) and name))
@click.option("-o", "--output", type=PATH, help="The project's directory [default: NAME].")
@click.option(
    "--cuda", type=click.Choice(["12", "13"]),
    help="The CUDA major to compile wheels with [default: that of the installed cuda-bindings, or 12].",
)  # fmt: skip
@click.option("--family", type=PATH, help="The directory of a family to copy in place of the sample.")
@click.option("--torch", is_flag=True, help="Add operators of PyTorch, with a test.")
@click.option("--minimal", is_flag=True, help="Write no package, but a family of two files.")
def new(name: str, output: Path | None, cuda: str | None, family: Path | None, torch: bool, minimal: bool) -> None:
    """Write a small package NAME with a kernel family, to build, test and adapt.

    It has a family with matrices, templates and device headers, a pyproject.toml whose build hook compiles it, a
    Python module that launches it, and tests. No existing file is overwritten.

    With --family, the package has that family in place of the sample: the files in its directory, and the matrices and
    templates that it names.

    With --torch, its kernels are operators of PyTorch too; of another family, one kernel of each entrypoint is declared
    from its signature, to be adapted.
    """
    if minimal and (cuda or family or torch):
        raise click.UsageError("--minimal writes no package: leave out --cuda, --family and --torch")
    directory, major = output or Path(name), int(cuda or toolkit.cuda_major() or 12)
    files = write_package(name, directory, major, find_family(family) if family else None, torch=torch, minimal=minimal)
    then = f"build it: jitlto build {shlex.quote(str(directory))}" if minimal else f"see {directory / 'README.md'}"
    click.echo(f"{pluralize(len(files), 'file')} in {directory}; {then}")


@click.group(name="import", epilog="Example: jitlto import cmake cpp/CMakeLists.txt -o fragments/")
def import_() -> None:
    """Write declarations of kernels that another build system builds."""


@import_.command(epilog="Example: jitlto import cmake cpp/CMakeLists.txt -o fragments/")
@click.argument("lists", metavar="CMAKELISTS", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The directory for the folders of the families.")
@click.option(
    "-D", "definitions", metavar="NAME=VALUE", multiple=True, help="Set a variable of CMake. Repeatable.",
)  # fmt: skip
@click.option(
    "--toolchain", type=click.Choice(["nvcc", "nvrtc"]),
    help="The compiler to build with [default: nvcc if it is installed, or else NVRTC].",
)  # fmt: skip
def cmake(lists: Path, output: Path, definitions: tuple[str, ...], toolchain: str | None) -> None:
    """Read the calls of generate_jit_lto_kernels and rtcx_embed_blob in a CMakeLists.txt of RAPIDS cuVS or librtcx.

    Writes a family.toml for each directory of templates; matrices, templates and headers stay where they are. CMake
    evaluates the file, without a compiler; of the project's dependencies, those that are installed as CMake packages
    count. execute_process() does nothing. Import only projects that you trust: CMake may read and write any of your
    files. A family without kernels is used by all others. Options that the compiler lacks are translated or listed.
    """
    project = read_project(lists, dict(parse_pairs(definitions)), output, toolchain)
    families = make_families(project)
    files = {path: text for family in families for path, text in family.files.items()}
    for path in files:
        if path.exists():
            hint = "give an empty directory with -o, or remove what is there"
            raise ForeignBuildError("exists already", code="import-exists", where=str(path), hint=hint)
    for path, text in files.items():
        write_output(path, text.encode("utf-8", "surrogateescape"), make_directory=True)
    paths = [output / family.name / "family.toml" for family in families]
    for family, path in zip(families, paths, strict=True):
        click.echo(f"{path}: {pluralize(family.groups, 'group')}")
    click.echo(f"build them: jitlto build {' '.join(map(str, paths))} -o kernels.fragdb")
    for note in project.left_out:
        print_warning(note)
