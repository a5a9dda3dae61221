"""Kernel families for NVIDIA GPUs: N+M fragments of LTO-IR instead of N×M kernels.

Importing this package loads no CUDA library, no NumPy and no file. Names are resolved when they are first used.
"""

from importlib import import_module

from jitlto.base import __version__

TYPE_CHECKING = False  # that of typing, which takes longer to import than this package
if TYPE_CHECKING:
    from jitlto.base.errors import JitltoError as JitltoError
    from jitlto.base.log import LinkWarning as LinkWarning
    from jitlto.database import FragmentDatabase as FragmentDatabase
    from jitlto.frameworks.bindings import jax_call as jax_call
    from jitlto.frameworks.bindings import torch_fusion as torch_fusion
    from jitlto.frameworks.bindings import torch_operator as torch_operator
    from jitlto.frameworks.declaration import Backward as Backward
    from jitlto.frameworks.declaration import Operator as Operator
    from jitlto.frameworks.parts import Array as Array
    from jitlto.frameworks.parts import Flag as Flag
    from jitlto.frameworks.parts import Launch as Launch
    from jitlto.frameworks.parts import Output as Output
    from jitlto.frameworks.parts import Scalar as Scalar
    from jitlto.frameworks.parts import Seam as Seam
    from jitlto.launch.launcher import Launcher as Launcher
    from jitlto.launch.sequence import sequence as sequence
    from jitlto.launch.step import Slot as Slot
    from jitlto.plan.plan import Plan as Plan
    from jitlto.plan.planner import Planner as Planner
    from jitlto.record.fragment import FragmentKey as FragmentKey
    from jitlto.runtime.family import KernelFamily as KernelFamily
    from jitlto.source.load import family as family
    from jitlto.source.load import load as load

_NAMES = {
    "jitlto.base.errors": ("JitltoError",),
    "jitlto.base.log": ("LinkWarning",),
    "jitlto.database": ("FragmentDatabase",),
    "jitlto.frameworks.bindings": ("jax_call", "torch_fusion", "torch_operator"),
    "jitlto.frameworks.declaration": ("Backward", "Operator"),
    "jitlto.frameworks.parts": ("Array", "Flag", "Launch", "Output", "Scalar", "Seam"),
    "jitlto.launch.launcher": ("Launcher",),
    "jitlto.launch.sequence": ("sequence",),
    "jitlto.launch.step": ("Slot",),
    "jitlto.plan.plan": ("Plan",),
    "jitlto.plan.planner": ("Planner",),
    "jitlto.record.fragment": ("FragmentKey",),
    "jitlto.runtime.family": ("KernelFamily",),
    "jitlto.source.load": ("family", "load"),
}
_EXPORTS = {name: home for home, names in _NAMES.items() for name in names}
__all__ = [*_EXPORTS, "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'jitlto' has no attribute {name!r}")
    import_module("jitlto.base.uninterrupted")  # first, so that a fork waits for the import that follows
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
