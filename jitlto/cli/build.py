"""``jitlto render``, ``build`` and ``merge``: make sources, and a database, from declarations of families."""

import contextlib
import gc
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from jitlto.base.errors import DatabaseError
from jitlto.base.files import SUFFIX
from jitlto.base.text import pluralize
from jitlto.build import lineinfo as lines
from jitlto.build import pipeline, rendered_families
from jitlto.build.cache.cache import open_cache, open_shared_cache
from jitlto.build.execution import dask
from jitlto.build.merge import merge_databases
from jitlto.build.rendered_families import RenderedFamilies, with_used
from jitlto.build.shards import Shard
from jitlto.cli.ending import print_warning
from jitlto.cli.output import check_output, print_built, progress, write_output
from jitlto.cli.parameters import (
    PATH,
    allow_incomplete_option,
    as_callback,
    github_option,
    jobs_option,
    json_option,
    parse_pairs,
)
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.packaging.project import copy_prebuilt, load_package


@click.command(epilog="Example: jitlto render search -o rendered/")
@click.argument("name", metavar="FAMILY")
@click.option("-o", "--output", type=PATH, required=True, help="The directory to write to.")
def render(name: str, output: Path) -> None:
    """Render the templates of FAMILY, and of families that it uses, into DIR: a .cu file for each combination.

    The headers that are generated for it lie in a directory of its name.

    FAMILY is a name (looked up under ./fragments and among the shipped families) or a path.
    """
    family = declaration.load_family(declaration.find_family(name))
    families = (family, *family.all_used().values())  # no two of which have a group of one name
    count = 0
    for rendered in chain.from_iterable(map(rendered_families.render, families)):
        if rendered.group.binary:
            continue
        path = output / rendered.group.name / rendered.key.file_name
        headers = {path.with_suffix("") / name: text for name, text in rendered.headers.items()}
        for file, text in {path: rendered.text.encode(), **headers}.items():
            write_output(file, text, make_directory=True)
        count += 1
    click.echo(f"{pluralize(count, 'source')} in {output}")


