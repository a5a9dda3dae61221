"""Keys of the build cache, in two levels, so that a source is compiled again only if the result could differ.

The source key is known before any header is read: source, options, architectures, images, compiler. The cache stores
*manifests* for it: lists of the headers that a compile of that source read, with their SHA-256. A compiled source is
valid if one of the manifests of its source key still matches. Names are relative to their include directory, so that
directory, user and machine do not matter; headers are compared by content, never by time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jitlto.base.versions import Architecture, Version
from jitlto.compile.compiler import Toolchain
from jitlto.compile.header_search import HeaderSearch
from jitlto.compile.includes import scan
from jitlto.compile.search_path import SEARCHED, searched_names
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

#: Increment when the same inputs may give a different compiled source, or when the format of entries changes.
REVISION = 11


@dataclass(frozen=True, eq=False)
class CompileConfig:
    """The compiler, options and headers of one family.

    Each set of headers is one mapping, which is hashed and sent to a worker once.
    """

    toolchain: Toolchain
    search: HeaderSearch  # finds the headers that are sent with a source
    own: HeaderSearch  # finds the family's own among them
    architectures: tuple[Architecture, ...]  # sorted
    options: tuple[str, ...]
    images: tuple[ImageKind, ...]  # sorted
    interfaces: tuple[str, ...] = ()  # of the family and of those that it uses, in order
    #: Architectures to add LTO-IR for where the code differs, the lowest of ``architectures`` first; empty for none.
    candidates: tuple[Architecture, ...] = ()
    linker: Version | None = None  # nvJitLink, by which code is compared, if there are candidates
    _current: dict[str, bool] = field(default_factory=dict, repr=False)
    _manifests: dict[tuple[frozenset[str], tuple[str, ...]], bytes] = field(default_factory=dict, repr=False)

    def closure(self, source: str, extra: Sequence[str] = ()) -> Source:
        """The source with all headers that it can reach, and those of ``extra``, which it includes through a macro."""
        return self.search.closure(source.encode(), extra)

    def complete(self, source: Source) -> Source:
        """A source of :meth:`closure` with every header that the compiler may find by itself."""
        return self.search.complete(source)

    def own_closure(self, source: str) -> Source:
        """The source with those headers of the family that it can reach."""
        return self.own.closure(source.encode())

    def fields(self, source: str) -> dict[str, str]:
        """The parts of the source key, by name."""
        return {
            "source": source,
            "options": " ".join(self.options),
            "architectures": " ".join([*map(str, self.architectures), *self._added()]),
            "images": " ".join(self.images),
            "compiler": self.toolchain.identify(self.images),
        }

    def _added(self) -> list[str]:
        if not self.candidates:
            return []
        return ["where the code differs by nvJitLink", f"{self.linker}:", *map(str, self.candidates[1:])]

    def source_key(self, source: str) -> str:
        """SHA-256 of the source and of how it is compiled."""
        return sha256(json.dumps([REVISION, self.fields(source), self.options]).encode())

    def manifest(self, source: str, reads: Sequence[str]) -> bytes:
        """The current headers of a compile: a line of SHA-256 and name for each that was read.

        ``- name`` records that no such header exists, where it was looked for.
        """
        text, reads = source.encode(), tuple(reads)
        key = frozenset(include.name for include in scan(text).includes), reads
        if (found := self._manifests.get(key)) is None:
            found = self._manifests[key] = self._make_manifest(text, reads)
        return found

    def _make_manifest(self, text: bytes, reads: Sequence[str]) -> bytes:
        own = [name for name in reads if not name.startswith("<")]
        lines = [f"{self._state(name)} {name}" for name in reads]
        lines += [f"- {name}" for name in self.search.absent(text, own)]
        return "\n".join(sorted(lines)).encode("utf-8", "surrogateescape")

    def is_current(self, manifest_sha256: str, manifest: bytes) -> bool:
        """Return whether every header of a manifest is unchanged."""
        if manifest_sha256 not in self._current:
            self._current[manifest_sha256] = all(self._line_holds(*line) for line in _lines(manifest))
        return self._current[manifest_sha256]

    def current_headers(self, names: Iterable[str]) -> dict[str, str]:
        """Headers with their current SHA-256, without those that no longer exist."""
        return {name: state for name in names if (state := self._state(name)) != "gone"}

    def _line_holds(self, state: str, name: str) -> bool:
        if state == "-":
            return self.search.find(name) is None
        return self._state(name) == state

    def _state(self, name: str) -> str:
        if not name.startswith("<"):
            return self.search.sha256(name) or "gone"
        state = self.toolchain.external(name) or "gone"
        # A header of the family may appear where one of the toolkit or the host was found.
        return f"{state}/{self.search.held(names)}" if (names := searched_names(name)) else state


def headers(manifest: bytes) -> dict[str, str]:
    """Return the headers of a manifest with their SHA-256."""
    lines = _lines(manifest)
    return {name: state for state, name in lines if state != "-" and not name.startswith(SEARCHED)}


def _lines(manifest: bytes) -> Iterator[tuple[str, str]]:
    for line in manifest.decode("utf-8", "surrogateescape").split("\n") if manifest else []:
        state, _, name = line.partition(" ")
        yield state, name


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def entry_key(source_key: str, inputs_sha256: str) -> str:
    """The key of a compile: of one source, with a manifest or closure of this SHA-256."""
    return sha256(f"{source_key} {inputs_sha256}".encode())
