"""The session: all state of a process, such as settings, registry and caches.

Module-level functions such as :func:`jitlto.family` use the default session; tests create their own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jitlto.base import config
from jitlto.base import events as runtime_events
from jitlto.base.cache_dir import open_cache_dir
from jitlto.base.cached import SingleFlight, cached_property
from jitlto.base.errors import JitltoError
from jitlto.base.events import Events
from jitlto.base.frozen import Shared
from jitlto.cuda.libraries import installed_release
from jitlto.link.kernel_cache import KernelCache
from jitlto.runtime.discovery.registry import Registry

if TYPE_CHECKING:
    from jitlto.base.config import Config
    from jitlto.base.events import StepObserver

V = TypeVar("V")
# NVTX itself loads the library that this variable names, which profilers set where they collect ranges.
_PROFILER = "NVTX_INJECTION64_PATH"


class _opened(cached_property[V]):  # noqa: N801 - used as the one that it is
    """What a session opens under its lock, so that a reset in another thread comes before or after."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> V:  # type: ignore[override]
        with getattr(instance, "_lock", nullcontext()):  # there is no instance where the class is asked
            return super().__get__(instance, owner)  # type: ignore[no-any-return]


class Session(Shared):
    """Configuration, registry, caches, events, and the families and kernels that are loaded.

    Args:
        settings: The settings; by default read from the environment on first use.
        events: The counters and subscribers; by default new ones.
    """

    def __init__(self, settings: Config | None = None, *, events: Events | None = None) -> None:
        self.events = events or Events()
        #: Links under way.
        self.flights = SingleFlight()
        self._given = settings
        self._recordings = 0  # under way
        self._lock, self.loading = threading.RLock(), threading.RLock()
        self._stop_recording: Callable[[], None] | None = None
        self._forget()
        _sessions.add(self)

    def _forget(self) -> None:
        self._config: Config | None = None
        for name in ("registry", "kernel_cache", "linker"):
            self.__dict__.pop(name, None)
        # New ones: a thread that is loading a family puts it into the old.
        #: Families that were found, by name and distribution, or by name and the digest that another process names.
        self.families: dict[tuple[str, str | None], Any] = {}
        #: Families that were loaded here or sent from here, by name and digest.
        self.loaded: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()
        self.events.step_observer = None
        if self._stop_recording is not None:
            self._stop_recording()
            self._stop_recording = None

    def __reduce__(self) -> str:
        """Be the default session in another process too; no other session has a name there."""
        if self is default:
            return "default"
        raise JitltoError(
            "a session other than the default one cannot be sent to another process",
            code="jitlto-not-portable",
            where=repr(self),
            hint="send the family's name and load it there: jitlto.load(FAMILY, DB, session=SESSION)",
        )

    def reset(self) -> None:
        """Return to the state of a new process: forget everything but event subscribers, and reread the settings."""
        with self._lock:
            self._forget()
            if self._given is None:
                config.current.cache_clear()

    def after_fork(self) -> None:
        """Replace locks in a forked process, where the threads that held them do not exist."""
        self._lock, self.loading = threading.RLock(), threading.RLock()
        self.events.after_fork()
        self.flights.after_fork()

    @property
    def config(self) -> Config:
        """The settings; the first use starts recording plans, if they ask for it, and ranges under a profiler."""
        with self._lock:
            if self._config is None:
                settings = self._given or config.current()
                if settings.record is not None:
                    self._stop_recording = self._record(settings.record)
                if _PROFILER in os.environ:
                    self.events.step_observer = _open_ranges()
                self._config = settings
            return self._config

    @_opened
    def registry(self) -> Registry:
        """The databases on ``JITLTO_DATABASE_PATH`` and in installed packages."""
        return Registry(self.config.database_path, cache=self.kernel_cache)

    @_opened
    def kernel_cache(self) -> KernelCache:
        """The cache of linked kernels, configured by ``JITLTO_CACHE`` and the other variables."""
        settings = self.config
        how: dict[str, Any] = {"may_link": settings.mode != "cached", "events": self.events, "flights": self.flights}
        if settings.cache == "off":
            return KernelCache(None, **how)
        store = open_cache_dir(settings.cache_dir / "cubins", settings.cache_size)
        return KernelCache(store, settings=settings, **how)

    @cached_property
    def linker(self) -> str | None:
        """The release of nvJitLink, told from its file in 0.1 ms; None if it is in no package and no conda environment.

        Looked for once, because that takes as long as a look-up.
        """
        return installed_release(os.environ.get("CONDA_PREFIX", ""))

    @property
    def is_recording(self) -> bool:
        """Whether plans are recorded."""
        return bool(self._recordings or self.config.record)

    @contextmanager
    def recording(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Record the plans that any thread uses inside the ``with`` block, each once.

        If the file cannot be written, one warning is logged.

        Args:
            path: The file; it is created if it is missing, and appended to if it exists.
        """
        stop = self._record(Path(path))
        with self._lock:
            self._recordings += 1
        try:
            yield
        finally:
            with self._lock:
                self._recordings -= 1
            stop()

    def _record(self, path: Path) -> Callable[[], None]:
        from jitlto.runtime.recording import Recorder  # imported lazily: loads the planner

        return self.events.subscribe(Recorder(path))


def _open_ranges() -> StepObserver | None:
    """Return an observer that makes each step an NVTX range, such as ``link search/...[...]``, which Nsight shows.

    None without NVIDIA's package ``nvtx``.
    """
    try:
        import nvtx  # imported lazily: optional, and it loads NVTX
    except ImportError:
        return None
    return lambda step, kernel: nvtx.annotate(f"{step} {kernel}", domain="jitlto", category=step)


#: All that exist, for a fork concerns each.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
#: The session of this process.
default = Session(events=runtime_events.default)
recording = default.recording


def _after_fork() -> None:
    for session in tuple(_sessions):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)
