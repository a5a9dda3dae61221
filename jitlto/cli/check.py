"""``jitlto check``: proves without a GPU that every kernel of a database plans, and links."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.cli.families import DATABASE, open_database
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json, progress
from jitlto.cli.paths import PATH
from jitlto.cli.targets import parse_targets
from jitlto.cuda import toolkit
from jitlto.errors import DatabaseError
from jitlto.model.text import pluralize
from jitlto.model.versions import Architecture

if TYPE_CHECKING:
    from jitlto.model.enumeration import Kernel
    from jitlto.runtime.family import KernelFamily
    from jitlto.verify.check import FamilyProof
    from jitlto.verify.findings import Cause, Causes

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Links:
    """What was linked for one family: so many of how many kernels, how many lack callers' code, and what failed."""

    family: str
    kernels: int
    linkable: int
    waiting: int
    strength: int | None
    tuples: int | None
    causes: list[Cause]


@click.command(epilog="Example: jitlto check search.fragdb --link sm_90 --cover 2")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@click.option("--complete", is_flag=True, help="Fail for combinations that a device group's matrix leaves out, too.")
@click.option("--link", "archs", metavar="ARCH", multiple=True, help="Link for it too, e.g. sm_90; several times.")
@click.option(
    "--cover", type=click.IntRange(min=1), metavar="N", help="Link only as many kernels as hold all N values."
)
@click.option("--mode", type=click.Choice(["lto", "ptx"]), help="What to link [default: lto].")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Links at once [default: as cores and memory bear].")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def check(
    database: Path,
    names: tuple[str, ...],
    complete: bool,
    archs: tuple[str, ...],
    cover: int | None,
    mode: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Prove that every kernel of DB, or of the FAMILYs in it, can be had. Needs no GPU.

    Every requirement of every kernel is met by exactly one fragment whose layout fits, and every device fragment is
    used. With --link, every kernel links. With --cover N only some are linked: every N values of parameters that occur
    together in some kernel occur together in one of them.
    """
    if not archs and (cover or mode or jobs):
        raise click.UsageError("--cover, --mode and --jobs need --link")

    def run() -> bool:
        targets = parse_targets(archs, "--link")
        return _check(database, names, complete, targets, cover, mode or "lto", jobs, as_json)

    conclude(run)


def _check(
    path: Path,
    names: Sequence[str],
    complete: bool,
    targets: Sequence[Architecture],
    cover: int | None,
    mode: str,
    jobs: int | None,
    as_json: bool,
) -> bool:
    from jitlto.runtime.family import KernelFamily
    from jitlto.verify.check import prove
    from jitlto.verify.findings import Causes
    from jitlto.verify.link_all import refuse_unreadable

    database, named = open_database(path)
    with database:
        wanted = [*([named] if named else []), *names] or sorted(database.families)
        families = [KernelFamily(name, database) for name in dict.fromkeys(wanted)]
        if not families:
            raise DatabaseError("holds no family", where=str(path), hint="build one into it")
        if targets:
            refuse_unreadable(
                [f for family in families for f in database.fragments(family.name)], mode, str(database.path)
            )
        proofs: list[FamilyProof] = []
        described = []
        for family in families:
            proofs.append(prove(family, complete=complete))
            causes = Causes(database.fragments(family.name))
            for place, finding in enumerate(proofs[-1].failures):
                causes.add(finding, place)
            notes = Causes(database.fragments(family.name))
            for place, finding in enumerate(proofs[-1].notes):
                notes.add(finding, place)
            described.append(_proof_as_dict(proofs[-1], causes))
            if not as_json:
                _print_proof(proofs[-1], causes, notes)
        begin = time.perf_counter()
        links = _link(families, proofs, targets, cover, mode, jobs) if targets else []
        seconds = time.perf_counter() - begin
        holds = all(proof.holds for proof in proofs) and not any(item.causes for item in links)
        if targets and not as_json:
            _print_links(links, targets, mode, seconds)
        if as_json:
            print_json(
                {
                    "database": str(database.path),
                    "digest": database.digest,
                    "holds": holds,
                    "families": described,
                    "link": _links_as_dict(links, targets, mode, seconds) if targets else None,
                }
            )
    return holds


def _link(
    families: Sequence[KernelFamily],
    proofs: Sequence[FamilyProof],
    targets: Sequence[Architecture],
    strength: int | None,
    mode: str,
    jobs: int | None,
) -> list[_Links]:
    from jitlto.verify.check import link_failure
    from jitlto.verify.findings import Causes
    from jitlto.verify.link_all import LinkJob, default_jobs, link_all

    work: list[LinkJob] = []
    links: list[_Links] = []
    causes = {family.name: Causes(family.database.fragments(family.name)) for family in families}
    for family, proof in zip(families, proofs, strict=True):
        # nvJitLink needs the callers' code for the others.
        whole = [kernel for kernel in proof.kernels if not kernel.left]
        chosen, tuples = (whole, None) if strength is None else _covering(whole, strength)
        work += [LinkJob(family, kernel, target, mode) for target in targets for kernel in chosen]
        waiting = len(proof.kernels) - len(whole)
        links.append(_Links(family.name, len(chosen), len(whole), waiting, strength, tuples, []))
    with progress("linking") as (started, done):
        started(len(work))
        for place, job, error in link_all(work, jobs or default_jobs(), done):
            causes[job.family.name].add(link_failure(job.kernel, job.arch.sm, error), place)
    return [replace(item, causes=causes[item.family].all()) for item in links]


def _covering(kernels: Sequence[Kernel], strength: int) -> tuple[list[Kernel], int]:
    from jitlto.verify.covering_array import cover

    # The entrypoint's group decides like a parameter; no parameter has an empty name.
    groups = {kernel.resolution.entry.key.group for kernel in kernels}
    found = cover(
        [
            dict(kernel.configuration) | ({"": kernel.resolution.entry.key.group} if len(groups) > 1 else {})
            for kernel in kernels
        ],
        strength,
    )
    return [kernels[place] for place in found.chosen], found.tuples


def _print_proof(proof: FamilyProof, causes: Causes, notes: Causes) -> None:
    state = "every kernel plans, every fragment is used" if proof.holds else "DOES NOT HOLD"
    click.echo(
        f"{proof.family}: {pluralize(proof.fragments, 'fragment')}, {pluralize(len(proof.kernels), 'kernel')}: {state}"
    )
    for alike in notes.all():
        for note in alike.findings[:_SHOWN]:
            click.echo(f"  note: {note.message}")
        if len(alike.findings) > _SHOWN:
            click.echo(f"  and {len(alike.findings) - _SHOWN} more such notes, which --json lists")
    for cause in causes.all():
        print_cause(proof.family, cause)


def _print_links(links: Sequence[_Links], targets: Sequence[Architecture], mode: str, seconds: float) -> None:
    for item in links:
        for cause in item.causes:
            print_cause(item.family, cause)
    archs, version = ", ".join(target.sm for target in targets), toolkit.nvjitlink_version()
    for item in links:
        if not item.linkable:
            waiting = f"; {pluralize(item.waiting, 'kernel')} cannot without callers' code" if item.waiting else ""
            click.echo(f"{item.family}: linked nothing{waiting}")
            continue
        failed = sum(len(cause.findings) for cause in item.causes)
        of = pluralize(item.kernels, "kernel")
        if item.strength is not None:
            of = f"{item.kernels} of {item.linkable} kernels, which have all {item.tuples} {_tuples(item.strength)}"
        state = f"{failed} of {item.kernels * len(targets)} links fail" if failed else "all link"
        click.echo(f"{item.family}: linked {of}, for {archs}: {state}")
    click.echo(f"nvJitLink {version}, {mode}, {seconds:.1f} s")


def _tuples(strength: int) -> str:
    return {1: "values", 2: "pairs of values", 3: "triples of values"}.get(strength, f"{strength}-tuples of values")


def print_cause(family: str, cause: Cause) -> None:
    """One cause: its first finding in full, and where else it occurs."""
    first, count = cause.first, len(cause.findings)
    click.secho("error: ", fg="red", nl=False, err=True)
    target = f" for {', '.join(cause.archs)}" if cause.archs else ""
    times = f" ({count} times; the first is shown)" if count > 1 else ""
    click.echo(f"{family}: {first.kind}{target}: {first.message}{times}", err=True)
    if first.hint:
        click.echo(f"  hint: {first.hint}", err=True)
    for finding in cause.findings[:_SHOWN]:
        if finding.configuration:
            values = " ".join(f"{name}={value}" for name, value in finding.configuration.items())
            target = f" ({finding.arch})" if len(cause.archs) > 1 else ""
            click.echo(f"  at {finding.subject.partition('[')[0]}: {values}{target}", err=True)
    if count > _SHOWN:
        click.echo(f"  and {count - _SHOWN} more, which --json lists", err=True)


def _proof_as_dict(proof: FamilyProof, causes: Causes) -> dict[str, object]:
    return {
        "family": proof.family,
        "holds": proof.holds,
        "fragments": proof.fragments,
        "kernels": len(proof.kernels),
        "completed_by_callers": sum(bool(kernel.left) for kernel in proof.kernels),
        "failures": [cause_as_dict(cause) for cause in causes.all()],
        "notes": [
            {"kind": n.kind, "message": n.message, "subject": n.subject, "configuration": dict(n.configuration)}
            for n in proof.notes
        ],
    }


def _links_as_dict(
    links: Sequence[_Links], targets: Sequence[Architecture], mode: str, seconds: float
) -> dict[str, object]:
    return {
        "archs": [target.sm for target in targets],
        "mode": mode,
        "nvjitlink": str(toolkit.nvjitlink_version()),
        "seconds": round(seconds, 3),
        "families": [
            {
                "family": item.family,
                "holds": not item.causes,
                "linked": item.kernels,
                "kernels": item.linkable,
                "completed_by_callers": item.waiting,
                "cover": item.strength,
                "tuples": item.tuples,
                "failures": [cause_as_dict(cause) for cause in item.causes],
            }
            for item in links
        ],
    }


def cause_as_dict(cause: Cause) -> dict[str, object]:
    """A cause as JSON shows it."""
    first = cause.first
    return {
        "kind": first.kind,
        "archs": list(cause.archs),
        "message": first.message,
        "hint": first.hint,
        "log": first.log,
        "count": len(cause.findings),
        "at": [
            {"subject": f.subject, "configuration": dict(f.configuration), "arch": f.arch, "message": f.message}
            for f in cause.findings
        ],
    }
