"""``jitlto render`` and ``jitlto build``: make sources, and a database, from declarations of families."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jitlto.base.errors import BuildError
from jitlto.base.text import pluralize
from jitlto.cli.outcome import print_error
from jitlto.cli.output import print_built, print_json
from jitlto.cli.output_files import check_outputs, family_sources, write_output
from jitlto.cli.parameters import (
    DATABASE_FILE,
    DIRECTORY,
    FILE,
    PathType,
    allow_incomplete_option,
    jobs_option,
    json_option,
    shard_option,
)
from jitlto.cli.partial_key import describe_nearest, find_key
from jitlto.cli.progress import progress
from jitlto.families import declaration

if TYPE_CHECKING:  # not imported at run time, so that usage errors and other commands start fast
    from concurrent.futures import Executor

    from jitlto.build.cache.cache import Cache
    from jitlto.build.failures import FailedFragmentsError
    from jitlto.build.pipeline import BuildReport
    from jitlto.build.rendered_families import RenderedFamilies
    from jitlto.build.shards import Shard
    from jitlto.packaging.project import Package


@click.command(epilog="Example: jitlto render search -o rendered/")
@click.argument("name", metavar="FAMILY")
@click.option("-o", "--output", type=DIRECTORY, required=True, help="The directory to write to.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON: key, path, combination.")
def render(name: str, output: Path, as_json: bool) -> None:
    """Render the templates of FAMILY, and of families that it uses, into DIR: a .cu file for each combination.

    FAMILY is a name (looked up under ./fragments and among the shipped families) or a path.
    """
    from jitlto.families.templates import render_family

    family = declaration.load_family(declaration.find_family(name))
    sources = family_sources([family])
    listing = []
    families = (family, *family.all_used().values())  # no two of which have a group of one name
    for rendered in chain.from_iterable(map(render_family, families)):
        path = output / rendered.group.name / rendered.key.file_name
        check_outputs({"-o": path}, sources)
        write_output(path, rendered.text.encode(), make_directory=True)
        listing.append({"key": str(rendered.key), "path": str(path), "combination": dict(rendered.combination)})
    if as_json:
        print_json(listing)
    else:
        click.echo(f"{pluralize(len(listing), 'source')} in {output}")


@click.command(
    epilog="""\b
