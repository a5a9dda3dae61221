"""The cubin cache: linked kernels by the digest of their plan, in packs beside databases and in the user's directory.

What is not there is linked, by :mod:`jitlto.runtime.linking.get_or_link`.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto import config
from jitlto.frozen import Frozen
from jitlto.runtime import events
from jitlto.runtime.events import Kind
from jitlto.storage import files
from jitlto.storage.cache_dir import CacheDir, open_cache_dir

if TYPE_CHECKING:
    from jitlto.model.versions import Architecture
    from jitlto.runtime.linking.get_or_link import Linking
    from jitlto.runtime.linking.link_key import Recipe

ENTRIES = "kernels"
_PATIENCE = 60.0  # seconds to wait for another process before linking the same
#: What is told of a kernel, by the layer that it is from.
KINDS = {"link": Kind.LINKED, "pack": Kind.FOUND_IN_PACK, "disk": Kind.FOUND_ON_DISK}


class LinkedKernel(Frozen):
    """A linked kernel, not loaded; equal to another of the same code, wherever that is from.

    Parameters
    ----------
    cubin : bytes
        The machine code; PTX where nvJitLink makes none for the device, which is then compiled by the driver.
    entry : str
        The kernel's mangled name in it.
    target : str
        What it runs on, e.g. ``sm_90``; ``compute_90`` for PTX.
    log : str
        nvJitLink's info log.
    seconds : float
        Wall time of the link, or of finding it.
    layer : str
        Where it is from: ``link``, ``pack`` or ``disk``.
    """

    cubin: bytes
    entry: str
    target: str
    log: str
    seconds: float
    layer: str = "link"

    @property
    def architecture(self) -> Architecture:
        """What it runs on."""
        from jitlto.model.versions import Architecture

        return Architecture.parse(self.target)

    @property
    def is_ptx(self) -> bool:
        """Whether it is PTX."""
        return self.target.startswith("compute_")

    def _value(self) -> tuple[object, ...]:
        return (self.cubin, self.entry, self.target, self.log)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkedKernel) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        return f"<LinkedKernel {self.entry} for {self.target}, {len(self.cubin)} bytes, from {self.layer}>"


def pack(recipe: Recipe, linked: LinkedKernel) -> bytes:
    """An entry of the cache: the recipe's content, a line of JSON, the cubin."""
    about = {"kernel": recipe.kernel, "configuration": recipe.configuration, "log": linked.log}
    line = json.dumps(about, sort_keys=True).encode()
    return b"\n".join([recipe.content, line, linked.cubin])


def unpack(digest: str, payload: bytes, seconds: float, layer: str) -> LinkedKernel | None:
    """Read an entry; None if it is not the one of that digest, as when a file was given another's name.

    Its recipe can then be read by :meth:`jitlto.runtime.linking.link_key.Recipe.of_entry`.
    """
    content, _, rest = payload.partition(b"\n")
    if hashlib.sha256(content).hexdigest() != digest:
        return None
    line, _, cubin = rest.partition(b"\n")
    try:
        about, inputs = json.loads(line), json.loads(content)
        entry, target, log = str(inputs["entry"]), str(inputs["arch"]), str(about["log"])
        number = target.removeprefix("sm_").removeprefix("compute_").rstrip("af")
        if not number.isdigit() or any(len(p) != 2 for p in about["configuration"]):
            return None
        if not isinstance(about["kernel"], str):
            return None
        return LinkedKernel(cubin, entry, target, log, seconds, layer)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class CubinCache:
    """Linked kernels by digest.

    Parameters
    ----------
    store : Store or None
        The user's directory; None to keep nothing.
    may_link : bool
        Whether a kernel that is not there may be linked.
    patience : float
        Seconds to wait at most for another process that links the same kernel.
    """

    def __init__(self, store: CacheDir | None, *, may_link: bool = True, patience: float = _PATIENCE) -> None:
        self.store = store
        self._may_link = may_link
        self._patience = patience

    @property
    def _linking(self) -> Linking:
        from jitlto.runtime.linking.get_or_link import Linking  # of which whoever only finds kernels has no need

        made = Linking(self, may_link=self._may_link, patience=self._patience)
        return self.__dict__.setdefault("_linking_here", made)  # type: ignore[no-any-return]  # the first thread's

    def find(self, digest: str, database: Path) -> LinkedKernel | None:
        """The kernel of a digest, from a pack beside its database or from the user's directory."""
        begin = time.perf_counter()
        for payload in _packed(digest, database):
            found = unpack(digest, payload, time.perf_counter() - begin, "pack")
            if found is not None:
                return found
        kept = self.store.get(ENTRIES, digest) if self.store else None
        return None if kept is None else unpack(digest, kept, time.perf_counter() - begin, "disk")

    def take(self, digest: str, kernel: str, database: Path) -> LinkedKernel | None:
        """As :meth:`find`, for what is going to be used: told as an event.

        Parameters
        ----------
        kernel : str
            The key of the entrypoint fragment.
        """
        found = self.find(digest, database)
        if found is not None:
            events.tell(KINDS[found.layer], kernel, digest, found.seconds)
        return found

    def kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        """Find a kernel, or link it; one thread does, the others that ask for the same meanwhile get what it got.

        Raises
        ------
        NotCachedError
            If it is not there and may not be linked.
        LinkError
            What ``link`` raises.
        """
        return self._linking.kernel(recipe, link, database)


def _packed(digest: str, database: Path) -> Iterator[bytes]:
    """What the packs beside a database hold under a digest."""
    paths = files.beside(database, ".pack")
    if not paths:
        return  # most databases have none, and need not wait for what reads them
    from jitlto.runtime.linking import packs

    for each in packs.opened(paths):
        payload = each.get(digest)
        if payload is not None:
            yield payload


class _Default:
    """The cache of this process, as ``JITLTO_CACHE`` and the other variables say; made by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: CubinCache | None = None

    def __call__(self) -> CubinCache:
        with self._lock:
            if self._cache is None:
                self._cache = _opened()
            return self._cache

    def cache_clear(self) -> None:
        """Forget it, and its locks, which a fork may have copied while threads of the parent held them."""
        self._lock = threading.Lock()
        self._cache = None


def _opened() -> CubinCache:
    settings = config.current()
    store = None
    if settings.cache != "off":
        directory = settings.cache_dir / "cubins"
        store = open_cache_dir(directory, settings.cache_size, readonly=settings.cache == "readonly")
    return CubinCache(store, may_link=settings.mode != "cached")


default = _Default()
# What the threads of the parent were linking, a fork would wait for in vain.
os.register_at_fork(after_in_child=default.cache_clear)
