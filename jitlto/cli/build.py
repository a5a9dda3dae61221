"""``jitlto render`` and ``jitlto build``: from a family's declaration to sources and to a database."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from jitlto.cli import overwrite
from jitlto.cli.output import print_built, print_json
from jitlto.cli.parameters import FILE
from jitlto.errors import JitltoError, RenderError
from jitlto.model.fragment import FragmentKey
from jitlto.model.text import pluralize
from jitlto.storage import declaration

if TYPE_CHECKING:  # what the other commands need not wait for
    from concurrent.futures import Executor

    from jitlto.build.cache.cache import Cache
    from jitlto.build.failures import FailedFragmentsError
    from jitlto.build.packaging.project import Package
    from jitlto.build.pipeline import Project
    from jitlto.build.shards import Shard

_LONGEST_NAME = 200  # file systems take 255 bytes


@click.command(epilog="Example: jitlto render search -o rendered/")
@click.argument("name", metavar="FAMILY")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON: key, path, combination.")
def render(name: str, output: Path, as_json: bool) -> None:
    """Render FAMILY's templates into DIR, one .cu file for each combination.

    FAMILY is a name (looked up under ./fragments and among the shipped families) or a path.
    """
    from jitlto.build.templates import render_family

    listing = []
    family = declaration.load_family(declaration.find_family(name))
    read = overwrite.sources([family])
    for rendered in render_family(family):
        stem = quote(",".join(f"{n}={v}" for n, v in rendered.key.parameters), safe="=, ") or rendered.group.name
        if len(stem) > _LONGEST_NAME:
            stem = hashlib.sha256(stem.encode()).hexdigest()
        path = output / rendered.group.name / f"{stem}.cu"
        overwrite.refuse({"-o": path}, read)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rendered.text, "utf-8")
        except OSError as error:
            raise RenderError(
                f"cannot be written: {error.strerror}",
                where=str(path),
                hint="give a directory that you may write with -o",
            ) from error
        listing.append({"key": str(rendered.key), "path": str(path), "combination": dict(rendered.combination)})
    if as_json:
        print_json(listing)
    else:
        click.echo(f"{pluralize(len(listing), 'source')} in {output}")


def _shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    from jitlto.build.shards import Shard

    try:
        return None if value is None else Shard.parse(value)
    except JitltoError as error:
        raise click.BadParameter(str(error)) from error


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
@click.option("-o", "--output", type=FILE, help="The database.")
@click.option(
    "--project",
    "directory",
    type=click.Path(exists=True, path_type=Path),
    help="Build what [tool.jitlto] in the pyproject.toml of this directory declares.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once [default: as cores and memory bear].")
@click.option("--executor", metavar="URL", help="Where to compile: dask://HOST:PORT [default: worker processes here].")
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The cache directory, in the place of JITLTO_CACHE_DIR.",
)
@click.option("--no-cache", is_flag=True, help="Compile everything, and keep nothing.")
@click.option("-k", "--keep-going", is_flag=True, help="Compile all that compiles, then report failures by cause.")
@click.option("--shard", metavar="I/N", callback=_shard, help="Build part I of N, for `jitlto merge`.")
@click.option("--plan-shards", metavar="N", type=click.IntRange(min=1), help="Print the jobs of a build in N parts.")
@click.option(
    "--costs",
    type=FILE,
    multiple=True,
    help="Balance shards by the times in FILE, which --timings wrote. Repeatable.",
)
@click.option("--explain", metavar="KEY", help="Print why a fragment would be compiled, field by field.")
@click.option("--dry-run", is_flag=True, help="Print what would be compiled.")
@click.option(
    "--timings",
    type=FILE,
    help="Write where the time went: .json, .html or .svg.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build(
    names: tuple[str, ...],
    output: Path | None,
    directory: Path | None,
    jobs: int | None,
    executor: str | None,
    cache_dir: Path | None,
    no_cache: bool,
    keep_going: bool,
    shard: Shard | None,
    plan_shards: int | None,
    costs: tuple[Path, ...],
    explain: str | None,
    dry_run: bool,
    timings: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compile FAMILYs into one fragment database; without any, all under ./fragments.

    Needs no GPU and no driver. What a compiler has made is kept in the build cache, so that nothing is compiled again
    that would come out the same. The database appears when everything has held, or not at all.

    With --project, families and compiler options are those of the package there, whose entry points are checked too;
    and where JITLTO_PREBUILT names a database, that one is checked and copied instead of compiling.
    """
    from jitlto.build import pipeline
    from jitlto.build.cache.cache import open_cache
    from jitlto.build.execution import timings as record
    from jitlto.build.execution.costs import read_costs
    from jitlto.build.execution.events import Together
    from jitlto.build.failures import FailedFragmentsError
    from jitlto.build.packaging import prebuilt
    from jitlto.cli.progress import progress

    if sum((plan_shards is not None, explain is not None, dry_run)) > 1:
        raise click.UsageError("--plan-shards, --explain and --dry-run exclude each other")
    if plan_shards is not None and shard is not None:
        raise click.UsageError("--plan-shards N prints all N parts: leave out --shard")
    only_tells = plan_shards is not None or explain is not None or dry_run
    if output is None and not only_tells:
        raise click.UsageError("Missing option '-o' / '--output'.")
    written = {"-o": None if only_tells else output, "--timings": timings}
    overwrite.refuse(written, costs, database="-o")
    if timings is not None:
        record.check(timings)
    recorded = read_costs(costs)
    package = None if directory is None else _package(directory, names)
    if package is not None and output is not None and not only_tells and shard is None:
        taken = prebuilt.copy_prebuilt(package.config, package.families, output)
        if taken is not None:
            print_built(taken, f"in {output} (taken from JITLTO_PREBUILT)", as_json=as_json, compiled=0)
            return
    families = package.families if package else [declaration.load_family(path) for path in _paths(names)]
    overwrite.refuse(written, overwrite.sources(families), database="-o")
    project = pipeline.Project(families, keep_going=keep_going)
    cache = None if no_cache else open_cache(cache_dir)
    if plan_shards is not None:
        _print_shards(project, plan_shards, recorded, as_json)
    elif explain is not None:
        _print_reasons(project, FragmentKey.parse(explain), cache, as_json)
    elif dry_run:
        _print_missing(project, cache, as_json)
    else:
        assert output is not None  # noqa: S101 - checked above
        recorder = record.Recorder()
        try:
            with _executor(executor) as pool, progress("compiling", quiet=quiet) as observer:
                report = pipeline.build(
                    project,
                    output,
                    jobs=jobs,
                    executor=pool,
                    cache=cache,
                    observer=Together(recorder, observer),
                    keep_going=keep_going,
                    shard=shard,
                    recorded=recorded,
                )
        except FailedFragmentsError as error:
            if as_json:
                _print_failures(error)
            raise
        finally:
            if timings is not None:
                record.write(recorder.timings(), timings)
        compiled = f"{report.compiled} compiled" if report.compiled else "none compiled"
        print_built(
            report,
            f"in {report.path} ({compiled}, {report.seconds:.1f} s)",
            as_json=as_json,
            compiled=report.compiled,
            seconds=round(report.seconds, 3),
        )


