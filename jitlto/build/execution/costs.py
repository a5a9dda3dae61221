"""The cost of compiling a fragment: the recorded time if a file has it, else an estimate from the source.

Costs are whole milliseconds, so that shards are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from jitlto.base import files
from jitlto.base.errors import BuildError
from jitlto.record.headers import Source

# Fitted to NVRTC 12.9 and 13 on the shipped families (0.1 to 0.2 s) and on sources that include CCCL (2 to 4 s). The
# size of headers predicts little, because the toolkit's own are large and mostly skipped; the number of templates
# predicts the time to within half.
_START = 60
_TENTHS_PER_TEMPLATE = 11
_BYTES_OF_TEXT_PER_MILLISECOND = 8


class _TimingsFile(msgspec.Struct):
    fragments: dict[str, Annotated[float, msgspec.Meta(ge=0)]]


def estimate(source: Source, architectures: int) -> int:
    """Estimate the milliseconds that a source takes to compile; meant for comparing fragments.

    Args:
        source: The source, with the closure of its headers.
        architectures: The number of architectures, which are compiled one after the other.
    """
    templates = _count_templates(source.text) + sum(map(_count_templates, source.headers.values()))
    text = len(source.text) // _BYTES_OF_TEXT_PER_MILLISECOND
    return architectures * (_START + _TENTHS_PER_TEMPLATE * templates // 10 + text)


@lru_cache(maxsize=4096)  # fragments share their headers
def _count_templates(text: bytes) -> int:
    return text.count(b"template")


def read_costs(paths: Iterable[Path]) -> dict[str, int]:
    """Read compile times in milliseconds by fragment key; for each key, the last file that has it counts.

    Raises:
        BuildError: If a file cannot be read or has no timings.
    """
    # At least 1, so that shards are balanced even if everything is cached.
    return {key: max(1, round(1000 * seconds)) for path in paths for key, seconds in read_seconds(path).items()}


def read_seconds(path: Path) -> dict[str, float]:
    """Read the compile time of each fragment in seconds, by the text form of its key, from JSON timings.

    Raises:
        BuildError: If the file cannot be read or has no timings.
    """
    hint = "create it with `jitlto build --timings FILE.json`"
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
    """Return the cost of each fragment by key: the recorded cost, else its estimate scaled to the recorded costs.

    All are in milliseconds and at least 1. Recorded costs of other fragments are ignored.
    """
    known = estimates.keys() & recorded.keys()
    if not known:
        return dict(estimates)
    measured, estimated = sum(recorded[key] for key in known), sum(estimates[key] for key in known)
    return {key: recorded.get(key, max(1, value * measured // estimated)) for key, value in estimates.items()}
