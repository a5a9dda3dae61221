"""``jitlto store``: what a shared store holds, room in it, and whether what it holds is right."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.text import format_bytes, pluralize
from jitlto.cli.outcome import conclude
from jitlto.cli.output import SHOWN, print_json
from jitlto.cli.parameters import FILE, json_option
from jitlto.cli.progress import progress

if TYPE_CHECKING:
    from jitlto.stores.backend import Backend
    from jitlto.stores.upkeep import Damage, Pruned

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_url = click.argument("url", metavar="URL")


def _size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else config.parse_size(value, "--size")
    except JitltoError as error:
        raise click.BadParameter(f"{error.what}; {error.hint}") from None


def _age(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    match = re.fullmatch(r"([0-9]{1,9})([mhdw])", value or "")
    if value is not None and match is None:
        raise click.BadParameter(f"invalid age {value!r}; write e.g. 12h, 30d or 8w")
    return float(match[1]) * _UNITS[match[2]] if match else None


def _open(url: str, *, writes: bool = True) -> Backend:
    from jitlto.stores.address import parse_store
    from jitlto.stores.artifacts import open_store

    return open_store(parse_store(url, writes=writes))


@click.group(epilog="Example: jitlto store info s3://kernels/prod")
def store() -> None:
    """Inspect, prune and verify a shared store."""


@store.command(
    short_help="Show what a store holds, by kind.",
    epilog="Example: jitlto store info s3://kernels/prod --json",
)
@_url
@json_option
def info(url: str, as_json: bool) -> None:
    """Show what a store holds: objects, bytes and dates of last use by kind.

    The date of last use is known to a day.
    """
    from jitlto.stores import upkeep

    backend = _open(url, writes=False)
    kinds = upkeep.measure(backend)
    objects, size = sum(each.objects for each in kinds.values()), sum(each.size for each in kinds.values())
    if as_json:
        described = {kind: asdict(each) for kind, each in kinds.items()}
        print_json({"store": url, "objects": objects, "bytes": size, "kinds": described})
        return
    click.echo(f"{url}: {pluralize(objects, 'object')}, {format_bytes(size)}")
    for kind, each in kinds.items():
        dates = f"last used {_date(each.oldest)} to {_date(each.newest)}"
        click.echo(f"  {kind:<10} {each.objects:>8}  {format_bytes(each.size):>10}  {dates}")


@store.command(
    short_help="Remove what is not used.",
    epilog="Example: jitlto store prune s3://kernels/prod --older-than 30d --size 10G --dry-run",
)
@_url
@click.option("--older-than", "age", callback=_age, metavar="AGE", help="Remove what was not used for so long: 30d.")
@click.option("--size", callback=_size, metavar="SIZE", help="Then remove the least recently used until this is left.")
@click.option("--artifacts", is_flag=True, help="Remove pushed files too, which nobody makes again.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; show what would be removed.")
@json_option
def prune(url: str, age: float | None, size: int | None, artifacts: bool, dry_run: bool, as_json: bool) -> None:
    """Remove objects that were not used for long, and the least recently used ones until the rest is small enough.

    What is removed is compiled or linked again when it is needed. Files that `jitlto push` has stored stay, and do not
    count, without --artifacts.
    """
    if age is None and size is None:
        raise click.UsageError("give --older-than, --size or both")
    from jitlto.stores import upkeep

    def run() -> bool:
        backend = _open(url, writes=not dry_run)
        done = upkeep.prune(backend, older_than=age, size=size, with_artifacts=artifacts, dry_run=dry_run)
        if as_json:
            print_json({"store": url, "dry_run": dry_run, **asdict(done)})
        else:
            _print_pruned(url, done, dry_run)
        return True

    conclude(run)


def _print_pruned(url: str, done: Pruned, dry_run: bool) -> None:
    nouns = {"compiled": "compiled source"}
    removed = ", ".join(
        pluralize(count, nouns.get(kind, kind.removesuffix("s"))) for kind, count in sorted(done.removed.items())
    )
    verb = "would remove" if dry_run else "removed"
    gone = f"{pluralize(sum(done.removed.values()), 'object')}, {format_bytes(done.size)}"
    click.echo(f"{url}: {verb} {gone}{f' ({removed})' if removed else ''}; {format_bytes(done.size_left)} left")


@store.command(
    short_help="Check names, checksums and signatures.",
    epilog="Example: jitlto store verify s3://kernels/prod --signers allowed_signers --delete",
)
@_url
@click.option(
    "--signers", type=FILE, help="The trusted keys [default: JITLTO_STORE_SIGNERS, where entries have to be signed]."
)
@click.option("--delete", is_flag=True, help="Remove what is damaged.")
@click.option("--delete-untrusted", is_flag=True, help="Remove what is not signed by a trusted key.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; show what would be removed.")
@json_option
def verify(url: str, signers: Path | None, delete: bool, delete_untrusted: bool, dry_run: bool, as_json: bool) -> None:
    """Read everything in a store, and check names, checksums and signatures. Exit status 1 if anything is wrong.

    Without trusted keys, signatures are not checked. Objects under names that jitlto does not give are reported,
    and never removed.
    """
    from jitlto.stores import upkeep
    from jitlto.stores.address import parse_store
    from jitlto.stores.trust import Trust, TrustedKeys

    def run() -> bool:
        address, settings = parse_store(url), config.current()
        path = signers or (settings.store_signers if Trust.of(settings, address).signed else None)
        trusted = TrustedKeys.load(path) if path else None
        if delete_untrusted and trusted is None:
            raise click.UsageError("--delete-untrusted needs the trusted keys: give --signers")
        counted = 0

        def start(count: int) -> None:
            nonlocal counted
            counted = count
            tally.started(range(count))

        with progress("verifying") as tally:
            done = iter(range(1 << 62))
            found = upkeep.verify(
                _open(url, writes=(delete or delete_untrusted) and not dry_run),
                trusted,
                delete=delete,
                delete_untrusted=delete_untrusted,
                dry_run=dry_run,
                on_start=start,
                on_object=lambda _: tally.finished(next(done)),
            )
        if as_json:
            damaged = [asdict(each) for each in found]
            signatures = trusted is not None
            print_json(
                {"store": url, "objects": counted, "signatures": signatures, "dry_run": dry_run, "damaged": damaged}
            )
        else:
            _print_verified(url, counted, found, signed=trusted is not None, dry_run=dry_run)
            if delete and (left := sum(each.untrusted and not each.removed for each in found)):
                click.echo(f"  not removed: {pluralize(left, 'object')} that no trusted key has signed", err=True)
                click.echo("  hint: check the trusted keys; --delete-untrusted removes such objects", err=True)
        return not found

    conclude(run)


def _print_verified(url: str, count: int, found: Sequence[Damage], *, signed: bool, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    for each in found[:SHOWN]:
        click.secho("error: ", fg="red", nl=False, err=True)
        click.echo(f"{each.name}: {each.reason}{f' ({verb})' if each.removed else ''}", err=True)
    if len(found) > SHOWN:
        click.echo(f"  and {len(found) - SHOWN} more (--json lists all)", err=True)
    state = f"{len(found)} wrong" if found else "all right"
    if removed := sum(each.removed for each in found):
        state += f", {removed} {verb}"
    click.echo(f"{url}: {pluralize(count, 'object')}, {state}")
    if not signed:
        click.echo("  signatures not checked: give --signers", err=True)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
