"""Both sides of an interface for messages: how it declares a name, and how a source does, with the places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    file: str
    line: int
    text: str  # up to its semicolon or opening brace
    names: list[str]  # the words outside of parentheses

    @property
    def head(self) -> str:
        return self.text.partition("=")[0].rstrip("{; ")


def show_sides(symbol: str, rendered: RenderedSource, config: CompileConfig) -> str:
    """Return how the interfaces and a source declare a symbol, each with its place, for the end of a message.

    Of several overloads one is shown that the other side does not have.
    """
    name, shown = base_name(symbol), ""
    texts = _interfaces(config), own_texts(rendered, config)
    declared, own = ([form for form in _forms(each) if name in form.names] for each in texts)
    for forms, others, what in ((declared, own, "declares"), (own, declared, "has")):
        known = {form.head for form in others}
        if form := next((form for form in forms if form.head not in known), forms[0] if forms else None):
            place = path_of(config, form.file) if what == "declares" else form.file
            shown += f"; {place}:{form.line} {what} `{form.text if what == 'declares' else form.head}`"
    return shown


def explain(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> None:
    """Give the error of a source that contradicts an interface a hint that shows both."""
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None or error.hint:
        return
    declared, own = ([*_forms(each)] for each in (_interfaces(config), own_texts(rendered, config)))
    for name in re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0]):  # with the source's line
        if form := next((form for form in declared if name in form.names and form.text.endswith(";")), None):
            found = (f", but {each.file}:{each.line} has `{each.head}`" for each in own if name in each.names)
            hint = f"the interface {form.file}:{form.line} declares `{form.text}`{next(found, '')}"
            error.hint = f"{hint}: give both the same types"
            return


def _interfaces(config: CompileConfig) -> Mapping[str, bytes]:
    return config.own_closure(interfaces_first(config.interfaces)).headers


def _forms(texts: Mapping[str, bytes]) -> Iterator[_Form]:
    """Yield what some texts declare for devices, but for instances of templates."""
    for file, text in texts.items():
        plain = plain_text(text)
        spans = [match.span() for match in TOKEN.finditer(plain)]
        for head in heads([plain[begin:end] for begin, end in spans]):
            if not {"__device__", "__constant__"}.isdisjoint(head.tokens) and head.tokens[0] != "template":
                begin, end = spans[head.begin][0], spans[head.end][1]
                yield _Form(file, line_at(plain, begin), " ".join(plain[begin:end].split()), head.outer)
