"""NVTX ranges around the steps of a first launch, which Nsight Systems shows beside the launches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jitlto.base.events import StepObserver
from jitlto.base.log import WarnOnce

#: The name of the ranges' domain.
DOMAIN = "jitlto"
_warn_once = WarnOnce(__name__)


def open_ranges(*, required: bool) -> StepObserver | None:
    """Return an observer that makes each step a range of the domain ``jitlto``, such as ``link search/...[...]``.

    Args:
        required: Whether to warn if NVIDIA's package ``nvtx`` is not installed.

    Returns:
        callable or None: None without the package.
    """
    try:
        import nvtx  # imported lazily: optional, and it loads NVTX
    except ImportError:
        if required:
            _warn_once("nvtx", "no NVTX ranges: JITLTO_NVTX=on needs the package nvtx, `pip install jitlto[nvtx]`")
        return None

    def observe(step: str, kernel: str) -> AbstractContextManager[Any]:
        return nvtx.annotate(f"{step} {kernel}", domain=DOMAIN, category=step)  # type: ignore[no-any-return]

    return observe
