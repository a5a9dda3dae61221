"""Kernel families for NVIDIA GPUs: N+M fragments of LTO-IR instead of N×M kernels.

Importing this package loads its exceptions and nothing else: no CUDA library, no NumPy, no file. Other names are
resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from jitlto.errors import JitltoError

if TYPE_CHECKING:
    from jitlto.database import FragmentDatabase as FragmentDatabase
    from jitlto.fragment import FragmentKey as FragmentKey
    from jitlto.runtime.kernels import KernelFamily as KernelFamily
    from jitlto.runtime.kernels import family as family
    from jitlto.runtime.kernels import load as load
    from jitlto.runtime.launcher import Launcher as Launcher
    from jitlto.runtime.plan import Plan as Plan
    from jitlto.runtime.planner import Planner as Planner

__version__ = "0.1.0"

_EXPORTS = {
    "FragmentDatabase": "jitlto.database",
    "FragmentKey": "jitlto.fragment",
    "KernelFamily": "jitlto.runtime.kernels",
    "Launcher": "jitlto.runtime.launcher",
    "Plan": "jitlto.runtime.plan",
    "Planner": "jitlto.runtime.planner",
    "family": "jitlto.runtime.kernels",
    "load": "jitlto.runtime.kernels",
}
__all__ = [*_EXPORTS, "JitltoError", "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'jitlto' has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
