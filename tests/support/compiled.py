"""Sources compiled by NVRTC, each once."""

from __future__ import annotations

from functools import cache

from jitlto.cuda import nvrtc
from jitlto.model.headers import Source
from jitlto.model.versions import Architecture

BASE = Architecture(75)


@cache
def compiled(text: str, arch: int = BASE.number) -> nvrtc.Compiled:
    """Return a source compiled for an architecture, without headers."""
    return nvrtc.compile_source(Source(text.encode(), {}), [Architecture(arch)], ["--std=c++17"])
