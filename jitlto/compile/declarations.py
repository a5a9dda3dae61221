"""What the front end does not prove of an interface, read from the tokens of headers and sources.

Types that are declared and never defined, templates that are specialised, macros that are defined.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jitlto.base.cached import cached_property
from jitlto.compile.heads import Head, heads
from jitlto.compile.includes import all_directives
from jitlto.compile.tokens import KEYWORDS, TOKEN, WORD, parameter_name, plain_text, skip, split_parameters

_INCLUDE = re.compile(r"^[^\S\n]*(?:#|%:)\s*(?:include|import|include_next)\b[^\n]*", re.M)
_WORDS = re.compile(r"[A-Za-z_$][\w$]*")
_MACRO = re.compile(r"([A-Za-z_$][\w$]*)(.*)", re.S)
_NAME = re.compile(r"(?:::)?[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
_MENTIONED = re.compile(r"\b(?:struct|class|union|enum) ((?:[A-Za-z_$][\w$]* :: )*[A-Za-z_$][\w$]*)(?! ?[\w$(])")
_CALLED = re.compile(r"(?<=[(,<\[=!?:] )[A-Za-z_$][\w$]*(?= \()")
_VARIABLE = re.compile(r"[^(=]*[\w$>*&] ([A-Za-z_$][\w$]*) (?:=.*)?")
_MEMORY = frozenset(("__device__", "__managed__"))  # that kernels may write


class Special(NamedTuple):
    """A specialisation of a class, a variable or a constant function."""

    name: str
    arguments: str
    is_class: bool


class Declarations:
    """What one header or source declares: types by name with namespaces, all else by name alone."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._heads = [*heads(TOKEN.findall(plain_text(text)))]

    def _types(self, *, has_body: bool, is_template: bool | None = None) -> set[str]:
        return {
            head.qualify(named["name"])
            for head in self._heads
            if (named := head.class_head) and named["name"] and not named["arguments"] and head.has_body == has_body
            if head.tokens[0] != "friend" and is_template in (None, bool(head.prefixes))
        }

    @cached_property
    def defined(self) -> set[str]:
        """Classes and enums, and templates of those, with a definition here."""
        return self._types(has_body=True)

    @cached_property
    def templates(self) -> set[str]:
        """Templates of classes that are only declared."""
        return self._types(has_body=False, is_template=True)

    @cached_property
    def declared(self) -> set[str]:
        """Classes and enums that are only declared, perhaps where a type is written."""
        texts = (h.text for h in self._heads if not (named := h.class_head) or not named["name"])
        mentioned = {name.replace(" ", "") for text in texts for name in _MENTIONED.findall(text)}
        return mentioned | self._types(has_body=False, is_template=False)

    @cached_property
    def variables(self) -> set[str]:
        """Templates of variables."""
        found = ((h, _VARIABLE.fullmatch(h.text)) for h in self._heads if h.prefixes and h.class_head is None)
        return {head.qualify(match[1]) for head, match in found if match}

    @cached_property
    def special(self) -> set[Special]:
        """Specialisations, with the names that macros stand for."""
        renamed = {name: _last(body) for name, body in _replacements(self._text) if _NAME.fullmatch(body)}
        found = ((each, _last(each.name)) for head in self._heads for each in _special(head))
        return {one._replace(name=one.name.removesuffix(last) + renamed.get(last, last)) for one, last in found}

    @cached_property
    def special_macros(self) -> set[tuple[str, str]]:
        """Macros that specialise a template, each with that."""
        texts = ((name, heads(TOKEN.findall(body + "{ }"))) for name, body in _replacements(self._text) if "<" in body)
        return {(macro, _last(each.name)) for macro, found in texts for head in found for each in _special(head)}

    @cached_property
    def functions(self) -> set[tuple[str, tuple[str, ...]]]:
        """Functions outside of classes, with their parameters: without names, and templates' own as numbers."""
        found = ((head, head.function) for head in self._heads if not head.scope.in_class)
        return {(function[0], tuple(_spell(head, function[1]))) for head, function in found if function}

    @cached_property
    def kernels(self) -> list[tuple[str, tuple[str, ...]]]:
        """Kernels that are defined here and seen elsewhere: the name without namespaces, and the parameters' tokens."""
        found = (
            head.function
            for head in self._heads
            if "__global__" in head.tokens and head.has_body and not (head.scope.in_class or head.scope.is_internal)
        )
        return [(name, tuple(inner)) for name, inner in filter(None, found)]

    @cached_property
    def called(self) -> set[str]:
        """Functions that declarations of templates call, outside of bodies."""
        found = (head for head in self._heads if head.prefixes or head.scope.in_template)
        texts = ("".join(f"( {' '.join(prefix)} ) " for prefix in head.prefixes) + head.text for head in found)
        return {name for text in texts for name in _CALLED.findall(text)} - KEYWORDS

    @cached_property
    def internal(self) -> set[str]:
        """Variables of devices that may change, and of which each source has its own."""
        return {name for head in self._heads for name in _internal(head)}


