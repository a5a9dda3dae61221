"""NVIDIA's libraries: the one place that imports their Python packages, and the count of threads that are inside them.

``cuda.core`` cannot be imported by two threads at once, and a library is in no usable state after a fork or an exit of
the process during a call. So imports happen here, one at a time, and calls that take long are made :data:`in_use`: a
fork and the end of the interpreter wait until no other thread is inside.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from contextlib import ContextDecorator
from importlib import import_module
from types import FrameType
from typing import Any

from jitlto.errors import ToolchainError

# What other modules import from here → where it is. The bindings are modules, the others are attributes.
_BINDINGS = "cuda.bindings"
_HOMES = {
    **dict.fromkeys(("driver", "nvfatbin", "nvjitlink", "nvrtc"), _BINDINGS),
    **dict.fromkeys(("Buffer", "Device", "Kernel", "LaunchConfig", "ObjectCode", "Stream", "launch"), "cuda.core"),
    "ParamHolder": "cuda.core._kernel_arg_handler",
    "StridedMemoryView": "cuda.core.utils",
    **dict.fromkeys(
        (
            "find_nvidia_binary_utility",
            "find_nvidia_header_directory",
            "load_nvidia_dynamic_lib",
        ),
        "cuda.pathfinder",
    ),
}
_PATIENCE = 30.0  # seconds that a fork or an exit waits at most
_PATIENCE_OF_IMPORTS = 2.0  # seconds that a fork waits for imports, some of which run a whole program
_POLL = 0.001  # seconds

_importing = threading.RLock()
_changed = threading.Condition()  # guards what follows
_inside: dict[int, int] = {}  # thread → how often it has entered
_forking: set[int] = set()  # threads that are about to fork
_leaving: int | None = None  # the thread that ends the interpreter
_is_broken = False  # forked while another thread was inside


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    with in_use, _importing:
        value = import_module(f"{home}.{name}") if home == _BINDINGS else getattr(import_module(home), name)
    globals()[name] = value
    return value


class _InUse(ContextDecorator):
    """A thread calls a library of NVIDIA's: neither a fork nor the end of the interpreter comes in between.

    Raises:
        ToolchainError: If this process was forked while another thread was inside, so that the libraries may wait for
            that thread for ever.
        SystemExit: If the interpreter is ending, in another thread than the one that ends it.
    """

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _changed:
            if me not in _inside:
                _changed.wait_for(lambda: not _forking)
                _check(me)
            _inside[me] = _inside.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with _changed:
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
                _changed.notify_all()


#: As a context or as a decorator.
in_use = _InUse()


def _check(me: int) -> None:
    if _leaving not in (None, me):
        raise SystemExit  # as the interpreter ends daemon threads, but not within a call
    if _is_broken:
        raise ToolchainError(
            "this process was forked while another thread compiled or linked",
            code="toolchain-forked",
            hint="start processes by spawn or forkserver, or fork when nothing is compiled or linked",
        )


def _others() -> set[int]:
    return _inside.keys() - {threading.get_ident()}


def _before_fork() -> None:
    """Wait until no other thread is inside, or imports a module for jitlto, whose lock the child would find locked."""
    begin, me = time.monotonic(), threading.get_ident()
    while True:
        with _changed:
            _forking.add(me)
            _changed.wait_for(lambda: not _others(), begin + _PATIENCE - time.monotonic())
        if not any(map(_imports, _other_frames(me))) or time.monotonic() > begin + _PATIENCE_OF_IMPORTS:
            return
        with _changed:  # an import may have to enter
            _forking.discard(me)
            _changed.notify_all()
        time.sleep(_POLL)


def _other_frames(me: int) -> list[FrameType]:
    return [frame for thread, frame in sys._current_frames().items() if thread != me]


def _imports(frame: FrameType | None) -> bool:
    names = set()
    while frame is not None:
        names.add(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    return {"importlib", "jitlto"} <= names


def _after_fork_in_parent() -> None:
    with _changed:
        _forking.discard(threading.get_ident())
        _changed.notify_all()


def _after_fork_in_child() -> None:
    global _changed, _importing, _is_broken
    _is_broken = _is_broken or bool(_others())
    for thread in _others():
        del _inside[thread]
    _forking.clear()
    _changed, _importing = threading.Condition(), threading.RLock()


def _before_exit() -> None:
    """Wait until no other thread, which can only be a daemon, is inside, and let none in."""
    global _leaving
    with _changed:
        _leaving = threading.get_ident()
        _changed.wait_for(lambda: not _others(), _PATIENCE)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_before_exit)
