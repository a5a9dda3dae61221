"""The cost of compiling a fragment: recorded times where a file has them, else an estimate from the source.

Whole milliseconds, for shards must be cut alike on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from jitlto.errors import BuildError
from jitlto.model.headers import Source
from jitlto.storage import files

# Fitted to NVRTC 12.9 and 13 on the shipped families (0.1 to 0.2 s) and on sources that include CCCL (2 to 4 s). The
# size of headers predicts little, for the toolkit's own are large and mostly skipped; the number of templates that the
# front end meets predicts the time within half.
_START = 60
_TENTHS_PER_TEMPLATE = 11
_BYTES_OF_TEXT_PER_MILLISECOND = 8


class _TimingsFile(msgspec.Struct):
    fragments: dict[str, Annotated[float, msgspec.Meta(ge=0)]]


def estimate(source: Source, architectures: int) -> int:
    """Estimate the milliseconds that a source takes to compile; good for comparing fragments, not for a clock.

    Args:
        source: With the closure of its headers.
        architectures: For how many it is compiled, one after the other.
    """
    templates = _count_templates(source.text) + sum(map(_count_templates, source.headers.values()))
    text = len(source.text) // _BYTES_OF_TEXT_PER_MILLISECOND
    return architectures * (_START + _TENTHS_PER_TEMPLATE * templates // 10 + text)


@lru_cache(maxsize=4096)  # fragments share their headers
def _count_templates(text: bytes) -> int:
    return text.count(b"template")


def read_costs(paths: Iterable[Path]) -> dict[str, int]:
    """Read compile times in milliseconds by fragment key; of several for one key, that of the last file counts.

    Raises:
        BuildError: If a file cannot be read or has no timings.
    """
    # None is free: shards of nothing but cache hits are still to be even.
    return {key: max(1, round(1000 * seconds)) for path in paths for key, seconds in read_seconds(path).items()}


def read_seconds(path: Path) -> dict[str, float]:
    """Read the seconds that each fragment took, by the text form of its key, from timings written as JSON.

    Raises:
        BuildError: If the file cannot be read or has no timings.
    """
    hint = "write it with jitlto build --timings FILE.json"
    try:
        return msgspec.json.decode(files.read(path), type=_TimingsFile).fragments
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}", code="build-unreadable-timings", where=str(path), hint=hint
        ) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BuildError(
            f"not a file of timings: {error}", code="build-invalid-timings", where=str(path), hint=hint
        ) from error


def costs(estimates: Mapping[str, int], recorded: Mapping[str, int]) -> dict[str, int]:
    """Return the cost of each fragment by key: the recorded one, else its estimate on the scale of the recorded.

    Both are in milliseconds and at least 1. Recorded costs of other fragments are ignored.
    """
    known = estimates.keys() & recorded.keys()
    if not known:
        return dict(estimates)
    measured, estimated = sum(recorded[key] for key in known), sum(estimates[key] for key in known)
    return {key: recorded.get(key, max(1, value * measured // estimated)) for key, value in estimates.items()}
