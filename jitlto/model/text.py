"""Wording shared by messages of both wings and the command line."""

from __future__ import annotations


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 kernel``, ``2 kernels``, ``2 histories``."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"