def _package(directory: Path, names: tuple[str, ...]) -> Package:
    from jitlto.build.packaging.project import load_package

    if names:
        raise click.UsageError("--project says which families are built: name no others")
    return load_package(directory)


def _paths(names: tuple[str, ...]) -> list[Path]:
    paths = [declaration.find_family(name) for name in names] or sorted(Path("fragments").glob("*/family.toml"))
    if not paths:
        raise click.UsageError(
            f"name a family: there is no fragments/ here. Shipped: {', '.join(declaration.list_families()) or 'none'}"
        )
    return paths


@contextlib.contextmanager
def _executor(url: str | None) -> Iterator[Executor | None]:
    if url is None:
        yield None
        return
    from jitlto.build.execution import dask

    with dask.connect(url) as pool:
        yield pool


def _print_shards(project: Project, count: int, recorded: Mapping[str, int], as_json: bool) -> None:
    from jitlto.build import shards

    document = shards.make_ci_matrix(project.shard_items(recorded), count)
    if as_json:
        # On one line: what a job writes to $GITHUB_OUTPUT.
        click.echo(json.dumps(document))
        return
    for entry in document["include"]:
        click.echo(f"{entry['shard']:>7}  {entry['fragments']} fragments, expected {entry['cost']} ms")


def _print_reasons(project: Project, key: FragmentKey, cache: Cache | None, as_json: bool) -> None:
    reasons = project.explain_rebuild(key, cache)
    if as_json:
        print_json({"key": str(key), "reasons": reasons})
    else:
        click.echo("\n".join([str(key), *reasons]))


def _print_failures(error: FailedFragmentsError) -> None:
    print_json(
        {
            "error": error.what,
            "failures": [
                {
                    "cause": group.title,
                    "extent": list(group.extent),
                    "fragments": [str(key) for key in group.keys],
                    "message": str(group.failures[0].error),
                }
                for group in error.failures
            ],
        }
    )


def _print_missing(project: Project, cache: Cache | None, as_json: bool) -> None:
    missing = project.find_uncached(cache)
    if as_json:
        print_json({"fragments": len(project.keys), "compile": [str(key) for key in missing]})
        return
    for key in missing:
        click.echo(str(key))
    click.echo(f"{len(missing)} of {pluralize(len(project.keys), 'fragment')} would be compiled", err=True)
