"""Shortcuts: what opening a database and planning came to, kept in the user's cache for the next process.

Both take ten times as long as finding and loading a linked kernel. What they came to is kept under the SHA-256 of all
that it depends on, so that any change makes a miss, and after a miss everything goes the ordinary way:

- what a database holds, under its digest;
- which kernel answers a request, under the database's digest, the request, the device's compute capability, jitlto's
  version and what decides which nvJitLink is found. It counts as long as the nvJitLink that was found then is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from jitlto import __version__, config
from jitlto.frozen import Frozen
from jitlto.model.types import Parameter
from jitlto.runtime.linking import kernel_cache
from jitlto.storage.cache_dir import CacheDir
from jitlto.storage.files import site_packages

if TYPE_CHECKING:
    from jitlto.storage.database import FragmentDatabase

#: To be raised when planning comes to something else, or these entries to another form.
_REVISION = 2
_VARIABLES = ("CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")
_CONTENTS, _CHOSEN = "databases", "requests"


class Chosen(Frozen):
    """What a plan says of its kernel.

    Parameters
    ----------
    kernel : str
        The key of the entrypoint fragment.
    digest : str
        The plan's.
    signature : tuple of Parameter
        The kernel's parameters.
    """

    kernel: str
    digest: str
    signature: tuple[Parameter, ...]


class FamilyContents(Frozen):
    """What callers can ask of a family.

    Parameters
    ----------
    parameters : mapping of str to tuple of str
        Its parameters, and the values that occur, both sorted.
    entrypoints : tuple of str
        Its groups of entrypoints, sorted.
    architectures : tuple of str
        What its LTO-IR was made for, sorted.
    compilers : tuple of str
        What made its images, each with its version, sorted.
    """

    parameters: Mapping[str, tuple[str, ...]]
    entrypoints: tuple[str, ...]
    architectures: tuple[str, ...]
    compilers: tuple[str, ...]


class Contents(Frozen):
    """What a sound database holds.

    Parameters
    ----------
    digest : str
        The database's.
    part : str or None
        Which part of a whole it is; None if it is complete.
    families : mapping of str to FamilyContents
        By name.
    """

    digest: str
    part: str | None
    families: Mapping[str, FamilyContents]

    @classmethod
    def of(cls, database: FragmentDatabase) -> Contents:
        """Of a database that is open."""
        from jitlto.model.configuration import parameter_values
        from jitlto.model.fragment import Role

        families = {}
        for name, record in database.families.items():
            fragments = database.fragments(name)
            entrypoints = {fragment.key.group for fragment in fragments if fragment.role is Role.ENTRYPOINT}
            compilers = {(image.toolchain, image.version) for fragment in fragments for image in fragment.images}
            families[name] = FamilyContents(
                parameter_values(fragments),
                tuple(sorted(entrypoints)),
                tuple(map(str, record.architectures)),
                tuple(f"{toolchain} {version}" for toolchain, version in sorted(compilers)),
            )
        return cls(database.digest, None if database.part is None else str(database.part), families)

    def to_json(self) -> bytes:
        """In the form that :meth:`from_json` reads."""
        families = {
            name: [dict(family.parameters), family.entrypoints, family.architectures, family.compilers]
            for name, family in self.families.items()
        }
        return json.dumps([self.digest, self.part, families]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Contents:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError, TypeError, AttributeError
            If it is something else.
        """
        digest, part, families = json.loads(text)
        return cls(
            digest,
            part,
            {
                name: FamilyContents({p: tuple(values) for p, values in parameters.items()}, *map(tuple, rest))
                for name, (parameters, *rest) in families.items()
            },
        )


class Shortcuts:
    """The answers in a store.

    Parameters
    ----------
    store : CacheDir
    """

    def __init__(self, store: CacheDir) -> None:
        self._store = store

    def contents(self, digest: str) -> Contents | None:
        """What the database of a digest holds; None if that is not known."""
        payload = self._store.get(_CONTENTS, _key(digest))
        if payload is None:
            return None
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # somebody else's
            contents = Contents.from_json(payload)
            return contents if contents.digest == digest else None
        return None

    def keep_contents(self, contents: Contents) -> None:
        """Keep what a database holds."""
        self._store.put(_CONTENTS, _key(contents.digest), contents.to_json())

    def chosen(self, question: str) -> Chosen | None:
        """The kernel that answers a :func:`question`; None if that is not known."""
        payload = self._store.get(_CHOSEN, question)
        if payload is None:
            return None
        try:
            kernel, digest, signature, linker, then = json.loads(payload)
            if _size_and_time(str(linker)) != tuple(then):
                return None
            return Chosen(str(kernel), str(digest), tuple(Parameter(*parameter) for parameter in signature))
        except (ValueError, TypeError, OSError, RecursionError):
            return None

    def keep_chosen(self, question: str, chosen: Chosen) -> None:
        """Keep the kernel that answers a :func:`question`, found with the nvJitLink at hand."""
        from jitlto.cuda import toolkit

        linker = toolkit.installed_linker()
        found = _size_and_time(linker or "")
        if found is not None:
            signature = [(p.name, p.type, p.size, p.alignment) for p in chosen.signature]
            content = [chosen.kernel, chosen.digest, signature, linker, found]
            self._store.put(_CHOSEN, question, json.dumps(content).encode())


def question(
    database: str,
    family: str,
    entry: str | None,
    link_mode: str,
    link_options: Mapping[str, object] | None,
    configuration: Mapping[str, str],
    capability: tuple[int, int],
) -> str | None:
    """What is asked of a family, as SHA-256: another for every other answer; None if JSON cannot say it.

    Parameters
    ----------
    database : str
        Its digest.
    family, entry, link_mode, link_options
        As asked for.
    configuration : mapping of str to str
        As asked for: another spelling of a value is another question.
    capability : tuple of int
        The device's compute capability.
    """
    asked = (database, family, entry, link_mode, link_options or {}, configuration, capability)
    try:
        return _key(asked, surroundings())
    except (TypeError, ValueError, RecursionError):
        return None


def surroundings() -> tuple[object, ...]:
    """What decides which nvJitLink is found, for less than finding it takes.

    A directory changes its time when a file in it is made or removed. Source: the search order of
    ``cuda.pathfinder.load_nvidia_dynamic_lib``: site-packages, conda, the loader, variables.
    """
    conda, loader, *toolkits = (os.environ.get(name, "") for name in _VARIABLES)
    places = [*site_packages(), f"{conda}/lib", *loader.split(os.pathsep), "/etc/ld.so.cache"]
    return (toolkits, [(place, _size_and_time(place)) for place in places])


def _size_and_time(path: str) -> tuple[int, int] | None:
    """What changes when another file or directory takes the place, on this machine or in another start of an image."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a string
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns)


def _key(*parts: object) -> str:
    text = json.dumps([_REVISION, __version__, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


_avoided: list[object] = []  # one for each caller who wants everything planned


@contextlib.contextmanager
def avoided() -> Iterator[None]:
    """Have all threads of this process plan meanwhile."""
    mine = object()
    _avoided.append(mine)
    try:
        yield
    finally:
        _avoided.remove(mine)


def in_use() -> Shortcuts | None:
    """Those of this process; None where they are not to be taken: without a cache, and while plans are recorded."""
    if _avoided or config.current().record is not None:
        return None
    store = kernel_cache.default().store
    return None if store is None else Shortcuts(store)
