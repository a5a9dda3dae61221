"""``jitlto wisdom``: what was measured to be the fastest, in files that can be merged and shipped."""

from pathlib import Path

import click

from jitlto.base import config
from jitlto.base.text import pluralize
from jitlto.cli.output import check_output
from jitlto.cli.parameters import PATH
from jitlto.tuning import wisdom_file
from jitlto.tuning.wisdom import Wisdom


@click.command(epilog="Example: jitlto wisdom node1.wisdom node2.wisdom -o search.wisdom")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PATH)
@click.option("-o", "--output", type=PATH, help="Write all entries to this file, which may be one of those merged.")
def wisdom(files: tuple[Path, ...], output: Path | None) -> None:
    """Show what FILEs of wisdom, by default the user's own, choose for which problem, or merge them into one file.

    Of two entries about the same, that with more evidence counts; the order of the FILEs does not matter. A file
    STEM.wisdom beside STEM.fragdb is used with the database; the user's own, JITLTO_WISDOM, goes before it.
    """
    check_output(output)
    found = Wisdom().merge(*map(wisdom_file.read, files or (config.current().wisdom,)))
    if output is not None:
        wisdom_file.write(output, found)
        click.echo(f"{output}: {pluralize(len(found.entries), 'entry')}")
        return
    for entry in found.entries:
        chosen, count = entry.chosen, sum(trial.count for trial in entry.trials)
        problem = " ".join(f"{name}={value}" for name, value in (*entry.configuration, *entry.bucket))
        evidence = f"{pluralize(len(entry.trials), 'variant')}, {pluralize(count, 'time')}"
        faster = f"{entry.speed_up:.2f} times as fast as the default"
        click.echo(f"{entry.family}/{entry.entry}  {problem}\n  {entry.device}")
        click.echo(f"  {chosen.variant}: {1e6 * chosen.seconds:.4g} µs, {faster} ({evidence})")
    click.echo(pluralize(len(found.entries), "entry"))
