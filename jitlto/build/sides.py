"""Both sides of an interface for messages: how it declares a name, and how a source does, with the places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jitlto.base.errors import CompileError
from jitlto.base.mangling import base_name
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.interfaces import own_texts, path_of
from jitlto.families.templates import RenderedSource
from jitlto.record.headers import interfaces_first

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone|more than one instance of overloaded function"
    r"|(?:declaration|linkage specification) is incompatible with|invalid redeclaration of"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)
_STATEMENT = re.compile(r"[^;{}]*[;{]")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.S | re.M)
_INSTANTIATION = re.compile(r"template\s+[^<\s]")


class _Form(NamedTuple):
    file: str
    line: int
    text: str  # up to its semicolon or opening brace

    @property
    def head(self) -> str:
        return self.text.partition("=")[0].rstrip("{; ")


def show_sides(symbol: str, rendered: RenderedSource, config: CompileConfig) -> str:
    """Return how the interfaces and a source declare a symbol, each with its place, for the end of a message.

    Of several overloads one is shown that the other side does not have.
    """
    name = base_name(symbol)
    declared, own = ([*_forms(texts, name)] for texts in (_interfaces(config), own_texts(rendered, config)))
    shown = ""
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
    for name in re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0]):  # with the source's line
        if form := next((form for form in _forms(_interfaces(config), name) if form.text.endswith(";")), None):
            others = _forms(own_texts(rendered, config), name)
            other = next((f", but {each.file}:{each.line} has `{each.head}`" for each in others), "")
            error.hint = (
                f"the interface {form.file}:{form.line} declares `{form.text}`{other}: give both the same types"
            )
            return


def _interfaces(config: CompileConfig) -> Mapping[str, bytes]:
    return config.own_closure(interfaces_first(config.interfaces)).headers


def _forms(texts: Mapping[str, bytes], name: str) -> Iterator[_Form]:
    """Yield what declares a name for devices."""
    declares = re.compile(rf"__(?:device|constant)__.*(?<!\w){re.escape(name)}\s*(?:[(\[<;=]|\Z)", re.S)
    for file, text in texts.items():
        code = _NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text.decode("utf-8", "replace"))
        for match in _STATEMENT.finditer(code):
            begin = match.start() + len(match[0]) - len(match[0].lstrip())
            form = _Form(file, code.count("\n", 0, begin) + 1, " ".join(match[0].split()))
            if declares.search(form.head) and not _INSTANTIATION.match(form.text):
                yield form
