"""What a fragment costs to compile: recorded times where a file gives them, else an estimate from the source.

Whole milliseconds, for shards must be cut alike on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from jitlto.errors import BuildError
from jitlto.model.headers import Source
from jitlto.storage import files

# Fitted to NVRTC 12.9 and 13 on the shipped families (0.1 to 0.2 s) and on sources that include CCCL (2 to 4 s). Bytes
# of headers tell little, for the toolkit's own are large and mostly skipped; the number of templates that the front
# end meets tells the time within half.
_START = 60
_TENTHS_A_TEMPLATE = 11
_BYTES_OF_TEXT_A_MILLISECOND = 8


def estimate(source: Source, architectures: int) -> int:
    """Estimate what a source costs to compile.

    Parameters
    ----------
    source : Source
        With the closure of its headers.
    architectures : int
        For how many it is compiled, one after the other.

    Returns
    -------
    int
        Milliseconds, at least 1 for an architecture; good for comparing fragments, not for a clock.
    """
    templates = _templates(source.text) + sum(map(_templates, source.headers.values()))
    text = len(source.text) // _BYTES_OF_TEXT_A_MILLISECOND
    return architectures * (_START + _TENTHS_A_TEMPLATE * templates // 10 + text)


@lru_cache(maxsize=4096)  # fragments share their headers
def _templates(text: bytes) -> int:
    return text.count(b"template")


def read_costs(paths: Iterable[Path]) -> dict[str, int]:
    """Read recorded compile times, as ``jitlto build --timings FILE`` writes them.

    Parameters
    ----------
    paths : iterable of Path
        JSON: ``{"fragments": {"<key>": seconds, ...}}``; what else stands in it is not looked at. One file a shard, for
        example; of several times for one key the last counts.

    Returns
    -------
    dict of str to int
        Milliseconds, at least 1, by the text form of the fragment's key.

    Raises
    ------
    BuildError
        If a file cannot be read or says something else.
    """
    recorded: dict[str, int] = {}
    for path in paths:
        # None is free: shards of nothing but cache hits are still to be even.
        recorded |= {key: max(1, round(1000 * seconds)) for key, seconds in read_seconds(path).items()}
    return recorded


def read_seconds(path: Path) -> dict[str, float]:
    """The seconds that each fragment took, from timings written as JSON.

    Returns
    -------
    dict of str to float
        By the text form of the key, those only that were compiled and not taken from the cache.

    Raises
    ------
    BuildError
        If the file cannot be read or is no such file.
    """
    hint = "write it with jitlto build --timings FILE.json"
    try:
        document = json.loads(files.read(path).decode())
    except OSError as error:
        raise BuildError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise BuildError(f"is no JSON: {error}", where=str(path), hint=hint) from error
    fragments = document.get("fragments") if isinstance(document, dict) else None
    if not isinstance(fragments, dict):
        raise BuildError('holds no timings: it has no object "fragments"', where=str(path), hint=hint)
    for key, seconds in fragments.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not number or not (0 <= seconds < math.inf):
            raise BuildError(
                f"{seconds!r} is no number of seconds", where=f"{path}: fragments[{json.dumps(key)}]", hint=hint
            )
    return {key: float(seconds) for key, seconds in fragments.items()}


def costs(estimates: Mapping[str, int], recorded: Mapping[str, int]) -> dict[str, int]:
    """Recorded costs where there are some, else estimates on the scale of the recorded.

    Parameters
    ----------
    estimates : mapping of str to int
        Of every fragment, by key, at least 1.
    recorded : mapping of str to int
        In milliseconds, at least 1, of some of them; others are not looked at.

    Returns
    -------
    dict of str to int
        Milliseconds by key, for the keys of ``estimates``.
    """
    known = estimates.keys() & recorded.keys()
    measured, estimated = sum(recorded[key] for key in known), sum(estimates[key] for key in known)
    if not known:
        return dict(estimates)
    return {key: recorded.get(key, max(1, value * measured // estimated)) for key, value in estimates.items()}