read_declarations = lru_cache(maxsize=4096)(Declarations)


@lru_cache(maxsize=4096)
def words(text: bytes) -> frozenset[str]:
    """Return the words of a text outside of comments, strings and the names of headers."""
    return frozenset(_WORDS.findall(_INCLUDE.sub("", plain_text(text))))


@lru_cache(maxsize=4096)
def macro_definitions(text: bytes) -> tuple[tuple[str, str | None], ...]:
    """Return the macros that a text defines, in order, with what is behind the name; None where it undefines one."""
    found = ((word, _MACRO.match(rest)) for word, rest in all_directives(text) if word in ("define", "undef"))
    return tuple((m[1], re.sub(r"\s+", " ", m[2]) if word == "define" else None) for word, m in found if m)


def macros(text: bytes) -> set[str]:
    """Return the macros that a text defines or undefines."""
    return {name for name, _ in macro_definitions(text)}


def defined_macros(text: bytes) -> set[str]:
    """Return the macros that a text defines."""
    return {name for name, body in macro_definitions(text) if body is not None}


def line_of(text: bytes, name: str, *, is_macro: bool = False) -> int:
    """Return the line of a name in a text: of its first mention, or where it is defined or undefined as a macro."""
    before = rb"(?:define|undef)[ \t]+" if is_macro else rb"(?<!\w)"
    match = re.search(before + re.escape(_last(name)).encode() + rb"(?!\w)", text)
    return text.count(b"\n", 0, match.start()) + 1 if match else 1


def _replacements(text: bytes) -> Iterator[tuple[str, str]]:
    """Yield what stands in place of each macro that a text defines."""
    return ((name, re.sub(r"^\([^)]*\)", "", body).strip()) for name, body in macro_definitions(text) if body)


def _special(head: Head) -> Iterator[Special]:
    """Yield what a head specialises: a class, or a variable or constant function."""
    named, tokens = head.class_head, head.tokens
    if named and named["name"]:
        if named["arguments"] and head.has_body:
            yield Special(head.qualify(_last(named["name"])), named["arguments"].strip(), is_class=True)
        return
    position = 0 if head.prefixes else len(tokens)
    while position < len(tokens) and tokens[position] not in ("(", "="):
        end = skip(tokens, position) if tokens[position] == "<" else position + 1
        if tokens[position] == "<" and position and WORD.match(tokens[position - 1]):
            is_member = tokens[end : end + 1] == ["::"]
            follows = tokens[end + 2 * is_member :][:1]
            constants = {"constexpr"} if follows == ["("] else {"const", "constexpr"}
            is_constant = not constants.isdisjoint(tokens[:position])
            if follows in ([], ["="], ["("]) and (is_constant or not (is_member or follows == ["("])):
                yield Special(head.qualify(tokens[position - 1]), " ".join(tokens[position:end]), is_class=False)
        position = end


def _spell(head: Head, parameters: Sequence[str]) -> Iterator[str]:
    own = [token for prefix in head.prefixes for token in prefix if WORD.match(token)]
    for part in split_parameters(parameters):
        name = parameter_name(part)
        yield from (str(own.index(token)) if token in own else token for token in part if token != name)
        yield ","


