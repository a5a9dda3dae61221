"""Keys of the build cache: a source is compiled again only if something that its compiler may read has changed.

A key is made of how a source is compiled, its text and the contents of all headers that it can reach, by names that do
not tell directory, user and machine. What a compiler has found elsewhere by itself, as nvcc does the toolkit's headers
and the host's, is listed with the compiled source, which is valid while all of it is unchanged. Contents are compared,
never times.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jitlto.base.cached import cached_property
from jitlto.base.entry import digest_of
from jitlto.base.versions import Architecture, Version
from jitlto.compile.compiler import Toolchain
from jitlto.compile.headers import HeaderSearch
from jitlto.families.templates import RenderedHeaders, RenderedSource
from jitlto.record.fragment import ImageForm, Values
from jitlto.record.headers import Source, interfaces_first

#: Increment when the same inputs may give a different compiled source or be refused, or when the format of entries
#: changes.
REVISION = 20


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
    images: tuple[ImageForm, ...]  # sorted
    interfaces: tuple[str, ...] = ()  # of the family and of those that it uses, in order
    #: Architectures to add LTO-IR for where the code differs, the lowest of ``architectures`` first; empty for none.
    candidates: tuple[Architecture, ...] = ()
    linker: Version | None = None  # nvJitLink, by which code is compared, if there are candidates
    cubin_options: tuple[str, ...] = ()  # for cubins alone
    #: Generated headers, at least those of the interfaces.
    generated: RenderedHeaders = field(default_factory=lambda: RenderedHeaders({}, {}, ""))
    values: Values = ()  # of the parameters on which the interfaces depend
    _states: dict[str, str] = field(default_factory=dict, repr=False)

    def own_closure(self, rendered: RenderedSource) -> Source:
        """The source with those headers of the family that it can reach."""
        return self.own.closure(rendered.source.encode(), rendered.headers)

    def interface_headers(self, interfaces: Sequence[str] | None = None) -> Mapping[str, bytes]:
        """Interfaces, by default all, and the headers of the family that they include, by name."""
        first = interfaces_first(self.interfaces if interfaces is None else interfaces)
        return self.own.closure(first.encode(), self.generated).headers

    def own_texts(self, rendered: RenderedSource) -> dict[str, bytes]:
        """A source and those of its own headers that are no interfaces', by name."""
        interfaces, headers = self.interface_headers(), self.own_closure(rendered).headers
        own = {name: text for name, text in headers.items() if name not in interfaces}
        return {f"{rendered.key}.cu": rendered.text.encode(), **own}

    @property
    def every_option(self) -> tuple[str, ...]:
        """The options that decide the bytes of its images."""
        return (*self.options, *self.cubin_options)

    @cached_property
    def _how(self) -> list[object]:
        architectures = [*map(str, self.architectures)], [*map(str, self.candidates)], str(self.linker)
        # By these a source was judged before it was compiled, and its text does not tell them.
        interfaces = sorted(self.interface_headers())
        identity = self.toolchain.identify(self.images)
        return [REVISION, self.every_option, architectures, self.images, identity, interfaces]

    def key(self, source: Source, what: str = "") -> str:
        """SHA-256 of a source with its headers, of how it is compiled, and of what is asked of it."""
        return digest_of(json.dumps([*self._how, what, source.sha256]).encode()).hex()

    def found_headers(self, source: Source, reads: Iterable[str]) -> dict[str, str]:
        """The states of those headers that a compile has read beside the source's own."""
        return {name: self._state(name) for name in reads if name not in source.headers}

    def is_current(self, headers: Mapping[str, str]) -> bool:
        """Return whether headers are in the states of :meth:`found_headers`."""
        return all(self._state(name) == state for name, state in headers.items())

    def _state(self, name: str) -> str:
        if name not in self._states:
            self._states[name] = self.search.sha256(name) or "gone"
        return self._states[name]
