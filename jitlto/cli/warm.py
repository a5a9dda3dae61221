"""``jitlto warm``: link kernels ahead, into the user's cache or into a pack, with or without a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from jitlto.base.errors import JitltoError, NoDeviceError, RegistryError
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.versions import Architecture
from jitlto.cli.output import print_cause, print_json, progress
from jitlto.cli.parameters import FILE, PATH, jobs_option, json_option, parse_pairs, targets_option
from jitlto.cli.selection import DB_HELP, find_family
from jitlto.cuda import device, nvjitlink
from jitlto.record.check_result import Cause, Place
from jitlto.runtime.warming import WarmJobs, WarmResult, family_jobs, link_jobs, recorded_jobs


@click.command(epilog="Example: jitlto warm used.jsonl --arch sm_90,sm_100 --db search.fragdb -o search.pack")
@click.argument("target", metavar="FILE|[PACKAGE:]FAMILY")
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@targets_option("--arch", "Targets")
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option("-o", "--output", type=FILE, help="Write a pack to this file.")
@jobs_option("links")
@json_option
def warm(
    target: str,
    settings: tuple[str, ...],
    archs: list[Architecture],
    database: Path | None,
    output: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Link kernels ahead, so that programs find them. Needs no GPU if --arch is given.

    FILE is a recording made with JITLTO_RECORD; its plans are linked for the architectures they were used on, or for
    those given by --arch. FAMILY stands for all its kernels, or those with NAME=VALUE; NAME=A,B selects both values.

    Kernels are stored in the user's cache and the shared stores or, with -o, in a pack, which then holds exactly these
    kernels. A kernel that is already there is not linked again.
    """
    if settings and Path(target).is_file():
        raise click.UsageError(f"NAME=VALUE does not apply to a file: {target}")
    work = _jobs(target, settings, archs, database)
    begin = time.perf_counter()
    with progress("linking") as shown:
        shown.add(len(work.jobs))
        result = link_jobs(work.jobs, output, jobs, shown.step)
    seconds = time.perf_counter() - begin
    causes = _causes(result)
    if as_json:
        print_json(_as_dict(work, result, causes, output, seconds))
    else:
        _print(work, result, causes, output, seconds)
    if causes or result.unshared:
        raise SystemExit(1)


def _jobs(target: str, settings: Sequence[str], targets: Sequence[Architecture], database: Path | None) -> WarmJobs:
    if Path(target).is_file():
        return recorded_jobs(Path(target), lambda name: find_family(name, database), targets, database)
    try:
        family = find_family(target, database)
    except RegistryError as error:
        if ":" in target or ("/" not in target and "." not in target):
            raise
        what = "no such file, and no family of that name"
        hint = "JITLTO_RECORD=FILE makes a file; a FAMILY is looked up in --db, or in JITLTO_DATABASE_PATH and "
        hint += "installed packages"
        raise JitltoError(what, code="jitlto-no-such-file", where=target, hint=hint) from error
    return family_jobs(family, parse_pairs(settings), targets or _current_device())


def _current_device() -> list[None]:
    """Return the target None, for the current device: its exact architecture depends on the fragments too."""
    try:
        device.current()
    except NoDeviceError as error:
        raise click.UsageError(f"give --arch, e.g. --arch sm_90: {error.what}") from None
    return [None]


def _causes(result: WarmResult) -> list[Cause]:
    """Group what failed by the code of its error."""
    groups: dict[str, list[tuple[JitltoError, Place]]] = {}
    for each in result.failures:
        assert each.error is not None  # noqa: S101 - failures have one
        request = each.job.request
        subject = f"{request.family}/{request.entry}" if request.entry else request.family
        place = Place(subject, dict(request.configuration), each.arch, each.error.what)
        groups.setdefault(each.error.code, []).append((each.error, place))
    causes = []
    for code, several in groups.items():
        first, archs = several[0][0], tuple(dict.fromkeys(place.arch for _, place in several if place.arch))
        message = f"{first.where}: {first.what}" if first.where else first.what
        places = tuple(place for _, place in several)
        causes.append(Cause("does not link", archs, message, first.hint, "", places, len(several), code))
    return causes


def _print(work: WarmJobs, result: WarmResult, causes: Sequence[Cause], output: Path | None, seconds: float) -> None:
    for cause in causes:
        print_cause("linking", cause)
    archs = ", ".join(dict.fromkeys(outcome.arch or "the current device" for outcome in result.outcomes))
    failed = f", {len(result.failures)} failed" if result.failures else ""
    state = f"for {archs}: {result.linked} linked, {result.found} already there{failed}"
    click.echo(f"{pluralize(len(result.outcomes), 'kernel')} {state}" if result.outcomes else "no kernel to link")
    if work.left_out:
        click.echo(f"skipped {pluralize(work.left_out, 'plan')} {work.reason}")
    click.echo(f"nvJitLink {nvjitlink.version()}, {seconds:.1f} s")
    if result.shared or result.unshared:
        failed = f", {result.unshared} failed" if result.unshared else ""
        click.echo(f"shared stores: {pluralize(result.shared, 'kernel')} written{failed}")
    if output is None:
        return
    if not result.packed:
        click.echo(f"{output}: not written, because no kernel was linked")
        return
    click.echo(f"{output}: {pluralize(result.packed, 'kernel')}, {format_bytes(output.stat().st_size)}")
    for stem in sorted({outcome.plan.database.path.stem for outcome in result.outcomes if outcome.plan}):
        if not (output.name.startswith(f"{stem}.") and output.suffix == ".pack"):
            click.echo(f"  programs find it only beside {stem}.fragdb, named {stem}.pack or {stem}.*.pack")


def _as_dict(
    work: WarmJobs, result: WarmResult, causes: Sequence[Cause], output: Path | None, seconds: float
) -> dict[str, object]:
    kernels = [
        {"kernel": each.plan.entry.key.text, "configuration": dict(each.plan.configuration), "arch": each.arch,
         "digest": each.plan.digest, "layer": each.layer}
        for each in result.outcomes
        if each.plan and not each.error
    ]  # fmt: skip
    counts = {"linked": result.linked, "found": result.found, "failed": len(result.failures)}
    counts |= {"left_out": work.left_out, "shared": result.shared, "unshared": result.unshared}
    linker = {"nvjitlink": str(nvjitlink.version()), "seconds": round(seconds, 3)}
    return {**counts, "pack": str(output) if result.packed else None, **linker, "kernels": kernels, "failures": causes}
