"""Both sides of an interface for messages: how it declares a name, and how a source does, with the places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jitlto.base.errors import CompileError
from jitlto.base.mangling import base_name
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.interfaces import own_texts, path_of
from jitlto.compile.heads import heads
from jitlto.compile.tokens import TOKEN, line_at, plain_text
from jitlto.families.templates import RenderedSource
from jitlto.record.headers import interfaces_first

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone|more than one instance of overloaded function"
    r"|(?:declaration|linkage specification) is incompatible with|invalid redeclaration of"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)


class _Form(NamedTuple):
    place: str
    text: str  # up to its semicolon or opening brace
    names: list[str]  # the words outside of parentheses

    @property
    def head(self) -> str:
        return self.text.partition("=")[0].rstrip("{; ")


def show_sides(symbol: str, rendered: RenderedSource, config: CompileConfig) -> str:
    """Return how the interfaces and a source declare a symbol, each with its place, for the end of a message."""
    return _show(base_name(symbol), *_both(rendered, config))


def explain(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> None:
    """Give the error of a source that contradicts an interface a hint that shows both."""
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None or error.hint:
        return
    declared, own = _both(rendered, config)
    names = {name for form in declared if form.text.endswith(";") for name in form.names}
    said = re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0])  # with the source's line
    if name := next((name for name in said if name in names), None):
        error.hint = f"give both sides the same types{_show(name, declared, own)}"


def _show(name: str, declared: Sequence[_Form], own: Sequence[_Form]) -> str:
    """Describe how both sides declare a name; of several overloads, one that the other side does not have."""
    mine, theirs = ([form for form in forms if name in form.names] for forms in (declared, own))
    shown = ""
    for forms, others, what in ((mine, theirs, "declares"), (theirs, mine, "has")):
        known = {form.head for form in others}
        if form := next((form for form in forms if form.head not in known), forms[0] if forms else None):
            shown += f"; {form.place} {what} `{form.text if what == 'declares' else form.head}`"
    return shown


def _both(rendered: RenderedSource, config: CompileConfig) -> tuple[list[_Form], list[_Form]]:
    interfaces = config.own_closure(interfaces_first(config.interfaces)).headers
    declared = [form for name, text in interfaces.items() for form in _forms(path_of(config, name), text)]
    return declared, [form for name, text in own_texts(rendered, config).items() for form in _forms(name, text)]


def _forms(file: str, text: bytes) -> Iterator[_Form]:
    """Yield what a text declares for devices, but for instances of templates."""
    plain = plain_text(text)
    spans = [match.span() for match in TOKEN.finditer(plain)]
    for head in heads([plain[begin:end] for begin, end in spans]):
        if not {"__device__", "__constant__"}.isdisjoint(head.tokens) and head.tokens[0] != "template":
            begin, end = spans[head.begin][0], spans[head.end][1]
            yield _Form(f"{file}:{line_at(plain, begin)}", " ".join(plain[begin:end].split()), head.outer)
