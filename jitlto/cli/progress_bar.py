"""A progress bar on a terminal, which vanishes at the end."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from jitlto.cli.tally import Clock, Tally


class Bar(Tally):
    """A tally shown as a progress bar while it is used as a context manager."""

    def __init__(self, what: str, stream: TextIO, clock: Clock) -> None:
        super().__init__(clock)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Details(self))
        self._bar = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def changed(self) -> None:
        self._bar.update(self._task, total=self.total, completed=self.done)


class _Details(ProgressColumn):
    """The details of a tally, read when the bar is drawn."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def render(self, task: Task) -> Text:  # noqa: ARG002
        return Text(self._tally.details)
