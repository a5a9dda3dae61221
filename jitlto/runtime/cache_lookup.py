"""Look up a plan's linked kernel in all caches, and compare it with the nearest entry if it is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jitlto.base import config
from jitlto.base.user_caches import CACHE_OFF, user_caches
from jitlto.link import kernel_cache, packs
from jitlto.link.shared_kernels import SharedKernels
from jitlto.plan.cache_entry import LinkedKernel, LinkKey
from jitlto.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Source:
    """A pack, the user's cache or the shared stores.

    Args:
        layer: ``pack``, ``disk`` or ``store``.
        title: Its description.
        path: Where it is; URLs for shared stores.
        files: Digest → file; only the one that was looked for of shared stores.
        get: Digest → entry; None if it is missing or damaged.
    """

    layer: str
    title: str
    path: Path | str
    files: Mapping[str, Path | str]
    get: Callable[[str], bytes | None]

    def holds(self, digest: str) -> bool:
        """Return whether the entry exists and is not damaged, so that a program would use it."""
        payload = self.get(digest) if digest in self.files else None
        return payload is not None and LinkedKernel.decode(digest, payload, 0.0, self.layer) is not None

    def link_keys(self) -> Iterator[LinkKey]:
        for digest in sorted(self.files):
            payload = self.get(digest)
            if payload and LinkedKernel.decode(digest, payload, 0.0, self.layer):
                yield LinkKey.from_entry(payload)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two linked kernels differ; ``fragment`` is the key if only one fragment is concerned."""

    field: str
    there: object
    here: object
    fragment: str | None = None

    def __str__(self) -> str:
        if self.fragment:
            return f"{self.field}: a different image of {self.fragment}"
        return f"{self.field}: {_plain(self.there)} there, {_plain(self.here)} here"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The cache entry with the fewest differences."""

    source: Source
    digest: str
    kernel: str
    differences: tuple[Difference, ...]

    @property
    def file(self) -> Path | str:
        return self.source.files[self.digest]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of a look-up.

    Args:
        sources: The places where a program would look, in order.
        hit: The source that has the kernel; None for a miss.
        problem: Why the user's cache or the shared stores are not among the sources; None if they are, or are not used.
        nearest: The nearest entry; only for a miss.
    """

    sources: tuple[Source, ...]
    hit: Source | None
    problem: str | None
    nearest: Nearest | None


def look_up(plan: Plan) -> Lookup:
    """Look for a plan's linked kernel where a program would: in packs, the user's cache, and shared stores."""
    sources, problem = _sources(plan.database.location)
    hit = next((source for source in sources if source.holds(plan.digest)), None)
    settings = config.current()
    if hit is None and settings.store and settings.cache != "off":
        shared = SharedKernels(settings, readonly=True)
        found = shared.find(plan.digest)
        files = {plan.digest: settings.store} if found else {}
        payload = plan.link_key.encode(found) if found else None
        stores = shared.stores
        if found is None and (stores.statistics.failures or stores.is_opening or not stores.is_waited_for):
            unasked = f"not all shared stores could be asked: {settings.store}"
            problem = f"{problem}; {unasked}" if problem else unasked
        else:
            sources.append(Source("store", "the shared stores", settings.store, files, lambda _: payload))
        hit = sources[-1] if found else None
    return Lookup(tuple(sources), hit, problem, None if hit else _nearest(plan, sources))


def _sources(database: Path) -> tuple[list[Source], str | None]:
    found = [
        Source("pack", f"a pack of {database.name}", pack.path, dict.fromkeys(pack.digests, pack.path), pack.get)
        for pack in packs.beside(database)
    ]
    place = user_caches()[0]
    if place.setting == "off":
        return found, f"the user's cache is not searched: {CACHE_OFF}"
    if problem := place.problem():
        return found, f"the user's cache cannot be used: {place.directory}: {problem}"
    try:
        cache = place.open(readonly=True)
    except FileNotFoundError:
        return found, f"{place.directory}: nothing is cached yet"
    files, get = cache.entries(kernel_cache.ENTRIES), partial(cache.get, kernel_cache.ENTRIES)
    return [*found, Source("disk", "the user's cache", cache.directory, files, get)], None


def _nearest(plan: Plan, sources: Iterable[Source]) -> Nearest | None:
    """Return the entry with the fewest differences, preferably of the same kernel and configuration."""
    own = plan.link_key
    best: tuple[tuple[bool, bool, int, str], Nearest] | None = None
    for source in sources:
        for key in source.link_keys():
            if key.kernel.partition("[")[0] != own.kernel.partition("[")[0]:
                continue
            differences = tuple(_differences(plan, key))
            other = key.kernel != own.kernel, key.configuration != own.configuration
            rank = (*other, len(differences), key.digest)
            if best is None or rank < best[0]:
                best = rank, Nearest(source, key.digest, key.kernel, differences)
    return best[1] if best else None


def _differences(plan: Plan, there: LinkKey) -> Iterator[Difference]:
    chosen, other = dict(plan.link_key.configuration), dict(there.configuration)
    for name in sorted(chosen.keys() | other.keys()):
        if chosen.get(name) != other.get(name):
            yield Difference(name, other.get(name), chosen.get(name))
    own, theirs = plan.link_key.inputs, there.inputs
    for name in sorted(own.keys() | theirs.keys()):
        here, cached = own.get(name), theirs.get(name)
        # A different configuration implies different fragments and mostly a different entry: do not list them.
        if here == cached or (chosen != other and name in ("images", "entry")):
            continue
        if name == "images" and isinstance(cached, list):
            for fragment, image in zip(plan.fragments, plan.images, strict=True):
                if image.sha256 not in cached:
                    yield Difference(name, None, image.sha256, str(fragment.key))
            if len(cached) != len(plan.images):
                yield Difference(name, len(cached), len(plan.images))
        else:
            yield Difference(name, cached, here)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
