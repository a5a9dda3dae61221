"""What a build asks of the scheduler: a rendered source, compiled in one way."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

from jitlto.base.cached import cached_property
from jitlto.base.diagnostic import Diagnostic, Location
from jitlto.base.errors import CompileError, JitltoError
from jitlto.base.text import suggest, suggest_file
from jitlto.base.toml_reader import find_place
from jitlto.base.types import TYPE_NAMES
from jitlto.build.cache.keys import CompileConfig
from jitlto.compile import diagnostics
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.declarations import words
from jitlto.compile.headers import locate
from jitlto.compile.sides import explain
from jitlto.compile.signatures import find_parameters
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey
from jitlto.record.headers import Source, split_leading_includes


@dataclass(frozen=True, eq=False)
class CompileRequest:
    """A rendered source and how it is compiled."""

    rendered: RenderedSource
    config: CompileConfig
    #: Checks the source against its interfaces, before it is compiled: raises a BuildError.
    check: Callable[[RenderedSource], None]

    @property
    def key(self) -> FragmentKey:
        return self.rendered.key

    @property
    def head(self) -> tuple[CompileConfig, Hashable]:
        """Its leading includes, and how they are compiled: what compilers need to read once for equal ones."""
        return self.config, (_leading_includes(self.rendered.source), *self.rendered.headers.items())

    @cached_property
    def closure(self) -> Source:
        """The source with all headers that it can reach.

        Raises:
            JitltoError: A header cannot be read, or what an include names cannot be told.
        """
        rendered = self.rendered
        try:
            return self.config.search.closure(rendered.source.encode(), rendered.headers)
        except JitltoError as error:
            locate(error, f"{self.key}.cu", len(rendered.interfaces) + 1 if rendered.interfaces else 0, self.place)
            raise

    @cached_property
    def cache_key(self) -> str:
        """The key of its compiled form in the build cache; raises as :attr:`closure`."""
        return self.config.key(self.closure)

    @property
    def own_closure(self) -> Source:
        """The source with those headers of the family that it can reach."""
        return self.config.own_closure(self.rendered)

    def find_place(self, name: str, line: int) -> Location | None:
        """Return the place of a line of the source, or of a header of the family; None of a header of others."""
        path = self.config.own.path(name)
        own = Location(str(path), line, about=self.rendered.about) if path else None
        return self.rendered.place_in(name, line) or own

    def place(self, name: str, line: int) -> Location:
        """Return the place of a line of the source or of a header."""
        return self.find_place(name, line) or Location(name, line)

    def name_parameters(self, compiled: CompiledSource) -> CompiledSource:
        """The compiled source with what its text tells of kernels: parameters' names, and types of ``extern "C"``."""
        if not compiled.kernels:  # whatever the group's role is, which the cache does not know
            return compiled
        source, kernels = self.own_closure, ((name, len(sizes)) for name, sizes in compiled.kernels)
        parameters = dict(compiled.parameters)
        for kernel, found in find_parameters((source.text, *source.headers.values()), self.config.options, kernels):
            parameters[kernel] = tuple(
                (name, mangled if kernel.startswith("_Z") else type_)
                for (name, type_), (_, mangled) in zip(found, parameters[kernel], strict=True)
            )
        return replace(compiled, parameters=tuple(parameters.items()))

    def job(self, sharers: int = 1) -> CompileJob:
        """The job that compiles the source, with all headers that the compiler may find."""
        config, tool = self.config, self.config.toolchain
        source = config.search.complete(self.closure)
        how = config.architectures, config.options, config.images, sharers, config.candidates, config.cubin_options
        return CompileJob(tool.name, tool.identify(config.images), source, *how)

    def describe(self, error: JitltoError) -> JitltoError:
        """Add to an error of its compile where it is, in template, interface and matrix."""
        rendered = self.rendered
        if isinstance(error, CompileError):
            own = {f"{rendered.key}.cu": rendered.text.encode(), **self.own_closure.headers}
            error = diagnostics.find_include(error, own, self.closure.headers, self.find_place) or error
            error = diagnostics.annotate(error, f"{rendered.key}.cu", rendered.origin, self.find_place)
            if error.code == "compile-options":
                option = re.search(r"-(std|arch|gpu-arch)", error.log)
                key = "options" if option is None else "std" if option[1] == "std" else "archs"
                given = self.config.architectures if key == "archs" else self.config.options
                error.what += f"; {key}: {', '.join(map(str, given))}"
                of_group = key == "options" and rendered.group.options
                error.place = rendered.declared(key) if of_group else find_place(rendered.family, ("family",), key)
            explain(error, self.config.interface_headers(), self.config.own_texts(rendered), self.place)
            self._name_value(error)
            return error
        error.place = error.place or rendered.origin
        return error

    def _name_value(self, error: CompileError) -> None:
        """Add to an error at a word, or a header, that is from the matrix its place there, and what may be meant."""
        header = diagnostics.find_missing_header(error.log)
        word = header or diagnostics.word_at_error(error.log) or ""
        near = suggest_file(word, self.config.own.directories) if header else ""
        for name, value in self.rendered.combination.items():
            is_named = value and value in header if header else word in re.findall(r"\w+", value)
            if is_named and isinstance(place := self.rendered.matrix.find(name, value), Location):
                error.notes += (Diagnostic.note(replace(place, about=""), f"has {name}={value}"),)
                known = {each for text in self.own_closure.headers.values() for each in words(text)} - {word}
                near = near or suggest(word, TYPE_NAMES) or suggest(word, known)
        error.hint = " ".join(filter(None, (near, error.hint))) or None


@lru_cache(maxsize=4096)
def _leading_includes(source: str) -> bytes:
    return split_leading_includes(source.encode())[0]
