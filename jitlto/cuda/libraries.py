"""NVIDIA's Python packages, ``cuda.*``: the one place that imports them, each when it is first used.

Two threads cannot import ``cuda.core`` at once: one finds it half imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jitlto.uninterrupted import alone

# What other modules import from here → where it is: a module of the bindings, or an attribute.
_BINDINGS = "cuda.bindings"
_HOMES = {
    **dict.fromkeys(("driver", "nvfatbin", "nvjitlink", "nvrtc"), _BINDINGS),
    **dict.fromkeys(("Buffer", "Device", "Kernel", "LaunchConfig", "ObjectCode", "Stream", "launch"), "cuda.core"),
    "ParamHolder": "cuda.core._kernel_arg_handler",
    "StridedMemoryView": "cuda.core.utils",
    "find_nvidia_binary_utility": "cuda.pathfinder",
    "find_nvidia_header_directory": "cuda.pathfinder",
    "load_nvidia_dynamic_lib": "cuda.pathfinder",
}


def bindings_release() -> str | None:
    """Return the release of cuda-bindings; None if it is not installed."""
    with alone:
        try:
            release: str = import_module(_BINDINGS).__version__
        except ImportError:
            return None
    return release


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    with alone:
        value = import_module(f"{home}.{name}") if home == _BINDINGS else getattr(import_module(home), name)
    globals()[name] = value
    return value
