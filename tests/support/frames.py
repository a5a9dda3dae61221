"""The functions of jitlto between a call and the CUDA library that answers it.

``python -m tests.support.frames`` prints those from ``family.launcher(**configuration)`` to nvJitLink.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from unittest import mock

from jitlto.cuda import device
from jitlto.runtime import family as families
from tests.support.families import MINI, built

_PACKAGE = Path(families.__file__).parents[1]


class _ReachedError(Exception):
    """The library would be called now."""


def frames_to_nvjitlink(call: Callable[[], object]) -> list[str]:
    """Return the functions of jitlto, outermost first, that lead from a call to the first use of a linker."""
    from cuda.bindings import nvjitlink

    found: list[str] = []

    def reached(*_: object) -> object:
        found.extend(ours())
        raise _ReachedError

    with mock.patch.object(nvjitlink, "create", reached), contextlib.suppress(_ReachedError):
        call()
    return found


def ours() -> list[str]:
    """Return the functions of jitlto above the caller, outermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            name = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
            found.append(f"{name}: {frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


def launcher_frames(directory: Path) -> list[str]:
    """Return those from a family's launcher, of a kernel that no cache has, on a machine that seems to have a GPU."""
    mini = built(directory, MINI, "mini")
    capability = SimpleNamespace(compute_capability=(9, 0))
    with mock.patch.object(device, "current", lambda: capability), mock.patch.object(device, "kind", lambda: 0):
        return frames_to_nvjitlink(lambda: mini.launcher(data_type="float", op_name="twice"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for depth, name in enumerate(launcher_frames(Path(temporary)), 1):
            print(f"{depth:2} {name}")
