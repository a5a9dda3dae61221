"""``jitlto render``, ``build`` and ``merge``: make sources, and a database, from declarations of families."""

from __future__ import annotations

import contextlib
import gc
import importlib
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from jitlto.base.text import pluralize
from jitlto.build import lineinfo, pipeline, validate
from jitlto.build.cache.cache import Cache, open_cache, open_shared_cache
from jitlto.build.execution import trace
from jitlto.build.execution.workers import ProcessExecutor, default_jobs
from jitlto.build.failures import FailedFragmentsError
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import BuildReport
from jitlto.build.rendered_families import RenderedFamilies, with_used
from jitlto.build.shards import Shard
from jitlto.cli.output import print_built, print_json, progress
from jitlto.cli.outputs import check_outputs, write_output
from jitlto.cli.parameters import (
    DATABASE_FILE,
    DIRECTORY,
    FILE,
    PATH,
    PathType,
    allow_incomplete_option,
    jobs_option,
    json_option,
    shard_option,
)
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import render_family
from jitlto.packaging.project import Package, copy_prebuilt, load_package


@click.command(epilog="Example: jitlto render search -o rendered/")
@click.argument("name", metavar="FAMILY")
@click.option("-o", "--output", type=DIRECTORY, required=True, help="The directory to write to.")
def render(name: str, output: Path) -> None:
    """Render the templates of FAMILY, and of families that it uses, into DIR: a .cu file for each combination.

    FAMILY is a name (looked up under ./fragments and among the shipped families) or a path.
    """
    family = declaration.load_family(declaration.find_family(name))
    families = (family, *family.all_used().values())  # no two of which have a group of one name
    count = 0
    for rendered in chain.from_iterable(map(render_family, families)):
        path = output / rendered.group.name / rendered.key.file_name
        check_outputs({"-o": path}, _sources(families))
        write_output(path, rendered.text.encode(), make_directory=True)
        count += 1
    click.echo(f"{pluralize(count, 'source')} in {output}")


@dataclass(frozen=True, slots=True)
class _Options:
    names: tuple[str, ...]
    output: Path
    project: Path | None
    jobs: int | None
    executor: str | None
    no_cache: bool
    keep_going: bool
    shard: Shard | None
    lineinfo: bool
    timings: Path | None
    allow_incomplete: bool
    quiet: bool
    as_json: bool


@click.command(
    epilog="""\b
Example:
  jitlto build search -o search.fragdb
  jitlto build --project . -o fragments.fragdb
  jitlto build search -o part-2.fragdb --shard 2/4"""
)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@click.option("-o", "--output", type=DATABASE_FILE, required=True, help="The database to write.")
@click.option(
    "--project", type=PathType(exists=True),
    help="Build what [tool.jitlto] in the pyproject.toml of this directory declares.",
)  # fmt: skip
@jobs_option("compilers")
@click.option("--executor", metavar="URL", help="Where to compile: dask://HOST:PORT [default: local worker processes].")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the build cache.")
@click.option("--no-compare-archs", is_flag=True, hidden=True, expose_value=False)  # of scripts: nothing is compared
@click.option("-k", "--keep-going", is_flag=True, help="Continue after failures, and report them by cause at the end.")
@shard_option("Build part I of N, for `jitlto merge`.")
@click.option(
    "--lineinfo", is_flag=True,
    help="Also build the database's twin with line information, for profilers: the directory STEM.lineinfo beside it.",
)  # fmt: skip
@click.option("--timings", type=FILE, help="Write a time profile of the build, for Perfetto: FILE.json.")
@allow_incomplete_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@json_option
def build(**options: Any) -> None:
    """Compile FAMILYs into one fragment database; without any, all under ./fragments.

    Needs no GPU and no driver. Compiled fragments are kept in the build cache, and only changed ones are compiled
    again. The database is written at the end, completely or not at all.

    With --project, families and compiler options are those of the package in that directory, whose entry points are
    checked too. If JITLTO_PREBUILT names a database, it is checked and copied instead of compiling.
    """
    o = _Options(**options)
    outputs = _check_usage(o)
    _collect_no_garbage()
    if (prepared := _prepare(o, outputs)) is None:
        return
    rendered, cache = prepared
    if o.lineinfo:
        lineinfo.check_writable(o.output)
    twin = None
    try:
        with progress("compiling", quiet=o.quiet) as observer, _executor(o, cache) as executor:
            recorder = trace.Trace(observer)
            try:
                how: dict[str, Any] = {"jobs": o.jobs, "executor": executor, "cache": cache, "observer": recorder}
                how["allow_incomplete"] = o.allow_incomplete
                choice: dict[str, Any] = {"keep_going": o.keep_going, "shard": o.shard}
                report = pipeline.build(rendered, o.output, **choice, **how)
                if o.lineinfo:
                    twin = lineinfo.build_twin(rendered.families, o.output, **how)
            finally:  # timings of a failed build are written too
                if o.timings is not None:
                    trace.write(recorder, o.timings)
    except FailedFragmentsError as error:
        if o.as_json:
            _print_failures(error)
        raise
    _print_report(report, twin, o)


