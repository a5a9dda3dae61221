"""``jitlto wisdom``: what was measured to be the fastest, in files that can be merged and shipped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto.base.text import pluralize
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json
from jitlto.cli.parameters import FILE, PATH, json_option

if TYPE_CHECKING:  # usage errors need not wait for them
    from jitlto.tuning.wisdom import Entry, Wisdom


@click.group(epilog="Example: jitlto wisdom merge node1.wisdom node2.wisdom -o search.wisdom")
def wisdom() -> None:
    """Show and merge what was measured by tuning: files of wisdom.

    A file STEM.wisdom beside STEM.fragdb is used with the database; the user's own, JITLTO_WISDOM, goes before it.
    """


@wisdom.command(epilog="Example: jitlto wisdom show search.wisdom")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PATH)
@json_option
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Show what each FILE, by default the user's own, chooses for which problem, and by how much that is faster."""

    def run() -> bool:
        found = _read(files or (_own(),))
        if as_json:
            print_json({"entries": [_as_dict(entry) for entry in found.entries]})
            return True
        for entry in found.entries:
            problem = " ".join(f"{name}={value}" for name, value in (*entry.configuration, *entry.bucket))
            click.echo(f"{entry.family}/{entry.entry}  {problem}")
            click.echo(f"  {entry.device}{', cold L2' if entry.cold else ''}")
            click.echo(f"  {entry.chosen.variant}: {_describe(entry)}")
        click.echo(pluralize(len(found), "entry"))
        return True

    conclude(run)


@wisdom.command(epilog="Example: jitlto wisdom merge node1.wisdom node2.wisdom -o search.wisdom")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; it may be one of those merged.")
def merge(files: tuple[Path, ...], output: Path) -> None:
    """Write all entries of the FILEs to one file; of two about the same, that with more evidence.

    The order of the FILEs does not matter.
    """

    def run() -> bool:
        from jitlto.tuning import wisdom_file

        merged = _read(files)
        wisdom_file.write(output, merged)
        click.echo(f"{output}: {pluralize(len(merged), 'entry')}")
        return True

    conclude(run)


def _read(paths: tuple[Path, ...]) -> Wisdom:
    from jitlto.tuning import wisdom_file
    from jitlto.tuning.wisdom import Wisdom

    return Wisdom().merge(*map(wisdom_file.read, paths))


def _own() -> Path:
    from jitlto.base import config

    return config.current().wisdom


def _describe(entry: Entry) -> str:
    chosen, count = entry.chosen, sum(trial.count for trial in entry.trials)
    evidence = f"{pluralize(len(entry.trials), 'variant')}, {pluralize(count, 'time')}, ties below {entry.band:.1%}"
    time = f"{1e6 * chosen.seconds:.4g} µs"
    return f"{time}, {entry.speed_up:.2f} times as fast as the default ({evidence})"


def _as_dict(entry: Entry) -> dict[str, object]:
    from msgspec import to_builtins

    return {
        "family": entry.family,
        "entry": entry.entry,
        "configuration": dict(entry.configuration),
        "bucket": dict(entry.bucket),
        "device": to_builtins(entry.device),
        "cold": entry.cold,
        "chosen": str(entry.chosen.variant),
        "kernel": entry.chosen.kernel,
        "speed_up": round(entry.speed_up, 4),
        "tie": round(entry.band, 4),
        "trials": [
            {
                "variant": str(trial.variant),
                "kernel": trial.kernel,
                "seconds": trial.seconds,
                "spread": trial.spread,
                "count": trial.count,
            }
            for trial in entry.trials
        ],
    }
