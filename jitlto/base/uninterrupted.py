"""What neither a fork nor the end of the interpreter may interrupt: calls of NVIDIA's libraries, and imports for them.

After a fork during such a call of another thread, a library would wait for that thread for ever; after the end of the
interpreter, it would run on in a library that is gone. So both wait until no other thread is inside.
"""

import atexit
import os
import sys
import threading
import time
from contextlib import ContextDecorator
from types import FrameType
from typing import NoReturn

from jitlto.base.errors import ToolchainError

_PATIENCE = 30.0  # seconds that a fork or the end waits at most
_PATIENCE_OF_IMPORTS = 2.0  # seconds that a fork waits for imports, some of which run a whole program
_POLL = 0.001  # seconds

_changed = threading.Condition()  # guards what follows
_inside: list[int] = []  # threads, each as often as it has entered
_forking: set[int] = set()  # threads that are about to fork
_ending: int | None = None  # the thread that ends the interpreter
_lock = threading.RLock()
_is_broken = False  # forked while another thread was inside


class _Uninterrupted(ContextDecorator):
    """A call that neither a fork nor the end of the interpreter interrupts.

    Raises:
        ToolchainError: If this process was forked while another thread was inside.
        SystemExit: If the interpreter is ending, and this is another thread than the one that ends it.
    """

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _changed:
            if me not in _inside:
                while _forking:
                    _changed.wait()
                if _is_broken or _ending not in (None, me):
                    _refuse()
            _inside.append(me)

    def __exit__(self, *_: object) -> None:
        with _changed:
            _inside.remove(threading.get_ident())
            if _forking or _ending is not None:
                _changed.notify_all()


class _Alone(_Uninterrupted):
    """The same, and one thread at a time."""

    def __enter__(self) -> None:
        super().__enter__()
        _lock.acquire()

    def __exit__(self, *_: object) -> None:
        _lock.release()
        super().__exit__()


#: As contexts, or as decorators.
uninterrupted, alone = _Uninterrupted(), _Alone()


def _refuse() -> NoReturn:
    if not _is_broken:
        raise SystemExit  # the interpreter would end this thread too, which can only be a daemon, but not within a call
    raise ToolchainError(
        "this process was forked while another thread compiled or linked",
        code="toolchain-forked",
        hint="start processes by spawn or forkserver, or fork when nothing is compiled or linked",
    )


def _others() -> set[int]:
    return {*_inside} - {threading.get_ident()}


def _before_fork() -> None:
    """Wait until no other thread is inside, or imports a module for jitlto: the child would find its lock locked."""
    begin, me = time.monotonic(), threading.get_ident()
    while True:
        with _changed:
            _forking.add(me)
            _changed.wait_for(lambda: not _others(), begin + _PATIENCE - time.monotonic())
        if not _is_importing(me) or time.monotonic() > begin + _PATIENCE_OF_IMPORTS:
            return
        with _changed:  # an import may have to enter
            _forking.discard(me)
            _changed.notify_all()
        time.sleep(_POLL)


def wait_first() -> None:
    """Let forks wait before they take the locks of modules that were imported since, which an import may need.

    What is registered last is called first. The lock of ``logging`` is one of these.
    """
    os.register_at_fork(before=_before_fork)


def _is_importing(me: int) -> bool:
    """Return whether another thread than ``me`` imports a module for jitlto."""
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost
        packages = set()
        while frame is not None and thread != me:
            packages.add(str(frame.f_globals.get("__name__")).partition(".")[0])
            frame = frame.f_back
        if {"importlib", "jitlto"} <= packages:
            return True
    return False


def _after_fork_in_parent() -> None:
    with _changed:
        _forking.discard(threading.get_ident())
        _changed.notify_all()


def _after_fork_in_child() -> None:
    global _changed, _inside, _lock, _is_broken
    _is_broken = _is_broken or bool(_others())
    _inside = [thread for thread in _inside if thread == threading.get_ident()]
    _forking.clear()
    _changed, _lock = threading.Condition(), threading.RLock()


def _before_end() -> None:
    """Wait until no other thread is inside, and let none in."""
    global _ending
    with _changed:
        _ending = threading.get_ident()
        _changed.wait_for(lambda: not _others(), _PATIENCE)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_before_end)