@click.command(
    epilog="""\b
Example:
  jitlto build search
  jitlto build --project . -o fragments.fragdb
  jitlto build search -o float.fragdb --only data_type=float
  jitlto build search -o part-2.fragdb --shard 2/4"""
)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@click.option("-o", "--output", type=PATH, help="The database to write [default: FAMILY.fragdb, if it is of one].")
@click.option("--project", type=PATH, help="Build what [tool.jitlto] in this directory's pyproject.toml declares.")
@jobs_option("compilers")
@click.option("--executor", metavar="URL", help="Where to compile: dask://HOST:PORT [default: local worker processes].")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the build cache.")
@click.option("--no-compare-archs", is_flag=True, hidden=True, expose_value=False)  # scripts in the field pass it
@click.option("--no-sass", is_flag=True, help="Make no cubins, which take most of a build's time.")
@click.option("-k", "--keep-going", is_flag=True, help="Compile the rest after a failure, and report all by cause.")
@click.option(
    "--shard", metavar="I/N", callback=as_callback(Shard.parse), help="Build part I of N, for `jitlto merge`."
)
@click.option(
    "--only", metavar="NAME=VALUE[,VALUE]...", multiple=True, callback=as_callback(parse_pairs),
    help="Build what has one of these values, or no such parameter; entry=GROUP for entrypoints. Repeatable.",
)  # fmt: skip
@click.option(
    "--lineinfo", is_flag=True,
    help="Compile with line information, for profilers, and write the sources that it names to STEM.sources beside DB.",
)  # fmt: skip
@click.option("--timings", type=PATH, help="Write a time profile of the build, for Perfetto: FILE.json.")
@allow_incomplete_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, nor what to do next.")
@json_option
@github_option
def build(
    names: tuple[str, ...],
    output: Path | None,
    project: Path | None,
    executor: str | None,
    no_cache: bool,
    no_sass: bool,
    lineinfo: bool,
    timings: Path | None,
    quiet: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Compile FAMILYs into one fragment database; without any, all under ./fragments.

    Needs no GPU and no driver. Compiled fragments are kept in the build cache, and only changed ones are compiled
    again. The database is written at the end, completely or not at all.

    With --project, families are those of the package in that directory, whose entry points are checked too. If
    JITLTO_PREBUILT names a database, it is checked and copied instead of compiling.
    """
    shard: Shard | None = how["shard"]
    if project and names:
        raise click.UsageError("--project declares the families: leave out FAMILY")
    printed = partial(print_built, as_json=as_json, as_github=how.pop("as_github"), quiet=quiet)
    package = load_package(project) if project else None
    declared = package.families if package else [declaration.load_family(path) for path in _paths(names)]
    if output is None:
        is_part = shard or how["only"]
        if is_part or len(declared) != 1:
            named = ", ".join(family.name for family in declared)
            what = f"a part of {named}" if is_part else f"{pluralize(len(declared), 'family')}: {named}"
            raise click.UsageError(f"give -o DB: {what} has no database of its own name")
        output = Path(declared[0].name + SUFFIX)
    check_output(timings, (output,))
    _warn_of_others(output, with_used(declared))
    _collect_no_garbage()
    from_package = None if shard or lineinfo or how["only"] else package
    if from_package and (taken := copy_prebuilt(from_package, output, allow_incomplete=how["allow_incomplete"])):
        printed(taken, f"in {output} (taken from JITLTO_PREBUILT)", compiled=0)
        return
    families = with_used(declared)
    if no_sass:
        families = declaration.change_all(families, FamilyDeclaration.without_cubins)
    read = [path for family in families for group in family.groups for path in (group.matrix, group.template)]
    read += [each for family in families for each in (family.path, *dict(family.generated).values())]
    check_output(timings, read)
    if lineinfo:
        families = declaration.change_all(families, lines.with_lineinfo)
    how["cache"] = None if no_cache else open_shared_cache()
    rendered, more = RenderedFamilies(families), dict[str, Any]()
    what = "compiling, comparing architectures" if any(family.is_auto for family in families) else "compiling"
    pool = dask.connect(executor) if executor else contextlib.nullcontext()
    with progress(what, quiet=quiet) as observer, pool as how["executor"]:
        how["observer"] = observer
        try:
            report = pipeline.build(rendered, output, **how)
            if lineinfo:
                more["sources"] = lines.write_sources(rendered.requests, output)
        finally:  # timings of a failed build are written too
            if timings is not None:
                write_output(timings, observer.profile().encode())
    more |= {"cache": report.use, "seconds": round(report.seconds, 3), "compiled": report.compiled}
    printed(report, f"in {report.path} ({report.summary})", **more)
    if lineinfo and not as_json:
        click.echo(f"sources for profilers in {more['sources']}")


def _warn_of_others(output: Path, families: Iterable[FamilyDeclaration]) -> None:
    """Warn of families in the database that is to be replaced which this build does not make, as far as groups tell."""
    groups = {(family.name, group.name) for family in families for group in family.groups}
    with contextlib.suppress(DatabaseError), FragmentDatabase(output) as held:  # there may be none
        others = [f.name for f in held.families.values() if groups.isdisjoint((f.name, g.name) for g in f.groups)]
        if others:
            print_warning(f"{output} holds another {' and '.join(others)}, which this build replaces: -o names a file")


def _collect_no_garbage() -> None:
    """Keep what is made to the end of the command: looking for garbage takes up to a third of its time."""
    if gc.isenabled():
        gc.disable()
        click.get_current_context().call_on_close(gc.enable)


def _paths(names: tuple[str, ...]) -> list[Path]:
    paths = [declaration.find_family(name) for name in names] or sorted(Path("fragments").glob("*/family.toml"))
    if not paths:
        shipped = ", ".join(declaration.list_families()) or "none"
        raise click.UsageError(f"name a family: there is no fragments/ here. Shipped: {shipped}")
    return paths


@click.command(epilog="Example: jitlto merge -o search.fragdb part-1.fragdb part-2.fragdb")
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The database.")
@allow_incomplete_option
@json_option
def merge(parts: tuple[Path, ...], output: Path, allow_incomplete: bool, as_json: bool) -> None:
    """Merge PARTs, which `jitlto build --shard I/N` wrote, into one fragment database.

    The result is byte for byte that of an unsharded build. Complete databases of different families are joined too.
    The database is written at the end, completely or not at all.
    """
    _collect_no_garbage()
    report = merge_databases(parts, output, cache=open_cache(), allow_incomplete=allow_incomplete)
    print_built(report, f"from {pluralize(len(parts), 'file')} in {report.path}", as_json=as_json)
