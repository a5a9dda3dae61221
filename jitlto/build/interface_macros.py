"""The macros on which the meaning of an interface depends, and which are defined before a source includes it.

Under a macro that one template, header or group defines, an interface may declare another structure. Names and sizes of
symbols do not show that, so both sides of an interface must define the same.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping

from jitlto.build.cache.keys import CompileConfig
from jitlto.build.templates import RenderedSource
from jitlto.model.directives import all_directives, outline, read_directives
from jitlto.model.kernel_text import plain_text
from jitlto.model.versions import Architecture

_DEFINITION = re.compile(r"([A-Za-z_$][\w$]*)(.*)", re.S)
# Where an interface declares no type, the names and layouts of its symbols tell what it means.
_TYPE = re.compile(r"\b(?:struct|union|enum|typedef|using)\b|\bclass\s+\w+[^;<>,(){}]*(?::[^;(){}]*)?\{")
_ARCHITECTURE = re.compile(r"__CUDA_ARCH__\s*[<>=!*/+-]|[<>=*/+-]\s*__CUDA_ARCH__")
_STANDARD = re.compile(r"__cplusplus\s*[<>=!]|[<>=]\s*__cplusplus")
_COMPILER = re.compile(r"\b__(?:CUDACC_RTC|NVCC)__\b")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_BLANKS = re.compile(r"\s+")
_OPTION = re.compile(r"(?:-D|--define-macro[= ])\s*(\w+)(?:=(.*))?|(?:-U|--undefine-macro[= ])\s*(\w+)", re.S)


class InterfaceMacros:
    """Finds them, once for all sources with equal directives."""

    def __init__(self) -> None:
        self._found: dict[tuple[CompileConfig, bytes, tuple[str, ...]], frozenset[tuple[str, str]]] = {}
        self._closures: dict[tuple[CompileConfig, str], Mapping[str, bytes]] = {}

    def find(
        self, rendered: RenderedSource, config: CompileConfig, included: Iterable[str]
    ) -> frozenset[tuple[str, str]]:
        """Return an interface and a line for each macro of which it has the name and that is defined before it.

        What the options of the whole family define is left out. What the
        architecture, the standard and the compiler define are macros too.

        Args:
            rendered, config: A source.
            included: The headers that it includes in any case.
        """
        text, options = rendered.source.encode(), rendered.group.options
        like = outline(text)
        key = config, text if like is None else like, options
        if key not in self._found:
            headers = [header for header in map(os.path.normpath, config.interfaces) if header in set(included)]
            self._found[key] = frozenset(
                (header, line) for header in headers for line in self._lines(text, config, options, header)
            )
        return self._found[key]

    def _lines(self, text: bytes, config: CompileConfig, options: Iterable[str], header: str) -> Iterator[str]:
        own = self._closure(config, header)
        before, prefix = self._before(text, config, header)
        definitions = {
            *_defined_by(option for option in options if config.options.count(option) == 1),
            *(each for name, other in before.items() if own.get(name) != other for each in _definitions(other)),
            *_definitions(prefix),
        }
        may_ask = any(each in other for other in own.values() for each in (b"__CUDA", b"__cplusplus", b"__NVCC__"))
        plain = "\n".join(map(plain_text, own.values())) if definitions or may_ask else ""
        if _TYPE.search(plain):
            words = set(_WORD.findall(plain))
            # The interface may define the same itself.
            definitions -= {each for other in own.values() for each in _definitions(other)}
            yield from (line for name, line in definitions if name in words)
            if _ARCHITECTURE.search(plain):
                yield architecture_line(config.architectures)
            if _STANDARD.search(plain):
                yield from (option for option in config.options if option.startswith("--std="))
            if _COMPILER.search(plain):
                yield f'toolchain = "{config.toolchain.name}"'

    def _before(self, text: bytes, config: CompileConfig, header: str) -> tuple[Mapping[str, bytes], bytes]:
        """Return the family's headers that a source can read before an interface, and its own text until there."""
        normal, found = read_directives(text)
        for directive in found:
            for name in directive.names:
                written = os.path.normpath(name.written)
                if written == header or header in self._closure(config, written):
                    prefix = normal[: directive.start]
                    return config.own_closure(prefix.decode("utf-8", "surrogateescape")).headers, prefix
        return config.own_closure(text.decode()).headers, text

    def _closure(self, config: CompileConfig, header: str) -> Mapping[str, bytes]:
        key = config, header
        if key not in self._closures:
            self._closures[key] = config.own_closure(f'#include "{header}"\n').headers
        return self._closures[key]


def architecture_line(architectures: Iterable[Architecture]) -> str:
    """Return the line for ``__CUDA_ARCH__``."""
    return f"archs = {[str(each) for each in architectures]}".replace("'", '"')


def lines_of(header: str, found: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the lines of :meth:`InterfaceMacros.find` that concern one interface."""
    name = os.path.normpath(header)
    return frozenset(line for interface, line in found if interface == name)


def _definitions(text: bytes) -> Iterator[tuple[str, str]]:
    for word, rest in all_directives(text):
        if word in (b"define", b"undef") and (match := _DEFINITION.match(rest.decode("utf-8", "replace"))):
            yield match[1], f"#{word.decode()} {match[1]}{_BLANKS.sub(' ', match[2])}".rstrip()


def _defined_by(options: Iterable[str]) -> Iterator[tuple[str, str]]:
    for option in options:
        if match := _OPTION.match(option):
            name = match[1] or match[3]
            value = "1" if match[2] is None else match[2]
            yield name, f"#define {name} {value}".rstrip() if match[1] else f"#undef {name}"