Example:
  jitlto build search -o search.fragdb
  jitlto build --project . -o fragments.fragdb
  jitlto build search -o part-2.fragdb --shard 2/4
  jitlto build search --plan-shards 4 --json
  jitlto build search --explain 'search/apply_filter[filter_name=filter_none,idx_type=uint32_t]'"""
)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@click.option("-o", "--output", type=DATABASE_FILE, help="The database to write.")
@click.option(
    "--project", type=PathType(exists=True),
    help="Build what [tool.jitlto] in the pyproject.toml of this directory declares.",
)  # fmt: skip
@jobs_option("compilers")
@click.option("--executor", metavar="URL", help="Where to compile: dask://HOST:PORT [default: local worker processes].")
@click.option("--cache-dir", type=DIRECTORY, help="The cache directory, instead of JITLTO_CACHE_DIR.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the build cache.")
@click.option("-k", "--keep-going", is_flag=True, help="Continue after failures, and report them by cause at the end.")
@shard_option("Build part I of N, for `jitlto merge`.")
@click.option("--plan-shards", metavar="N", type=click.IntRange(min=1), help="Print the jobs of a build in N parts.")
@click.option(
    "--costs", type=FILE, multiple=True,
    help="Balance shards by the times in FILE, which --timings wrote. Repeatable.",
)  # fmt: skip
@click.option(
    "--lineinfo", is_flag=True,
    help="Also build the database's twin with line information, for profilers: the directory STEM.lineinfo beside it.",
)  # fmt: skip
@click.option("--explain", metavar="KEY", help="Print why this fragment would be compiled, field by field.")
@click.option("--dry-run", is_flag=True, help="Print which fragments would be compiled.")
@click.option("--timings", type=FILE, help="Write a time profile of the build: .json, .html or .svg.")
@click.option(
    "--no-compare-archs", is_flag=True,
    help="Do not compare the code of a sample of fragments for later architectures.",
)  # fmt: skip
@allow_incomplete_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@json_option
def build(**options: Any) -> None:
    """Compile FAMILYs into one fragment database; without any, all under ./fragments.

    Needs no GPU and no driver. Compiled fragments are kept in the build cache, and only changed ones are compiled
    again. The database is written at the end, completely or not at all.

    With --project, families and compiler options are those of the package in that directory, whose entry points are
    checked too. If JITLTO_PREBUILT names a database, it is checked and copied instead of compiling.

    --plan-shards, --explain and --dry-run compile nothing: they print what a build would do.
    """
    from jitlto.families.rendering import process

    o = _Options(**options)
    outputs = _check_usage(o)
    if gc.isenabled():  # what a build makes it keeps to its end, and looking for garbage takes a third of its time
        gc.disable()
        click.get_current_context().call_on_close(gc.enable)
    workers, compiles_here = None, not (o.prints_only or o.executor)
    if o.no_cache:  # processes start while this one imports the rest; a cache may have all that they would make
        process.prepare()
        workers = _start_workers(o.jobs) if compiles_here else None
    from jitlto.build.execution.costs import read_costs
    from jitlto.build.rendered_families import RenderedFamilies, with_used
    from jitlto.packaging import prebuilt
    from jitlto.packaging.pyproject import find_project_stores

    recorded = read_costs(o.costs)
    package = None if o.project is None else _package(o.project, o.names)
    if package and o.output and not (o.prints_only or o.shard or o.lineinfo):
        how = {"allow_incomplete": o.allow_incomplete}
        taken = prebuilt.copy_prebuilt(package.config, package.families, o.output, **how)
        if taken:
            print_built(taken, f"in {o.output} (taken from JITLTO_PREBUILT)", as_json=o.as_json, compiled=0)
            return
    families = with_used(package.families if package else map(declaration.load_family, _paths(o.names)))
    check_outputs(outputs, family_sources(families), database="-o")
    root = package.config.root if package else Path()
    cache = None if o.no_cache else find_project_stores(root).open_cache(o.cache_dir)
    if cache is not None and not cache.costs() and cache.shared is None:  # nothing has what they would make
        workers = _start_workers(o.jobs) if compiles_here else None
    rendered = RenderedFamilies(families, keep_going=o.keep_going, cache=cache)
    if o.plan_shards is not None:
        _print_shards(rendered, o.plan_shards, recorded, o.as_json)
    elif o.explain is not None:
        _print_reasons(rendered, o.explain, cache, o.as_json)
    elif o.dry_run:
        _print_uncached(rendered, cache, o.as_json)
    elif o.output is not None:
        _build(rendered, o.output, cache, recorded, o, workers)


@dataclass(frozen=True, slots=True)
class _Options:
    names: tuple[str, ...]
    output: Path | None
    project: Path | None
    jobs: int | None
    executor: str | None
    cache_dir: Path | None
    no_cache: bool
    keep_going: bool
    shard: Shard | None
    plan_shards: int | None
    costs: tuple[Path, ...]
    lineinfo: bool
    explain: str | None
    dry_run: bool
    timings: Path | None
    no_compare_archs: bool
    allow_incomplete: bool
    quiet: bool
    as_json: bool

    @property
    def prints_only(self) -> bool:
        return self.plan_shards is not None or self.explain is not None or self.dry_run


def _check_usage(o: _Options) -> dict[str, Path | None]:
    """Check the options that exclude each other; return the files to write, by option."""
    from jitlto.build.execution import timings

    if o.output is None and not o.prints_only:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if (o.plan_shards is not None) + (o.explain is not None) + o.dry_run > 1:
        raise click.UsageError("--plan-shards, --explain and --dry-run exclude each other")
    if o.plan_shards and o.shard:
        raise click.UsageError("--plan-shards N prints all N parts: leave out --shard")
    if o.lineinfo and (o.shard or o.prints_only):
        raise click.UsageError("--lineinfo builds the twin of a whole database: leave it out of shards and listings")
    outputs = {"-o": None if o.prints_only else o.output, "--timings": o.timings}
    check_outputs(outputs, o.costs, database="-o")
    if o.timings is not None:
        timings.check_writable(o.timings)
    return outputs


def _build(
    rendered: RenderedFamilies,
    output: Path,
    cache: Cache | None,
    recorded: Mapping[str, int],
    o: _Options,
    workers: Executor | None,
) -> None:
    from jitlto.build import lineinfo, pipeline
    from jitlto.build.execution import timings
    from jitlto.build.failures import FailedFragmentsError
    from jitlto.cli.failures import FailureLog

    if o.lineinfo:
        lineinfo.check_writable(output)
    failures, twin = None, None  # type: FailureLog | None, Path | None
    try:
        with progress("compiling", quiet=o.quiet) as tally, _executor(o.executor, workers) as executor:
            if o.keep_going:  # otherwise the first failure ends the build
                failures = FailureLog(rendered, tally.say)
                tally.on_failure = failures.add
            recorder = timings.Recorder(next_observer=tally)
            try:
                how: dict[str, Any] = {"jobs": o.jobs, "executor": executor, "cache": cache, "observer": recorder}
                how["allow_incomplete"] = o.allow_incomplete
                choice: dict[str, Any] = {"keep_going": o.keep_going, "compare_archs": not o.no_compare_archs}
                report = pipeline.build(rendered, output, shard=o.shard, recorded=recorded, **choice, **how)
                if o.lineinfo:
                    twin = lineinfo.build_twin(rendered.families, output, **how)
            finally:  # timings of a failed build are written too
                if o.timings is not None:
                    timings.write(recorder.timings(), o.timings)
    except FailedFragmentsError as error:
        if o.as_json:
            _print_failures(error)
        raise
    except KeyboardInterrupt:
        if failures is not None and (so_far := failures.report()):
            print_error(so_far)
        raise
    _print_report(report, twin, o)


def _print_report(report: BuildReport, twin: Path | None, o: _Options) -> None:
    from jitlto.build import validate

    compared = report.architectures
    for note in (*compared.notes, *(each for each in compared.not_compared if not each.is_sampling)):
        click.echo(f"note: {note}", err=True)
    more: dict[str, object] = {"lineinfo": str(twin)} if twin else {}
    more |= {"architectures": compared.notes, "not_compared": compared.not_compared, "cache": asdict(report.use)}
    more |= {"seconds": round(report.seconds, 3), "compiled": report.compiled}
    print_built(report, f"in {report.path} ({report.summary})", as_json=o.as_json, **more)
    if twin is not None and not o.as_json:
        click.echo(f"twin with line information in {twin}: JITLTO_LINEINFO=1 uses it")
    # Not after every build: what is compiled anew may differ anew.
    if report.compiled and not (o.shard or o.as_json or o.quiet) and validate.shares_inline_functions(report.fragments):
        click.echo(f"inline functions stand in several fragments: `jitlto check {report.path}` compares them", err=True)


def _package(directory: Path, names: tuple[str, ...]) -> Package:
    from jitlto.packaging.project import load_package

    if names:
        raise click.UsageError("--project declares the families: leave out FAMILY")
    return load_package(directory)


def _paths(names: tuple[str, ...]) -> list[Path]:
    paths = [declaration.find_family(name) for name in names] or sorted(Path("fragments").glob("*/family.toml"))
    if not paths:
        shipped = ", ".join(declaration.list_families()) or "none"
        raise click.UsageError(f"name a family: there is no fragments/ here. Shipped: {shipped}")
    return paths


def _executor(url: str | None, workers: Executor | None) -> contextlib.AbstractContextManager[Executor | None]:
    if url is None:
        return contextlib.nullcontext(workers)
    from jitlto.build.execution import dask

    return dask.connect(url)


def _start_workers(jobs: int | None) -> Executor:
    """Start the process that forks workers, and have it import what NVRTC's need; they end with the command."""
    from importlib import import_module

    from jitlto.build.execution.workers import ProcessExecutor, default_jobs

    workers = ProcessExecutor(jobs or default_jobs())
    click.get_current_context().call_on_close(lambda: workers.shutdown(cancel_futures=True))
    for module in ("jitlto.build.execution.transport", "jitlto.compile.nvrtc"):
        workers.preload(import_module, module)
    return workers


