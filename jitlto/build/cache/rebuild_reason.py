"""The reasons for compiling a fragment again: the differences from its last build, field by field."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from jitlto.base.text import shorten_digests

#: The inputs of a fragment by name: a text of lines (``source``), words (``options``), or hashes by name (``headers``).
Fields = Mapping[str, str | Mapping[str, str]]

_LONGEST_DIFF = 24  # lines
_MOST_NAMES = 12


def explain(before: Fields | None, now: Fields, *, is_cached: bool) -> list[str]:
    """Describe the differences between two builds of one fragment.

    Args:
        before: Its inputs when it was last built with this cache, or None.
        now: Its current inputs.
        is_cached: Whether the cache has the result for the current inputs.

    Returns:
        A line for each difference, followed by a unified diff if it is a text; one line if nothing differs.
    """
    if before is None:
        return ["never built with this cache"]
    lines = differences(before, now)
    if not lines and is_cached:
        return ["nothing differs: it would be taken from the cache"]
    if not lines:
        return ["nothing differs, but the cache entry is gone: pruned or damaged"]
    if is_cached:
        lines.append("an earlier build has left it in the cache: it would be taken from there")
    return lines


def differences(before: Fields, now: Fields) -> list[str]:
    """Return the differences; a field that one side lacks counts as empty."""
    found: list[str] = []
    for field in {**now, **before}:
        old, new = before.get(field, ""), now.get(field, "")
        if not (isinstance(old, str) and isinstance(new, str)):
            names = (value if isinstance(value, Mapping) else {} for value in (old, new))
            found += _names(field.removesuffix("s"), *names)
        elif old != new:
            text = _lines(field, old, new) if "\n" in old + new else _words(field, old.split(), new.split())
            found.append(shorten_digests(text) if field == "compiler" else text)
    return found


def _names(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    found = [
        f"{kind} {name} {'is new' if name not in before else 'is gone' if name not in now else 'changed'}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if len(found) <= _MOST_NAMES:
        return found
    return [*found[:_MOST_NAMES], f"and {len(found) - _MOST_NAMES} more {kind}s"]


def _lines(field: str, before: str, now: str) -> str:
    # Unlike a compiler, splitlines() splits at more than line feeds.
    old, new = before.split("\n"), now.split("\n")
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    count = sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")
    diff = list(difflib.unified_diff(old, new, "before", "now", n=1, lineterm=""))
    if len(diff) > _LONGEST_DIFF:
        diff = [*diff[:_LONGEST_DIFF], f"... and {len(diff) - _LONGEST_DIFF} more lines of the diff"]
    return "\n".join([f"{field}: {count} {'line differs' if count == 1 else 'lines differ'}", *diff])


def _words(field: str, before: Sequence[str], now: Sequence[str]) -> str:
    gone = [word for word in before if word not in now]
    new = [word for word in now if word not in before]
    if gone and new:
        return f"{field}: {' '.join(gone)} → {' '.join(new)}"
    if gone or new:
        return f"{field}: {' '.join(gone or new)} {'is gone' if gone else 'is new'}"
    return f"{field}: in a different order or number: {' '.join(before)} → {' '.join(now)}"
