"""Versions of toolkit components and compute architectures."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, NamedTuple

from msgspec import Meta

from jitlto.base.errors import JitltoError
from jitlto.base.text import abbreviate, check_type


class Version(NamedTuple):
    """A release ``major.minor`` of a toolkit component or of the PTX ISA."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``major.minor``; what follows is ignored.

        Raises:
            JitltoError: If ``text`` does not begin with a version.
        """
        check_type(text, str, "a version must be text")
        match = re.match(r"([0-9]{1,9})\.([0-9]{1,9})(?![0-9])", text)
        if not match:
            raise JitltoError(f"invalid version {abbreviate(text)}", code="jitlto-version", hint="write it as 12.9")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Architecture(NamedTuple):
    """A compute architecture: its number (90 for compute capability 9.0) and its suffix (``a``, ``f`` or none)."""

    number: Annotated[int, Meta(ge=10, le=999)]
    suffix: Annotated[str, Meta(pattern=r"\A[af]?\Z")] = ""

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``90``, ``90a``, ``sm_90a`` or ``compute_90a``.

        Raises:
            JitltoError: If ``text`` is none of these.
        """
        check_type(text, str, "an architecture must be text")
        match = re.fullmatch(r"(?:(?:sm|compute|lto)_)?([0-9]{2,3})([af]?)", text.strip())
        if not match:
            raise JitltoError(
                f"invalid architecture {abbreviate(text)}",
                code="jitlto-architecture",
                hint="write it as sm_90, sm_90a or sm_100f",
            )
        return cls(int(match[1]), match[2])

    @property
    def sm(self) -> str:
        """The name of the real architecture, ``sm_90``."""
        return f"sm_{self}"

    @property
    def compute(self) -> str:
        """The name of the virtual architecture, ``compute_90``."""
        return f"compute_{self}"

    def __str__(self) -> str:
        return f"{self.number}{self.suffix}"


def lowest_base(architectures: Collection[Architecture]) -> Architecture:
    """Return the lowest of some architectures whose code links upward, if there is one."""
    return min([each for each in architectures if not each.suffix] or architectures)
