"""Words of messages that both halves and the commands share."""

from __future__ import annotations


def many(count: int, what: str) -> str:
    """A number of things, in words: ``1 kernel``, ``2 kernels``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
