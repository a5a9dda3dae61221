"""Both sides of an interface for messages: how it declares a name, and how a source does, with the places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jitlto.base.errors import CompileError
from jitlto.base.mangling import base_name
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.interfaces import own_texts, path_of
from jitlto.compile.declarations import read_declarations
from jitlto.families.templates import RenderedSource
from jitlto.record.headers import interfaces_first

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone"
    r"|more than one instance of overloaded function"
    r"|(?:declaration|linkage specification) is incompatible with"
    r"|invalid redeclaration of"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)
_STATEMENT = re.compile(r"[^;{}]*[;{]")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.S | re.M)
_DECLARED = re.compile(r"(?!__\w+__\b)\b([A-Za-z_]\w*)\s*[(\[;=]")


class _Form(NamedTuple):
    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def head(self) -> str:
        return self.text.partition("=")[0].rstrip("{; ")

    @property
    def parameters(self) -> frozenset[tuple[str, str]]:
        return read_declarations(f"{self.head};".encode()).functions

    def declares(self, name: str) -> bool:
        is_instantiation = re.match(r"template\s+[^<\s]", self.text)
        return not is_instantiation and bool(re.search(rf"__(?:device|constant)__.*\b{name}\b", self.head, re.S))


def show_sides(symbol: str, rendered: RenderedSource, config: CompileConfig) -> str:
    """Return how the interfaces and a source declare a symbol, each with its place, for the end of a message.

    Of several overloads those are shown which the other side does not have.
    """
    declared, own = (
        [form for form in _forms(texts) if form.declares(base_name(symbol))]
        for texts in (_interfaces(config), own_texts(rendered, config))
    )
    shown = ""
    if one := _differing(declared, own):
        shown += f"; {path_of(config, one.file)}:{one.line} declares `{one.text}`"
    if other := _differing(own, declared):
        shown += f"; {other.place} has `{other.head}`"
    return shown


def explain(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> None:
    """Give the error of a source that contradicts an interface a hint that shows both."""
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None or error.hint:
        return
    named = set(re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0]))  # with the source's line
    own = [*_forms(own_texts(rendered, config))]
    for form in _forms(_interfaces(config)):
        name = _DECLARED.search(form.text)
        if name and name[1] in named and form.text.endswith(";"):
            other = next((f", but {each.place} has `{each.head}`" for each in own if each.declares(name[1])), "")
            error.hint = f"the interface {form.place} declares `{form.text}`{other}: give both the same types"
            return


def _interfaces(config: CompileConfig) -> Mapping[str, bytes]:
    return config.own_closure(interfaces_first(config.interfaces)).headers


def _differing(forms: Sequence[_Form], others: Sequence[_Form]) -> _Form | None:
    known = {form.parameters for form in others}
    return next((form for form in forms if form.parameters not in known), next(iter(forms), None))


def _forms(texts: Mapping[str, bytes]) -> Iterator[_Form]:
    """Yield each statement, up to its semicolon or opening brace."""
    for name, text in texts.items():
        code = _NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text.decode("utf-8", "replace"))
        for match in _STATEMENT.finditer(code):
            begin = match.start() + len(match[0]) - len(match[0].lstrip())
            yield _Form(name, code.count("\n", 0, begin) + 1, " ".join(match[0].split()))