def _collect_no_garbage() -> None:
    """Keep what is made to the end of the command: looking for garbage takes up to a third of its time."""
    if gc.isenabled():
        gc.disable()
        click.get_current_context().call_on_close(gc.enable)


def _prepare(o: _Options, outputs: dict[str, Path | None]) -> tuple[RenderedFamilies, Cache | None] | None:
    """Return what to build, and the cache; None if there is nothing to compile."""
    package = None if o.project is None else _package(o.project, o.names)
    taken = None
    if package and not (o.shard or o.lineinfo):
        taken = copy_prebuilt(package, o.output, allow_incomplete=o.allow_incomplete)
    if taken:
        print_built(taken, f"in {o.output} (taken from JITLTO_PREBUILT)", as_json=o.as_json, compiled=0)
        return None
    families = with_used(package.families if package else map(declaration.load_family, _paths(o.names)))
    check_outputs(outputs, _sources(families), database="-o")
    cache = None if o.no_cache else open_shared_cache()
    return RenderedFamilies(families, keep_going=o.keep_going), cache


def _check_usage(o: _Options) -> dict[str, Path | None]:
    """Check the options that exclude each other; return the files to write, by option."""
    if o.lineinfo and o.shard:
        raise click.UsageError("--lineinfo builds the twin of a whole database: leave it out of shards")
    outputs = {"-o": o.output, "--timings": o.timings}
    check_outputs(outputs, (), database="-o")
    if o.timings is not None:
        trace.check_writable(o.timings)
    return outputs


def _print_report(report: BuildReport, twin: Path | None, o: _Options) -> None:
    more: dict[str, object] = {"lineinfo": str(twin)} if twin else {}
    more |= {"cache": asdict(report.use), "seconds": round(report.seconds, 3), "compiled": report.compiled}
    print_built(report, f"in {report.path} ({report.summary})", as_json=o.as_json, **more)
    if twin is not None and not o.as_json:
        click.echo(f"twin with line information in {twin}: JITLTO_LINEINFO=1 uses it")
    # Not after every build: what is compiled anew may differ anew.
    if report.compiled and not (o.shard or o.as_json or o.quiet) and validate.shares_inline_functions(report.fragments):
        click.echo(f"inline functions stand in several fragments: `jitlto check {report.path}` compares them", err=True)


def _package(directory: Path, names: tuple[str, ...]) -> Package:
    if names:
        raise click.UsageError("--project declares the families: leave out FAMILY")
    return load_package(directory)


def _paths(names: tuple[str, ...]) -> list[Path]:
    paths = [declaration.find_family(name) for name in names] or sorted(Path("fragments").glob("*/family.toml"))
    if not paths:
        shipped = ", ".join(declaration.list_families()) or "none"
        raise click.UsageError(f"name a family: there is no fragments/ here. Shipped: {shipped}")
    return paths


def _sources(families: tuple[FamilyDeclaration, ...]) -> list[Path]:
    """Return the declarations, matrices and templates of families."""
    groups = [group for family in families for group in family.groups]
    read = (path for group in groups for path in (*group.matrices, group.template) if path is not None)
    return [*(family.path for family in families), *read]


def _executor(o: _Options, cache: Cache | None) -> contextlib.AbstractContextManager[Executor | None]:
    """Return where to compile; processes start ahead, while families are rendered, if no cache has what they make."""
    if o.executor is not None:
        from jitlto.build.execution import dask  # imported late: the extra dask

        return dask.connect(o.executor)
    if cache is not None and (cache.stores is not None or not cache.is_empty):
        return contextlib.nullcontext()
    workers = ProcessExecutor(o.jobs or default_jobs())
    click.get_current_context().call_on_close(lambda: workers.shutdown(cancel_futures=True))
    for module in ("jitlto.build.execution.transport", "jitlto.compile.nvrtc"):
        workers.preload(importlib.import_module, module)
    return contextlib.nullcontext(workers)


def _print_failures(error: FailedFragmentsError) -> None:
    failures = [
        {
            "cause": group.title,
            "extent": list(group.extent),
            "fragments": list(map(str, group.keys)),
            "message": str(group.failures[0].error),
        }
        for group in error.failures
    ]
    print_json({"error": error.what, "failures": failures})


@click.command(epilog="Example: jitlto merge -o search.fragdb part-1.fragdb part-2.fragdb")
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", type=DATABASE_FILE, required=True, help="The database.")
@click.option("--allow-gaps", is_flag=True, help="Leave out fragments that no PART holds.")
@click.option("--allow-mixed", is_flag=True, help="Accept parts made by different compilers.")
@allow_incomplete_option
@json_option
def merge(parts: tuple[Path, ...], output: Path, as_json: bool, **allow: bool) -> None:
    """Merge PARTs, which `jitlto build --shard I/N` wrote, into one fragment database.

    The result is byte for byte that of an unsharded build. Complete databases of different families are joined too.
    The database is written at the end, completely or not at all.
    """
    _collect_no_garbage()
    report = merge_databases(parts, output, cache=open_cache(), **allow)
    print_built(report, f"from {pluralize(len(parts), 'file')} in {report.path}", as_json=as_json)