def _print_shards(rendered: RenderedFamilies, count: int, recorded: Mapping[str, int], as_json: bool) -> None:
    from jitlto.build import shards

    document = shards.make_ci_matrix(rendered.shard_items(recorded), count)
    if as_json:
        click.echo(json.dumps(document))  # on one line, as $GITHUB_OUTPUT needs it
        return
    for entry in document["include"]:
        click.echo(f"{entry['shard']:>7}  {entry['fragments']} fragments, expected {entry['cost']} ms")


def _print_reasons(rendered: RenderedFamilies, text: str, cache: Cache | None, as_json: bool) -> None:
    key = find_key(text, rendered.keys)
    if key is None:
        hint = describe_nearest(text, rendered.keys, "jitlto build --dry-run")
        raise BuildError(f"no fragment {text}", code="build-unknown-fragment", hint=hint)
    reasons = rendered.explain_rebuild(key, cache)
    if as_json:
        print_json({"key": str(key), "reasons": reasons})
    else:
        click.echo("\n".join([str(key), *reasons]))


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


def _print_uncached(rendered: RenderedFamilies, cache: Cache | None, as_json: bool) -> None:
    missing = rendered.find_uncached(cache)
    if as_json:
        print_json({"fragments": len(rendered.keys), "compile": [str(key) for key in missing]})
        return
    for key in missing:
        click.echo(str(key))
    click.echo(f"{len(missing)} of {pluralize(len(rendered.keys), 'fragment')} would be compiled", err=True)
