"""``jitlto push`` and ``pull``: files into a store and out of it, by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base import files
from jitlto.base.errors import JitltoError
from jitlto.base.text import format_bytes, pluralize
from jitlto.cli.families import DATABASE, locate
from jitlto.cli.output import print_json
from jitlto.cli.output_files import check_writable, report_unwritable
from jitlto.cli.parameters import FILE, PATH, json_option
from jitlto.cli.progress import progress

if TYPE_CHECKING:
    from jitlto.cli.tally import Tally
    from jitlto.stores.artifacts import Pushed
    from jitlto.stores.backend import Backend

_PACK = ".pack"


@click.command(epilog="Example: jitlto push search.fragdb s3://kernels/prod")
@click.argument("files", metavar=f"{DATABASE}|FILE...", nargs=-1, required=True, type=PATH)
@click.argument("url", metavar="URL")
@json_option
def push(files: tuple[Path, ...], url: str, as_json: bool) -> None:
    """Store databases, packs, recorded plans and other files in a store, and print the address of each.

    A DB is verified first, and pushed with the packs beside it. The address ends with the SHA-256 of the content:
    `jitlto pull` and jitlto.load accept nothing else for it. What the store holds already is not sent again.
    """
    from jitlto.stores.address import parse_store
    from jitlto.stores.artifacts import open_store

    paths = [locate(path)[0] for path in files]
    backend = open_store(parse_store(url, writes=True))
    done = []
    for path in paths:
        with progress("pushing (MiB)") as tally:
            held = _push(backend, path, _Megabytes(tally))
        if as_json:
            done.append(_as_dict(path, held))
        else:
            click.echo(str(held[0].address))
            click.echo(f"{path}{_summary(held)}", err=True)
    if as_json:
        print_json({"files": done})


class _Megabytes:
    """Counts transfers in a tally, a MiB at a time: of small files nothing is shown."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._left: Iterator[int] = iter(())
        self._done = 0

    def __call__(self, done: int, size: int) -> None:
        if not done:
            first = self._tally.total
            keys = range(first, first + (size >> 20))
            self._left, self._done = iter(keys), 0
            self._tally.started(keys)
        while self._done < min(done, size) >> 20:
            self._done += 1
            self._tally.finished(next(self._left))


def _push(backend: Backend, path: Path, on_piece: _Megabytes) -> list[Pushed]:
    """Check a file as far as its kind is known, and store it."""
    from jitlto.stores import artifacts

    try:
        if not files.is_database(path):
            if path.suffix == _PACK:
                from jitlto.link import packs

                packs.verify(path)
            return [artifacts.push(backend, path, on_piece=on_piece)]
    except OSError as error:
        what, hint = f"cannot be read: {error.strerror or error}", "check the path"
        raise JitltoError(what, code="jitlto-unreadable-file", where=str(path), hint=hint) from error
    _verify_database(path)
    return artifacts.push_with_packs(backend, path, on_piece=on_piece)


def _verify_database(path: Path) -> None:
    from jitlto.database import FragmentDatabase
    from jitlto.link import packs

    with FragmentDatabase(path) as database:
        database.verify()
        beside = files.beside(path, _PACK)
        images = {image.sha256 for fragment in database.iterate() for image in fragment.images} if beside else set()
    for pack in beside:
        packs.verify(pack, images)


def _summary(held: Sequence[Pushed]) -> str:
    size = format_bytes(sum(each.size for each in held))
    parts = f" and {pluralize(len(held) - 2, 'pack')}" if len(held) > 1 else ""
    return f"{parts}: {size}" + (", already there" if all(each.was_there for each in held) else "")


def _as_dict(path: Path, held: Sequence[Pushed]) -> dict[str, object]:
    named = [
        {"path": str(each.path), "address": str(each.address), "bytes": each.size, "was_there": each.was_there}
        for each in (held[1:] or held)
    ]
    return {"path": str(path), "address": str(held[0].address), "files": named}


@click.command(epilog="Example: jitlto pull s3://kernels/prod#sha256=6f1c... -o search.fragdb")
@click.argument("address", metavar="URL#sha256=DIGEST")
@click.option("-o", "--output", type=FILE, required=True, help="The file; the packs of a database go beside it.")
@json_option
def pull(address: str, output: Path, as_json: bool) -> None:
    """Fetch a file from a store by the address that `jitlto push` printed.

    The file is written if its SHA-256 is that of the address, and else left as it was. It needs no signature.
    """
    from jitlto.stores import artifacts
    from jitlto.stores.address import ArtifactAddress

    parsed = ArtifactAddress.parse(address)
    check_writable(output)
    with report_unwritable(output), progress("pulling (MiB)") as tally:
        written = artifacts.pull(artifacts.open_store(parsed.store), parsed, output, _Megabytes(tally))
    sizes = [path.stat().st_size for path in written]
    others = [path for path in files.beside(output, _PACK) if path not in written] if files.is_database(output) else []
    for path in others:
        click.echo(f"{path} was there before; delete it if it is of an earlier database", err=True)
    if as_json:
        print_json(
            {
                "address": str(parsed),
                "files": [{"path": str(path), "bytes": size} for path, size in zip(written, sizes, strict=True)],
                "packs_of_others": list(map(str, others)),
            }
        )
        return
    packs = f" and {pluralize(len(written) - 1, 'pack')}" if len(written) > 1 else ""
    click.echo(f"{output}{packs}: {format_bytes(sum(sizes))}")
