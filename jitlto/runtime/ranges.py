"""NVTX ranges around the steps of a first launch, which Nsight Systems shows beside the launches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jitlto.base.events import StepObserver

#: The name of the ranges' domain.
DOMAIN = "jitlto"


def open_ranges() -> StepObserver | None:
    """Return an observer that makes each step a range of the domain ``jitlto``, such as ``link search/...[...]``.

    Returns:
        callable or None: None without NVIDIA's package ``nvtx``.
    """
    try:
        import nvtx  # imported lazily: optional, and it loads NVTX
    except ImportError:
        return None

    def observe(step: str, kernel: str) -> AbstractContextManager[Any]:
        return nvtx.annotate(f"{step} {kernel}", domain=DOMAIN, category=step)  # type: ignore[no-any-return]

    return observe
