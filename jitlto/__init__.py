"""Kernel families for NVIDIA GPUs: N+M fragments of LTO-IR instead of N×M kernels.

Importing this package loads no CUDA library, no NumPy and no file. Names are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module

from jitlto.version import __version__

TYPE_CHECKING = False  # that of typing, which takes longer to import than this package
if TYPE_CHECKING:
    from jitlto.errors import JitltoError as JitltoError
    from jitlto.model.fragment import FragmentKey as FragmentKey
    from jitlto.model.python_warnings import LinkWarning as LinkWarning
    from jitlto.runtime.family import KernelFamily as KernelFamily
    from jitlto.runtime.family import family as family
    from jitlto.runtime.family import load as load
    from jitlto.runtime.launch.launcher import Launcher as Launcher
    from jitlto.runtime.launch.sequence import sequence as sequence
    from jitlto.runtime.launch.slots import Slot as Slot
    from jitlto.runtime.operators.declaration import Backward as Backward
    from jitlto.runtime.operators.declaration import Operator as Operator
    from jitlto.runtime.operators.jax_call import jax_call as jax_call
    from jitlto.runtime.operators.parts import Array as Array
    from jitlto.runtime.operators.parts import Flag as Flag
    from jitlto.runtime.operators.parts import Launch as Launch
    from jitlto.runtime.operators.parts import Output as Output
    from jitlto.runtime.operators.parts import Scalar as Scalar
    from jitlto.runtime.operators.torch_operator import torch_operator as torch_operator
    from jitlto.runtime.planning.plan import Plan as Plan
    from jitlto.runtime.planning.planner import Planner as Planner
    from jitlto.storage.database import FragmentDatabase as FragmentDatabase

_EXPORTS = {
    "Array": "jitlto.runtime.operators.parts",
    "Backward": "jitlto.runtime.operators.declaration",
    "Flag": "jitlto.runtime.operators.parts",
    "FragmentDatabase": "jitlto.storage.database",
    "FragmentKey": "jitlto.model.fragment",
    "JitltoError": "jitlto.errors",
    "KernelFamily": "jitlto.runtime.family",
    "Launch": "jitlto.runtime.operators.parts",
    "Launcher": "jitlto.runtime.launch.launcher",
    "LinkWarning": "jitlto.model.python_warnings",
    "Operator": "jitlto.runtime.operators.declaration",
    "Output": "jitlto.runtime.operators.parts",
    "Plan": "jitlto.runtime.planning.plan",
    "Planner": "jitlto.runtime.planning.planner",
    "Scalar": "jitlto.runtime.operators.parts",
    "Slot": "jitlto.runtime.launch.slots",
    "family": "jitlto.runtime.family",
    "jax_call": "jitlto.runtime.operators.jax_call",
    "load": "jitlto.runtime.family",
    "sequence": "jitlto.runtime.launch.sequence",
    "torch_operator": "jitlto.runtime.operators.torch_operator",
}
__all__ = [*_EXPORTS, "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'jitlto' has no attribute {name!r}")
    import_module("jitlto.uninterrupted")  # first, so that a fork waits for the import that follows
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
