"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jitlto.base.errors import NoDeviceError, ToolchainError
from jitlto.cuda import device, nvjitlink, toolkit


def describe(command: str) -> dict[str, object]:
    """The machine and the versions, for the head of a result.

    Parameters
    ----------
    command : str
        What repeats the measurement.
    """
    return {
        "command": command,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "nvrtc": _version(toolkit.nvrtc_version),
        "nvjitlink": _version(nvjitlink.version),
        "packages": {name: found for name in _PACKAGES if (found := _package(name))},
        **_device(),
    }


_PACKAGES = ("jitlto", "cuda-core", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x", "numpy", "torch", "triton",
             "numba", "numba-cuda", "jax", "cuvs-cu12", "cuvs-cu13")  # fmt: skip


def _version(query: object) -> str | None:
    try:
        return str(query())  # type: ignore[operator]
    except ToolchainError:
        return None


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _device() -> dict[str, object]:
    try:
        current = device.current()
    except NoDeviceError:
        return {"device": None}
    _, number = toolkit.bindings("driver").cuDriverGetVersion()
    return {
        "device": current.name,
        "arch": device.architecture().sm,
        "driver_cuda": f"{number // 1000}.{number % 1000 // 10}",
    }


def command_line() -> str:
    """The command that runs, as a user of the checkout would write it: paths by their last part alone."""
    module = Path(sys.argv[0]).stem
    arguments = [Path(argument).name if "/" in argument else argument for argument in sys.argv[1:]]
    return " ".join(["python", "-m", f"tests.benchmarks.{module}", *arguments])
