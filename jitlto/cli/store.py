"""``jitlto push``, ``pull`` and ``store``: files by their content, and the upkeep of a shared store."""

import time
from pathlib import Path

import click

from jitlto.base import config, files
from jitlto.base.text import format_bytes, pluralize
from jitlto.cli.ending import SHOWN, print_error
from jitlto.cli.output import print_result, progress, writing
from jitlto.cli.parameters import PATH, json_option, parse_size
from jitlto.cli.selection import DATABASE, is_other_file, locate
from jitlto.cli.verify import verify_file
from jitlto.stores import artifacts, upkeep
from jitlto.stores.address import parse_store
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.trust import is_signed, load_signers

_PACK = ".pack"
_url = click.argument("url", metavar="URL")


def _open(url: str, *, writes: bool) -> Backend:
    return open_backend(parse_store(url, writes=writes))


@click.command(epilog="Example: jitlto push search.fragdb s3://kernels/prod")
@click.argument("files", metavar=f"{DATABASE}|FILE...", nargs=-1, required=True, type=PATH)
@_url
def push(files: tuple[Path, ...], url: str) -> None:
    """Store databases, packs, recorded plans and other files in a store, and print the address of each.

    A DB or a pack is verified first. The address ends with the SHA-256 of the content: `jitlto pull` accepts
    nothing else for it. What the store holds already is not sent again.
    """
    paths = [locate(path)[0] for path in files]
    backend = _open(url, writes=True)
    for path in paths:
        if path.suffix == _PACK or not is_other_file(path):
            verify_file(path, lambda _: None)
        address, size, was_there = artifacts.push(backend, path)
        click.echo(address)
        click.echo(f"{path}: {format_bytes(size)}{', already there' if was_there else ''}", err=True)


@click.command(epilog="Example: jitlto pull s3://kernels/prod#sha256=6f1c... -o search.fragdb")
@click.argument("address", metavar="URL#sha256=DIGEST")
@click.option("-o", "--output", type=PATH, required=True, help="The file.")
def pull(address: str, output: Path) -> None:
    """Fetch a file from a store by the address that `jitlto push` printed.

    The file is written if its SHA-256 is that of the address, and else left as it was. It needs no signature.
    """
    with writing(output):
        files.check_replaceable(output)
        artifacts.pull(address, output)
    click.echo(f"{output}: {format_bytes(output.stat().st_size)}")


@click.group(epilog="Example: jitlto store info s3://kernels/prod")
def store() -> None:
    """Inspect, prune and verify a shared store."""


@store.command(epilog="Example: jitlto store info s3://kernels/prod --json")
@_url
@json_option
def info(url: str, as_json: bool) -> None:
    """Show what a store holds: objects, bytes and dates by kind."""
    kinds = upkeep.measure(_open(url, writes=False))
    objects, size = sum(each.objects for each in kinds.values()), sum(each.size for each in kinds.values())
    lines = [f"{url}: {pluralize(objects, 'object')}, {format_bytes(size)}"]
    for kind, each in kinds.items():
        oldest, newest = (time.strftime("%Y-%m-%d", time.gmtime(date)) for date in (each.oldest, each.newest))
        held = f"{each.objects:>8}  {format_bytes(each.size):>10}"
        lines.append(f"  {kind:<10} {held}  from {oldest} to {newest}")
    print_result({"store": url, "objects": objects, "bytes": size, "kinds": kinds}, lines, as_json=as_json)


@store.command(epilog="Example: jitlto store prune s3://kernels/prod --older-than 30 --size 10G --dry-run")
@_url
@click.option("--older-than", "days", type=click.IntRange(min=0), metavar="DAYS", help="Remove what is older.")
@click.option("--size", callback=parse_size, help="Then remove the oldest until this is left.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; show what would be removed.")
def prune(url: str, days: int | None, size: int | None, dry_run: bool) -> None:
    """Remove old entries, and the oldest ones until the rest is small enough.

    What is removed is compiled or linked again when it is needed. Files that `jitlto push` has stored stay, and do not
    count.
    """
    age = None if days is None else 86400.0 * days
    if age is None and size is None:
        raise click.UsageError("give --older-than, --size or both")
    backend = _open(url, writes=not dry_run)
    removed, left = upkeep.prune(backend, older_than=age, size=size, dry_run=dry_run)
    gone, rest = (format_bytes(sum(each.size for each in held)) for held in (removed, left))
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{url}: {verb} {pluralize(len(removed), 'object')}, {gone}; {rest} left")


@store.command(epilog="Example: jitlto store verify s3://kernels/prod --signers allowed_signers --delete")
@_url
@click.option(
    "--signers", type=PATH, help="The trusted keys [default: JITLTO_STORE_SIGNERS, where entries have to be signed]."
)
@click.option("--delete", is_flag=True, help="Remove what is damaged.")
@json_option
def verify(url: str, signers: Path | None, delete: bool, as_json: bool) -> int:
    """Read everything in a store, and check checksums and signatures. Exit status 1 if anything is wrong.

    Without trusted keys, signatures are not checked. What no trusted key has signed is reported and stays until it is
    pruned.
    """
    settings = config.current()
    path = signers or (settings.store_signers if is_signed(settings, parse_store(url)) else None)
    trusted = load_signers(path) if path else None
    with progress("verifying") as shown:
        checked = []
        for each in upkeep.verify(_open(url, writes=delete), trusted, delete=delete):
            checked.append(each)
            shown.step()
    found = [each for each in checked if each is not None]
    result = {"store": url, "objects": len(checked), "signatures": trusted is not None, "damaged": found}
    for each in () if as_json else found[:SHOWN]:
        print_error(f"{each.name}: {each.reason}{' (removed)' if each.removed else ''}")
    more = [f"  and {len(found) - SHOWN} more (--json lists all)"] if len(found) > SHOWN else []
    if found and not delete:
        more.append("  hint: --delete removes what is damaged")
    removed = sum(each.removed for each in found)
    state = f"{len(found)} wrong" + (f", {removed} removed" if removed else "") if found else "all right"
    if trusted is None:
        click.echo("  signatures not checked: give --signers", err=True)
    print_result(result, [*more, f"{url}: {pluralize(len(checked), 'object')}, {state}"], as_json=as_json)
    return int(bool(found))
