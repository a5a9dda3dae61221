"""Both sides of an interface as notes: how it declares a name, and how a source does."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from jitlto.base.diagnostic import Diagnostic, Location
from jitlto.base.errors import CompileError
from jitlto.compile.tokens import line_at, plain_text

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone|more than one instance of overloaded function"
    r"|(?:declaration|linkage specification) is incompatible with|invalid redeclaration of"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)
_DIRECTIVE = re.compile(r"^[^\S\n]*#[^\n]*", re.M)

#: Returns the place of a line of a text, which is given by its name.
Place: TypeAlias = Callable[[str, int], Location]


def explain(
    error: CompileError, interfaces: Mapping[str, bytes], own: Mapping[str, bytes], place: Place = Location
) -> None:
    """Give the error of a source that contradicts an interface notes that show both, and the place of its own."""
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None or error.hint:
        return
    said = re.findall(r"\w+", error.log[contradiction.start() :].partition("\n\n")[0])  # with the source's line
    declared = (each for each in said if any(text.endswith(";") for *_, text in _forms(each, interfaces)))
    if name := next(declared, None):
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
    mine, theirs = (list(_forms(name, texts)) for texts in (interfaces, own))
    shown: list[Diagnostic] = []
    for forms, others, what in ((mine, theirs, "declares"), (theirs, mine, "has")):
        known = {_head(text) for *_, text in others}
        for file, line, text in sorted(forms, key=lambda form: _head(form[2]) in known)[:1]:
            said = text if what == "declares" else _head(text)
            shown.append(Diagnostic.note(replace(place(file, line), about=""), f"{what} `{said}`"))
    return tuple(shown)


def _forms(name: str, texts: Mapping[str, bytes]) -> Iterator[tuple[str, int, str]]:
    """Yield what texts declare for devices by a name: the file, the line, and the text to its semicolon or brace."""
    form = re.compile(rf"(?:(?<=[;{{}}])|\A)\s*([^;{{}}]*\b{re.escape(name)}\s*(?:[(\[=][^;{{}}]*)?[;{{])")
    for file, text in texts.items():
        plain = _DIRECTIVE.sub(lambda match: re.sub(r"[^\v]", "", match[0]), plain_text(text))  # with its lines
        for match in form.finditer(plain):
            if re.search("__(?:device|constant)__", match[1]):
                yield file, line_at(plain, match.start(1)), " ".join(match[1].split())


def _head(form: str) -> str:
    return form.partition("=")[0].rstrip("{; ")
