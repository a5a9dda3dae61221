"""What a compile depends on, in two levels, so that nothing is compiled again that would come out the same.

The first level is known before any header is looked at: source, options, architectures, images, compiler. Under it
stand *manifests*: the headers that a compile of just that has read, with their contents. A unit is valid if a manifest
of its first level holds. Names are relative to their include directory, so that directory, user and machine do not
count; contents are compared by SHA-256, times never.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jitlto.build.compilers.base import Toolchain
from jitlto.model.fragment import FragmentKey, ImageKind
from jitlto.model.headers import HeaderSearch
from jitlto.model.versions import Architecture

#: To be raised when the same inputs are made into other units.
REVISION = 2


@dataclass(frozen=True)
class Recipe:
    """How the sources of one family are compiled.

    Parameters
    ----------
    toolchain : Toolchain
    search : HeaderSearch
        Where headers are found that travel with a source.
    own : HeaderSearch
        The family's own among them.
    architectures : tuple of Architecture
        Sorted.
    options : tuple of str
    images : tuple of ImageKind
        Sorted.
    """

    toolchain: Toolchain
    search: HeaderSearch
    own: HeaderSearch
    architectures: tuple[Architecture, ...]
    options: tuple[str, ...]
    images: tuple[ImageKind, ...]
    _held: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def fields(self, source: str) -> dict[str, str]:
        """The first level of a source, field by field."""
        return {
            "source": source,
            "options": " ".join(self.options),
            "architectures": " ".join(map(str, self.architectures)),
            "images": " ".join(self.images),
            "compiler": self.toolchain.identity,
        }

    def first(self, source: str) -> str:
        """The first level of a source: SHA-256 of its fields."""
        document = json.dumps([REVISION, self.fields(source), self.options])
        return hashlib.sha256(document.encode()).hexdigest()

    def manifest(self, source: str, reads: Sequence[str]) -> bytes:
        """The headers of a compile as they are now: a line of SHA-256 and name for each that was read.

        ``+ name`` and ``- name`` say of others only whether they exist, which decides what an include means.
        """
        own = [name for name in reads if not name.startswith("<")]
        lines = [f"{self._state(name)} {name}" for name in reads]
        asked = self.search.asked(source.encode(), own) - set(own)
        lines += [f"{'-' if self.search.find(name) is None else '+'} {name}" for name in asked]
        return "\n".join(sorted(lines)).encode("utf-8", "surrogateescape")

    def holds(self, sha: str, manifest: bytes) -> bool:
        """Whether every header of a manifest is now what it was; ``sha`` is the manifest's name."""
        if sha not in self._held:
            self._held[sha] = all(self._line_holds(state, name) for state, name in _lines(manifest))
        return self._held[sha]

    def headers(self, manifest: bytes) -> dict[str, str]:
        """The headers of a manifest with their SHA-256."""
        return {name: state for state, name in _lines(manifest) if state not in "+-"}

    def states(self, names: Iterable[str]) -> dict[str, str]:
        """Headers with their SHA-256 as they are now, without those that are gone."""
        return {name: state for name in names if (state := self._state(name)) != "gone"}

    def _line_holds(self, state: str, name: str) -> bool:
        if state in "+-":
            return (self.search.find(name) is None) == (state == "-")
        return self._state(name) == state

    def _state(self, name: str) -> str:
        found = self.toolchain.external(name) if name.startswith("<") else self.search.sha256(name)
        return found or "gone"


def _lines(manifest: bytes) -> Iterator[tuple[str, str]]:
    for line in manifest.decode("utf-8", "surrogateescape").split("\n") if manifest else []:
        state, _, name = line.partition(" ")
        yield state, name


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def second(first: str, manifest: str) -> str:
    """The key of a unit: its first level and the SHA-256 of its manifest."""
    return sha256(f"{first} {manifest}".encode())


def history_key(key: FragmentKey) -> str:
    """Where the fields of the last build of a fragment are kept."""
    return sha256(str(key).encode())


def joined(lines: Iterable[str]) -> bytes:
    """Lines as one payload."""
    return "\n".join(lines).encode()
