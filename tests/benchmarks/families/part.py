"""What the parts of the benchmark have in common: what they are told, what they give, and how they say so."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_begin = time.perf_counter()


@dataclass(frozen=True)
class Options:
    """What a part is told.

    Parameters
    ----------
    work : Path
        Where databases and caches lie.
    small : bool
        Sizes to try things out, of which no figure means anything.
    rounds : int
        Timed rounds.
    """

    work: Path
    small: bool
    rounds: int


@dataclass(frozen=True)
class Outcome:
    """What a part gives.

    Parameters
    ----------
    data : mapping
        For JSON.
    text : str
        To print.
    plots : mapping of str to str
        SVG documents by the ends of their names.
    failures : sequence of str
        What went wrong beside that.
    """

    data: Mapping[str, Any]
    text: str
    plots: Mapping[str, str] = field(default_factory=dict)
    failures: Sequence[str] = ()


def say(text: str) -> None:
    """Tell a person who waits."""
    print(f"[{time.perf_counter() - _begin:6.1f} s] {text}", flush=True)


@contextmanager
def survive(what: str, failures: list[str]) -> Iterator[None]:
    """Go on after whatever fails within, and keep what it was."""
    try:
        yield
    except Exception:  # noqa: BLE001 - what is measured next has nothing to do with it
        failures.append(f"{what}: {traceback.format_exc(limit=-4)}")
        say(failures[-1])


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns, the first to the left and the others to the right."""
    cells = [list(head), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "  ".join(
            value.ljust(width) if not n else value.rjust(width)
            for n, (value, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def free_memory() -> None:
    """Give the device's memory back between problems."""
    import gc

    import cupy as cp

    gc.collect()
    cp.get_default_memory_pool().free_all_blocks()
