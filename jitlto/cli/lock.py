"""``jitlto lock``: write down what a deployment needs, so that stores keep it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base.errors import StoreError
from jitlto.base.text import pluralize
from jitlto.base.versions import Architecture
from jitlto.cli.families import DATABASE, locate
from jitlto.cli.output import print_json
from jitlto.cli.output_files import check_outputs, check_writable, write_output
from jitlto.cli.parameters import FILE, PATH, TargetList, json_option, targets_option

if TYPE_CHECKING:
    from jitlto.stores.lock_file import LockFile

_DEFAULT = Path("jitlto.lock")


@click.command(epilog="Example: jitlto lock search.fragdb used.jsonl --name production --store s3://kernels/prod")
@click.argument("targets", metavar=f"{DATABASE}|FILE...", nargs=-1, required=True, type=PATH)
@targets_option("--arch", "Include all kernels of each DB for these targets", TargetList("reachable"))
@click.option("--name", help="Stores replace an earlier lock file of this name [default: a name of its own].")
@click.option("-o", "--output", type=FILE, help="The lock file [default: jitlto.lock, or none with --store].")
@click.option("--store", "url", metavar="URL", help="Put it into this store, where `jitlto store prune` heeds it.")
@json_option
def lock(
    targets: tuple[Path, ...],
    archs: list[Architecture],
    name: str | None,
    output: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Write the digests of what a deployment needs from a store to a lock file: `jitlto store prune` keeps it.

    FILE is a pack, a file of recorded plans (JITLTO_RECORD), or another lock file, whose content is added. Of each DB
    it lists the file, the packs beside it and the kernels in them; of recorded plans the linked kernels, as planned
    with the nvJitLink of this machine.
    """
    from jitlto.runtime.deployment import enumerate_needs

    if output is None and url is None:
        output = _DEFAULT
    # The lock file may be one of the targets, to add to it.
    check_outputs({"-o": output}, [target for target in targets if output is None or target != output])
    if output is not None:
        check_writable(output)
    made = enumerate_needs([locate(target) for target in targets], archs, name)
    if output is _DEFAULT:
        _check_same(output, made)
    if output is not None:
        write_output(output, made.encode())
    if url is not None:
        from jitlto.stores.artifact_address import parse_store
        from jitlto.stores.artifacts import open_store
        from jitlto.stores.upkeep import put_lock

        put_lock(open_store(parse_store(url, writes=True)), made)
    if as_json:
        counts = {"artifacts": len(made.artifacts), "kernels": len(made.kernels)}
        print_json({"name": made.name, "path": output and str(output), "store": url, **counts})
        return
    held = f"{pluralize(len(made.artifacts), 'file')} and {pluralize(len(made.kernels), 'kernel')}"
    places = " and ".join(str(place) for place in (output, url) if place is not None)
    click.echo(f"{places}: {held}, as {made.name}")


def _check_same(path: Path, made: LockFile) -> None:
    """Check that no lock file with other content would be replaced, where nobody has named it."""
    from jitlto.stores.lock_file import LockFile

    if os.path.lexists(path) and LockFile.read(path).encode() != made.encode():
        what, hint = "names other content: not replaced", f"write -o {path} to replace it, or give another name"
        raise StoreError(what, code="store-lock-kept", where=str(path), hint=hint)
