"""``jitlto wisdom``: what was measured to be the fastest, in files that can be merged and shipped."""

from __future__ import annotations

from pathlib import Path

import click

from jitlto.base import config
from jitlto.base.text import pluralize
from jitlto.cli.parameters import PATH
from jitlto.tuning import wisdom_file
from jitlto.tuning.wisdom import Wisdom


@click.group(epilog="Example: jitlto wisdom merge node1.wisdom node2.wisdom -o search.wisdom")
def wisdom() -> None:
    """Show and merge what was measured by tuning: files of wisdom.

    A file STEM.wisdom beside STEM.fragdb is used with the database; the user's own, JITLTO_WISDOM, goes before it.
    """


@wisdom.command(epilog="Example: jitlto wisdom show search.wisdom")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PATH)
def show(files: tuple[Path, ...]) -> None:
    """Show what each FILE, by default the user's own, chooses for which problem, and by how much that is faster."""
    found = Wisdom().merge(*map(wisdom_file.read, files or (config.current().wisdom,)))
    for entry in found.entries:
        chosen, count = entry.chosen, sum(trial.count for trial in entry.trials)
        problem = " ".join(f"{name}={value}" for name, value in (*entry.configuration, *entry.bucket))
        evidence = f"{pluralize(len(entry.trials), 'variant')}, {pluralize(count, 'time')}, ties below {entry.band:.1%}"
        faster = f"{entry.speed_up:.2f} times as fast as the default"
        click.echo(f"{entry.family}/{entry.entry}  {problem}")
        click.echo(f"  {entry.device}")
        click.echo(f"  {chosen.variant}: {1e6 * chosen.seconds:.4g} µs, {faster} ({evidence})")
    click.echo(pluralize(len(found), "entry"))


@wisdom.command(epilog="Example: jitlto wisdom merge node1.wisdom node2.wisdom -o search.wisdom")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="The file to write; it may be one of those merged.")
def merge(files: tuple[Path, ...], output: Path) -> None:
    """Write all entries of the FILEs to one file; of two about the same, that with more evidence.

    The order of the FILEs does not matter.
    """
    merged = Wisdom().merge(*map(wisdom_file.read, files))
    wisdom_file.write(output, merged)
    click.echo(f"{output}: {pluralize(len(merged), 'entry')}")
