"""Words of messages that both halves and the commands share."""

from __future__ import annotations


def many(count: int, what: str) -> str:
    """A number of things, in words: ``1 kernel``, ``2 kernels``, ``2 histories``."""
    if count == 1:
        return f"{count} {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"
