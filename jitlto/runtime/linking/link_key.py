"""All that determines linked code, and the form in which it is kept beside the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that determines linked code, and what it is called.

    Parameters
    ----------
    content : bytes
        The inputs of the link as canonical JSON; its SHA-256 is the plan's digest.
    kernel : str
        The key of the entrypoint fragment.
    configuration : tuple of (str, str)
        The parameters that chose the fragments.
    """

    content: bytes
    kernel: str
    configuration: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def inputs(self) -> Mapping[str, object]:
        """The content, read."""
        inputs: dict[str, object] = json.loads(self.content)
        return inputs

    @classmethod
    def of_entry(cls, payload: bytes) -> Recipe:
        """The recipe in an entry of the cache that :func:`~jitlto.runtime.linking.kernel_cache.unpack` has read."""
        content, about, _ = payload.split(b"\n", 2)
        kept = json.loads(about)
        return cls(content, kept["kernel"], tuple((name, value) for name, value in kept["configuration"]))
