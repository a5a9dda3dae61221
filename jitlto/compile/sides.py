"""Both sides of an interface as notes: how it declares a name, and how a source does."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from jitlto.base.diagnostic import Diagnostic, Location
from jitlto.base.errors import CompileError
from jitlto.compile.heads import Head, heads
from jitlto.compile.tokens import TOKEN, WORD, line_at, plain_text

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone|more than one instance of overloaded function"
    r"|(?:declaration|linkage specification) is incompatible with|invalid redeclaration of"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)


#: Returns the place of a line of a text, which is given by its name.
Place: TypeAlias = Callable[[str, int], Location]


class _Form(NamedTuple):
    file: str
    line: int
    text: str  # up to its semicolon or opening brace
    name: str  # of the function or variable

    @property
    def head(self) -> str:
        return self.text.partition("=")[0].rstrip("{; ")


def explain(
    error: CompileError, interfaces: Mapping[str, bytes], own: Mapping[str, bytes], place: Place = Location
) -> None:
    """Give the error of a source that contradicts an interface notes that show both, and the place of its own."""
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None or error.hint:
        return
    names = {form.name for form in _forms(interfaces) if form.text.endswith(";")}
    said = re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0])  # with the source's line
    if name := next((name for name in said if name in names), None):
        error.hint, error.notes = "give both sides the same types", show_sides(name, interfaces, own, place)
        if len(error.notes) == 2 and isinstance(error.place, Location) and (path := error.notes[1].path):
            error.place = replace(error.place, path=path, line=error.notes[1].line)
            # Compilers say it in several ways, of each type in its own.
            error.what = "\n".join([f"defines {name} unlike its interface", *error.what.split("\n")[1:]])


def show_sides(
    name: str, interfaces: Mapping[str, bytes], own: Mapping[str, bytes], place: Place
) -> tuple[Diagnostic, ...]:
    """Return how both sides declare a name, each with its place.

    Of several overloads, one that the other side does not have is shown. The texts are given by their names.
    """
    mine, theirs = ([form for form in _forms(texts) if name == form.name] for texts in (interfaces, own))
    shown: list[Diagnostic] = []
    for forms, others, what in ((mine, theirs, "declares"), (theirs, mine, "has")):
        known = {form.head for form in others}
        if form := next((form for form in forms if form.head not in known), forms[0] if forms else None):
            text = f"{what} `{form.text if what == 'declares' else form.head}`"
            shown.append(Diagnostic.note(replace(place(form.file, form.line), about=""), text))
    return tuple(shown)


def _forms(texts: Mapping[str, bytes]) -> Iterator[_Form]:
    """Yield what texts declare for devices, but for instances of templates."""
    for file, text in texts.items():
        plain = plain_text(text)
        spans = [match.span() for match in TOKEN.finditer(plain)]
        for head in heads([plain[begin:end] for begin, end in spans]):
            if not {"__device__", "__constant__"}.isdisjoint(head.tokens) and head.tokens[0] != "template":
                begin, end = spans[head.begin][0], spans[head.end][1]
                yield _Form(file, line_at(plain, begin), " ".join(plain[begin:end].split()), _name(head))


def _name(head: Head) -> str:
    """Return the name of a function, or else the last one before the brackets or the value of a variable."""
    if head.function:
        return head.function[0]
    words = takewhile(lambda token: token not in ("[", "="), head.outer)
    return next((word for word in reversed(list(words)) if WORD.match(word)), "")