def _internal(head: Head) -> Iterator[str]:
    is_constant = "constexpr" in head.tokens or ("const" in head.tokens and "*" not in head.tokens)
    is_own = "static" in head.tokens or head.scope.is_internal
    if is_own and not (is_constant or head.scope.in_class or head.class_head or head.function):
        for part in split_parameters(head.tokens) if not _MEMORY.isdisjoint(head.tokens) else ():
            names = part[: part.index("[")] if "[" in part else part
            yield from [token for token in names if WORD.match(token)][-1:]


def undefined_types(texts: Iterable[bytes]) -> set[str]:
    """Return the classes and enums that some headers declare and none of them defines."""
    texts = list(texts)
    every = [read_declarations(text) for text in texts]
    plain = "\n".join(map(plain_text, texts))
    defined = {_last(name) for each in every for name in each.defined}
    # A primary template need not be defined where specialisations are, or where nothing uses it.
    known = defined | {_last(special.name) for each in every for special in each.special}
    templates = {name for each in every for name in each.templates if _last(name) not in known}
    used = {name for name in templates if re.search(rf"\b{_last(name)}\s*<", plain)}
    return {name for each in every for name in each.declared if _last(name) not in defined} | used


class Conflict(NamedTuple):
    """Something in a text that would change what an interface means, or look behind it."""

    kind: str  # macro, undef, specialisation, overload or definition
    name: str
    header: str  # of the interfaces

    def line_in(self, text: bytes) -> int:
        """Return its line in its text."""
        return line_of(text, self.name, is_macro=self.kind in ("macro", "undef"))

    def mention(self, headers: Mapping[str, bytes]) -> str:
        """Return the place of the first mention in the interfaces, as compilers write it."""
        return f"{self.header}:{line_of(headers[self.header], self.name)}"


def find_conflicts(text: bytes, headers: Mapping[str, bytes]) -> Iterator[Conflict]:
    """Yield what a source, or a header of its own, must not do behind the interfaces, whose headers are given."""
    own, others = read_declarations(text), [read_declarations(other) for other in headers.values()]
    mentioned = frozenset(word for other in headers.values() for word in words(other))
    ours = {_last(name) for name in own.defined} - mentioned  # types that mean nothing to others
    called = {name for other in others for name in other.called}
    overloads = own.functions.difference(*(other.functions for other in others))
    defined = defined_macros(text)
    open_types = undefined_types(headers.values()) if own.defined else ()
    for kind, names in (
        ("macro", defined & mentioned),
        ("undef", (macros(text) - defined) & mentioned),
        ("specialisation", _specialised(text, own, headers.values(), ours) & mentioned),
        ("overload", {name for name, types in overloads if name in called and ours.isdisjoint(types)}),
        ("definition", {name for name in own.defined if any(_may_be(name, each) for each in open_types)}),
    ):
        for name in sorted(names):
            yield Conflict(kind, name, next(h for h, other in headers.items() if _last(name) in words(other)))


def _specialised(text: bytes, own: Declarations, headers: Iterable[bytes], ours: set[str]) -> set[str]:
    """Return the templates of others that a text specialises, but for types of its own alone."""
    others = [read_declarations(other) for other in headers]
    # What is only declared there gives a type no meaning that a specialisation could change.
    meant = {_last(name) for other in others for name in other.defined}
    meant |= {_last(special.name) for other in others for special in other.special}
    primaries = own.templates | own.defined | own.variables
    found = {
        _last(special.name)
        for special in own.special
        if (_last(special.name) in meant or not special.is_class)
        and ours.isdisjoint(_WORDS.findall(special.arguments))
        and special.name not in primaries
    }
    special = [each for one in (own, *others) for each in one.special_macros]
    through = {template for macro, template in special if macro in words(text)}
    calls = "|".join(re.escape(macro) for macro, _ in special)
    uses = re.findall(rf"\b(?:{calls})\s*\(([^()]*)\)", plain_text(text)) if calls else ()
    return found | ((through | {word for arguments in uses for word in _WORDS.findall(arguments)}) & meant)


def _may_be(name: str, other: str) -> bool:
    """Return whether two names of types may mean one: macros can open namespaces that the text does not show."""
    return _last(name) == _last(other) and (name == other or "::" not in name or "::" not in other)


def _last(name: str) -> str:
    return name.rpartition("::")[2]
