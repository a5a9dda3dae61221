"""``jitlto tune``: measure which variant of a kernel is the fastest for a problem."""

from __future__ import annotations

import importlib
import itertools
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jitlto.base.errors import TuningError
from jitlto.base.text import pluralize
from jitlto.cli.families import DB_HELP, FAMILY, find_family
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json
from jitlto.cli.output_files import write_output
from jitlto.cli.parameters import FILE, PATH, json_option, parse_pairs
from jitlto.cli.progress import progress
from jitlto.cuda import device

if TYPE_CHECKING:  # usage errors need not wait for the run side
    from jitlto.tuning.tune import TuneReport

_SHOWN = 8  # variants in the table


@click.command(
    epilog="Example: jitlto tune search num_rows=100000 num_queries=1,100 dim=128 --workload work.py:make --db s.fragdb"
)
@click.argument("name", metavar=FAMILY)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--workload", required=True, metavar="FILE:FUNCTION", help="Returns the arguments to launch with.")
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option(
    "--budget", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds for each problem."
)
@click.option("--cold", is_flag=True, help="Time with nothing of the data in the L2.")
@click.option("--again", is_flag=True, help="Measure anew what the user's wisdom has.")
@click.option("-o", "--output", type=FILE, help="Write what was found to this file too, as wisdom to be shipped.")
@click.option("--plot", type=FILE, help="Write a plot of the times as SVG.")
@json_option
def tune(
    name: str,
    settings: tuple[str, ...],
    workload: str,
    database: Path | None,
    budget: float,
    cold: bool,
    again: bool,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure which variant of a kernel of FAMILY is the fastest for a problem. Needs a GPU.

    NAME=A,B stands for a problem with each value. FUNCTION, in a Python FILE or a module, is called with the problem
    and returns a jitlto.tuning.tune.Workload. What is found is added to the user's wisdom, JITLTO_WISDOM.
    """

    def run() -> bool:
        from jitlto.tuning import wisdom_file
        from jitlto.tuning.best import Problem
        from jitlto.tuning.wisdom import Wisdom

        make = _function(workload)
        family = find_family(name, database)
        problems = list(_problems(settings))
        for problem in problems:
            Problem.read(family, problem)  # wrong names are said before anything is made
        before = Wisdom() if output is None else wisdom_file.read(output, missing_ok=True)
        reports: list[tuple[Mapping[str, object], TuneReport]] = []
        for problem in problems:
            with progress("timing") as tally:
                seen: set[object] = set()

                def count(variant: object, _: str, tally: Any = tally, seen: set[object] = seen) -> None:
                    if variant not in seen:
                        seen.add(variant)
                        tally.started([variant])
                        tally.finished(variant)

                load = _made(make, problem)
                report = family.tune(problem, load, budget=budget, cold=cold, again=again, on_time=count)
            reports.append((problem, report))
            if not as_json:
                _print(problem, report)
        if output is not None:
            wisdom_file.write(output, before.merge(Wisdom(report.entry for _, report in reports)))
        if plot is not None:
            from jitlto.cli.tuning_plot import draw

            write_output(plot, draw([(_spelled(problem), report.entry) for problem, report in reports]).encode())
        if as_json:
            print_json({"problems": [_as_dict(problem, report) for problem, report in reports]})
        return True

    conclude(run)


def _function(text: str) -> Callable[[Mapping[str, object]], Any]:
    """Return the function that a text names: ``FILE.py:NAME`` or ``MODULE:NAME``."""
    place, colon, name = text.rpartition(":")
    if not colon:
        raise click.UsageError(f"--workload {text}: write FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        if place.endswith(".py"):
            found = runpy.run_path(place).get(name)
        else:
            sys.path.insert(0, "")
            found = getattr(importlib.import_module(place), name, None)
    except (Exception, SystemExit) as error:
        what = f"cannot be loaded: {type(error).__name__}: {error}"
        raise TuningError(what, code="tuning-workload", where=place) from error
    if not callable(found):
        hint = "name a function that takes a problem and returns a Workload"
        raise TuningError(f"has no function {name!r}", code="tuning-workload", where=place, hint=hint)
    return found  # type: ignore[no-any-return]


def _made(make: Callable[[Mapping[str, object]], Any], problem: Mapping[str, object]) -> Any:
    """Return what a user's function makes for a problem.

    Raises:
        NoDeviceError: If it fails and there is no device, which is the likely reason.
        TuningError: If it fails for another reason.
    """
    try:
        return make(problem)
    except (Exception, SystemExit) as error:
        device.current()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"the workload for {_spelled(problem)} cannot be made: {type(error).__name__}: {error}"
        raise TuningError(what, code="tuning-workload", where=f"{frame.filename}:{frame.lineno}") from error


def _problems(settings: Sequence[str]) -> Iterator[dict[str, object]]:
    values: dict[str, list[str]] = {}
    for name, text in parse_pairs(settings):
        values.setdefault(name, []).extend(text.split(","))
    for chosen in itertools.product(*values.values()):
        yield {n: int(v) if v.isascii() and v.isdigit() else v for n, v in zip(values, chosen, strict=True)}


def _spelled(problem: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in problem.items())


def _print(problem: Mapping[str, object], report: TuneReport) -> None:
    entry, outcome = report.entry, report.outcome
    click.echo(_spelled(problem) or "the problem")
    click.echo(f"  {entry.device}{', cold L2' if entry.cold else ''}")
    ranked = sorted(entry.trials, key=lambda trial: trial.seconds)
    shown = [*ranked[:_SHOWN], *(trial for trial in (entry.chosen, entry.default) if trial not in ranked[:_SHOWN])]
    for trial in dict.fromkeys(shown):
        mark = "*" if trial == entry.chosen else "d" if trial == entry.default else " "
        ratio = entry.default.seconds / trial.seconds
        click.echo(f"  {mark} {1e6 * trial.seconds:10.2f} µs ±{trial.spread:6.2%}  {ratio:5.2f}x  {trial.variant}")
    for variant, why in list(outcome.rejected.items())[:_SHOWN]:
        click.echo(f"  - cannot be used: {variant}: {why}")
    rest = f", {outcome.untried} not tried" if outcome.untried else ""
    ended = "" if outcome.is_complete else "; the budget ended it: repeat the command to go on"
    click.echo(
        f"  {pluralize(report.variants, 'variant')}{rest}; {entry.speed_up:.2f} times as fast as the default, ties "
        f"below {entry.band:.1%}; {report.seconds:.1f} s, of which {report.link_seconds:.1f} s linking{ended}"
    )


def _as_dict(problem: Mapping[str, object], report: TuneReport) -> dict[str, object]:
    entry, outcome = report.entry, report.outcome
    return {
        "problem": dict(problem),
        "chosen": str(entry.chosen.variant),
        "default": str(entry.default.variant),
        "speed_up": round(entry.speed_up, 4),
        "tie": round(entry.band, 4),
        "variants": report.variants,
        "untried": outcome.untried,
        "complete": outcome.is_complete,
        "device_seconds": outcome.seconds,
        "share_of_exhaustive": round(outcome.seconds / outcome.exhaustive, 4) if outcome.exhaustive else None,
        "seconds": round(report.seconds, 3),
        "link_seconds": round(report.link_seconds, 3),
        "rejected": {str(variant): why for variant, why in outcome.rejected.items()},
        "trials": [
            {"variant": str(t.variant), "seconds": t.seconds, "spread": t.spread, "count": t.count}
            for t in sorted(entry.trials, key=lambda trial: trial.seconds)
        ],
    }
