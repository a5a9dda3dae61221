"""``jitlto warm``: link kernels ahead, into the user's cache or into a pack, with or without a GPU."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from jitlto.base.text import format_bytes, pluralize
from jitlto.base.versions import Architecture
from jitlto.build.causes import Found, found_in, group_causes
from jitlto.cli.ending import print_diagnostics
from jitlto.cli.output import print_result, progress
from jitlto.cli.parameters import PATH, jobs_option, json_option, parse_pairs, targets_option
from jitlto.cli.selection import DATABASE, DB_HELP, find_family, is_other_file
from jitlto.cuda import device, nvjitlink
from jitlto.runtime.warming import WarmJob, WarmJobs, WarmResult, family_jobs, link_jobs, recorded_jobs
from jitlto.source.load import load


@click.command(epilog="Example: jitlto warm used.jsonl --arch sm_90,sm_100 --db search.fragdb -o search.pack")
@click.argument("target", metavar=f"FILE|{DATABASE}", type=PATH)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@targets_option("--arch", "Targets")
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option("-o", "--output", type=PATH, help="Write a pack to this file.")
@jobs_option("links")
@json_option
def warm(
    target: Path,
    settings: tuple[str, ...],
    archs: list[Architecture],
    database: Path | None,
    output: Path | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Link kernels ahead, so that programs find them. Needs no GPU if --arch is given.

    FILE is a recording made with JITLTO_RECORD; its plans are linked for the architectures they were used on, or for
    those given by --arch. A family stands for all its kernels, or those with NAME=VALUE; NAME=A,B selects both values.

    Kernels are stored in the user's cache, and in the shared store or, with -o, in a pack, which then holds exactly
    these kernels. A kernel that is already there is not linked again.
    """
    work = _jobs(target, settings, archs, database)
    begin = time.perf_counter()
    with progress("linking") as shown:
        shown.add(len(work.jobs))
        result = link_jobs(work.jobs, output, jobs, shown.step)
    causes = group_causes(map(_found, result.failures))
    told: dict[str, Any] = {"linked": result.linked, "found": result.found, "failed": len(result.failures)}
    told |= {"left_out": work.left_out, "shared": result.shared, "unshared": result.unshared, "packed": result.packed}
    told |= {"nvjitlink": str(nvjitlink.version()), "seconds": round(time.perf_counter() - begin, 3)}
    told["kernels"] = [
        {"kernel": each.plan.entry.key.text, "configuration": dict(each.plan.configuration), "arch": each.arch,
         "digest": each.plan.digest, "layer": each.layer}
        for each in result.outcomes
        if each.plan and not each.error
    ]  # fmt: skip
    print_diagnostics(causes)
    print_result(told | {"diagnostics": causes}, _lines(told, work, result, output), as_json=as_json)
    return int(bool(causes or result.unshared))


def _jobs(target: Path, settings: Sequence[str], targets: Sequence[Architecture], database: Path | None) -> WarmJobs:
    if is_other_file(target):
        if settings:
            raise click.UsageError(f"NAME=VALUE does not apply to a file: {target}")
        return recorded_jobs(target, lambda name: load(name, database), targets, database)
    family = find_family(target, database)
    if not targets:
        device.current()  # or none of its kernels can be linked
    # None is the current device: its exact architecture depends on the fragments too.
    return family_jobs(family, parse_pairs(settings), targets or [None])


def _found(outcome: WarmJob) -> Found:
    assert outcome.error is not None  # noqa: S101 - failures have one
    request = outcome.request
    subject = f"{request.family}/{request.entry}" if request.entry else request.family
    return found_in(outcome.error, subject, request.configuration, outcome.arch)


def _lines(told: Mapping[str, Any], work: WarmJobs, result: WarmResult, output: Path | None) -> Iterator[str]:
    archs = ", ".join(dict.fromkeys(outcome.arch or "the current device" for outcome in result.outcomes))
    failed = f", {told['failed']} failed" if told["failed"] else ""
    state = f"for {archs}: {told['linked']} linked, {told['found']} already there{failed}"
    yield f"{pluralize(len(result.outcomes), 'kernel')} {state}" if result.outcomes else "no kernel to link"
    if work.left_out:
        yield f"skipped {pluralize(work.left_out, 'plan')} {work.reason}"
    yield f"nvJitLink {told['nvjitlink']}, {told['seconds']:.1f} s"
    if result.shared or result.unshared:
        failed = f", {result.unshared} failed" if result.unshared else ""
        yield f"shared stores: {pluralize(result.shared, 'kernel')} written{failed}"
    if output is not None:
        made = format_bytes(output.stat().st_size) if result.packed else "not written"
        yield f"{output}: {pluralize(result.packed, 'kernel')}, {made}"
