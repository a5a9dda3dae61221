"""Wording shared by messages of both wings and the command line."""

from __future__ import annotations

from collections.abc import Iterable


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 kernel``, ``2 kernels``, ``2 histories``."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean 'x'?`` with the nearest of the known names, or ``otherwise`` if none is near."""
    import difflib  # 3 ms, after a mistake alone

    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else otherwise
