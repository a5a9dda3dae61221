"""What the front end does not prove of an interface, read from the tokens of headers and sources.

Types that are declared and never defined, templates that are specialised, macros that are defined. Like
:mod:`jitlto.compile.tokens` a reading of tokens and no parser: bodies of functions are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jitlto.compile.includes import all_directives
from jitlto.compile.tokens import (
    KEYWORDS,
    TOKEN,
    WORD,
    follow_condition,
    parameter_name,
    plain_text,
    skip,
    split_parameters,
)

_INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include|import|include_next)\b[^\n]*", re.M)
_WORDS = re.compile(r"[A-Za-z_$][\w$]*")
_DEFINE = re.compile(r"([A-Za-z_$][\w$]*)(?:\([^)]*\))?\s*(.*)", re.S)
_NAME = re.compile(r"(?:::)?[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
# The head of a class or enum, its tokens separated by blanks: perhaps with macros and attributes, and of a base.
_ATTRIBUTE = r"(?:alignas|__align__|__attribute__|__declspec) \((?: [^()]+| \( [^()]* \))* \) "
_CLASS = re.compile(
    r"(?:(?:friend|extern|static|inline|constexpr|const|volatile|__\w+|[A-Z][A-Z0-9_]+) )*"
    r"(?:enum class|enum struct|enum|struct|class|union) "
    rf"(?:{_ATTRIBUTE}|\[ \[ [^\]]* \] \] |[A-Z_][A-Z0-9_]+ (?=\w|:))*"
    r"(?P<name>(?::: )?[A-Za-z_$][\w$]*(?: :: [A-Za-z_$][\w$]*)* )?"
    r"(?P<arguments><.*> (?::: [A-Za-z_$][\w$]* )*)?(?:final )?(?:: .*)?"
)
_MENTIONED = re.compile(r"\b(?:struct|class|union|enum) ((?:[A-Za-z_$][\w$]* :: )*[A-Za-z_$][\w$]*)(?! ?[\w$(])")
_CALLED = re.compile(r"(?<=[(,<\[=!?:] )[A-Za-z_$][\w$]*(?= \()")
_FUNCTION = re.compile(r"[^(=]*[\w$>*&] (?P<name>[A-Za-z_$][\w$]*) \(")
_VARIABLE = re.compile(r"[^(=]*[\w$>*&] ([A-Za-z_$][\w$]*) (?:=.*)?")
_MEMORY = frozenset(("__device__", "__managed__"))  # that kernels may write


class Declarations(NamedTuple):
    """What one header or source declares: types by name with namespaces, all else by name alone."""

    declared: frozenset[str] = frozenset()  # classes and enums without a definition here
    templates: frozenset[str] = frozenset()  # class templates, the same
    defined: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()  # variable templates
    special: frozenset[Special] = frozenset()
    functions: frozenset[tuple[str, str]] = frozenset()  # in namespaces, with their parameters
    called: frozenset[str] = frozenset()  # by declarations of templates, outside of bodies
    special_macros: frozenset[tuple[str, str]] = frozenset()  # macros that specialise a template, and the template
    internal: frozenset[str] = frozenset()  # variables of devices that may change, of which each source has its own


class Special(NamedTuple):
    """A specialisation of a class, a variable or a constant function."""

    scope: str  # the namespaces around it
    name: str
    arguments: str
    is_class: bool


class Head(NamedTuple):
    """A declaration up to its semicolon or opening brace."""

    scope: str  # the namespaces and classes around it
    prefixes: list[list[str]]  # what stands in the brackets of ``template <...>``
    tokens: list[str]  # behind those
    end: str  # a semicolon or a brace
    in_class: bool
    in_template: bool
    is_internal: bool  # in a namespace without a name

    @property
    def text(self) -> str:
        """Its tokens, each followed by a blank."""
        return "".join(f"{token} " for token in self.tokens)

    @property
    def class_head(self) -> re.Match[str] | None:
        """What it says if it declares or defines a class or an enum."""
        return None if "typedef" in self.tokens else _CLASS.fullmatch(self.text)


class _Scope(NamedTuple):
    name: str = ""  # empty for one without
    is_class: bool = False
    is_template: bool = False
    is_internal: bool = False


@lru_cache(maxsize=4096)
def words(text: bytes) -> frozenset[str]:
    """Return the words of a text outside of comments, strings and the names of headers."""
    return frozenset(_WORDS.findall(_INCLUDE.sub("", plain_text(text))))


@lru_cache(maxsize=4096)
def macros(text: bytes, kinds: tuple[str, ...] = ("define", "undef")) -> frozenset[str]:
    """Return the macros that a text defines or undefines."""
    found = (_WORDS.match(rest) for word, rest in all_directives(text) if word in kinds)
    return frozenset(match[0] for match in found if match)


def line_of(text: bytes, name: str, *, is_macro: bool = False) -> int:
    """Return the line of a name in a text: of its first mention, or where it is defined or undefined as a macro."""
    before = rb"(?:define|undef)[ \t]+" if is_macro else rb"(?<!\w)"
    match = re.search(before + re.escape(_last(name)).encode() + rb"(?!\w)", text)
    return text.count(b"\n", 0, match.start()) + 1 if match else 1


@lru_cache(maxsize=4096)
def read_declarations(text: bytes) -> Declarations:
    """Read what a text declares."""
    found = list(heads(plain_text(text)))
    renamed = _renamed(text)
    special = {each._replace(name=renamed.get(each.name, each.name)) for head in found for each in _special(head)}
    declared: set[str] = set()
    templates: set[str] = set()
    defined: set[str] = set()
    for head in found:
        named = head.class_head
        if named is None or not named["name"]:
            declared.update(each.replace(" ", "") for each in _MENTIONED.findall(head.text))
        elif not named["arguments"]:
            kind = defined if head.end == "{" else templates if head.prefixes else declared
            if head.tokens[0] != "friend":
                kind.add(_qualify(head.scope, named["name"].replace(" ", "")))
    return Declarations(
        frozenset(declared), frozenset(templates), frozenset(defined),
        frozenset(name for head in found if head.prefixes for name in _variables(head)),
        frozenset(special),
        frozenset(function for head in found if not head.in_class for function in _functions(head)),
        frozenset(name for head in found if head.prefixes or head.in_template for name in _called(head)),
        frozenset(_special_macros(text)),
        frozenset(name for head in found for name in _internal(head)),
    )  # fmt: skip


def heads(text: str) -> Iterator[Head]:
    """Yield the declarations of a plain text outside of functions, each up to its semicolon or opening brace."""
    tokens = TOKEN.findall(text)
    scopes: list[_Scope | None] = []  # None for the body of a function, or a value
    branches: list[list[_Scope | None]] = []
    head: list[str] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        end = position + 1
        if token.lstrip().startswith(("#", "%:")):
            follow_condition(token, scopes, branches)
        elif token in ("{", ";", "}"):
            around = [scope for scope in scopes if scope is not None]
            found = _head(head, token, around) if len(around) == len(scopes) else None
            if token == "{":
                scopes.append(_opened(found) if found else None)
            elif token == "}":
                found = None
                del scopes[-1:]
            if head and found is not None:
                yield found
            head = []
        elif token == ":" and head in (["public"], ["protected"], ["private"]):
            head = []
        elif token == "(":
            end = skip(tokens, position)
            head += tokens[position:end]
        else:
            head.append(token)
        position = end


def _head(head: Sequence[str], end: str, scopes: Sequence[_Scope]) -> Head:
    rest, prefixes = list(head), []
    while rest[:2] == ["template", "<"]:
        behind = skip(rest, 1)
        prefixes.append(rest[2 : behind - 1])
        rest = rest[behind:]
    return Head(
        "::".join(each.name for each in scopes if each.name), prefixes, rest, end,
        any(each.is_class for each in scopes), any(each.is_template for each in scopes),
        any(each.is_internal for each in scopes),
    )  # fmt: skip


def _opened(head: Head) -> _Scope | None:
    """Return the scope that the brace behind a head opens; None for a function's body or a value."""
    if "namespace" in head.tokens:
        name = "".join(t for t in head.tokens[head.tokens.index("namespace") + 1 :] if t == "::" or WORD.match(t))
        return _Scope(name, is_internal=not name)
    if head.tokens[-2:] == ["extern", '"C"']:
        return _Scope()
    if (found := _CLASS.fullmatch(head.text)) is None and "typedef" in head.tokens:
        found = _CLASS.fullmatch(head.text.replace("typedef ", ""))
    if found is None:
        return None
    name = (found["name"] or "").replace(" ", "")
    return _Scope(name, is_class=True, is_template=bool(head.prefixes) or head.in_template)


def _special(head: Head) -> Iterator[Special]:
    """Yield what a head specialises."""
    found = head.class_head
    if found is not None and found["name"]:
        if found["arguments"] and head.end == "{":
            yield Special(head.scope, _last(found["name"].replace(" ", "")), found["arguments"].strip(), is_class=True)
    elif head.prefixes:
        yield from _special_values(head)


def _special_values(head: Head) -> Iterator[Special]:
    """Yield the variable or the constant function that a head specialises."""
    tokens, position = head.tokens, 0
    while position < len(tokens) and tokens[position] not in ("(", "=", "{"):
        end = skip(tokens, position) if tokens[position] == "<" else position + 1
        if tokens[position] == "<" and position and WORD.match(tokens[position - 1]):
            is_member = tokens[end : end + 1] == ["::"]
            follows = tokens[end + 2 * is_member :][:1]
            constants = {"constexpr"} if follows == ["("] else {"const", "constexpr"}
            is_value = follows in ([], ["="], ["{"], ["("])
            if is_value and ((follows != ["("] and not is_member) or not constants.isdisjoint(tokens[:position])):
                yield Special(head.scope, tokens[position - 1], " ".join(tokens[position:end]), is_class=False)
        position = end


def _variables(head: Head) -> Iterator[str]:
    """Yield the variable template that a head declares."""
    if head.class_head is None and (match := _VARIABLE.fullmatch(head.text)):
        yield _qualify(head.scope, match[1])


def _functions(head: Head) -> Iterator[tuple[str, str]]:
    """Yield the function that a head declares, with its parameters in one spelling.

    They have neither their names nor defaults, and templates' own are numbers.
    """
    match = _FUNCTION.match(head.text)
    if match is None or match["name"] in KEYWORDS or match["name"].startswith("__"):
        return
    start = head.text[: match.end()].count(" ")
    parts = split_parameters(head.tokens[start + 1 : skip(head.tokens, start) - 1])
    for part in parts:
        if name := parameter_name(part):
            part.remove(name)
    own = [token for prefix in head.prefixes for token in prefix if WORD.match(token)]
    numbers = {token: str(number) for number, token in enumerate(own)}
    yield match["name"], ", ".join(" ".join(numbers.get(token, token) for token in part) for part in parts)


def _called(head: Head) -> set[str]:
    text = "".join(f"( {' '.join(prefix)} ) " for prefix in head.prefixes) + head.text
    return set(_CALLED.findall(text)) - KEYWORDS


def _internal(head: Head) -> Iterator[str]:
    tokens = [] if head.in_class else head.tokens
    is_constant = "constexpr" in tokens or ("const" in tokens and "*" not in tokens)
    if is_constant or _MEMORY.isdisjoint(tokens) or not ("static" in tokens or head.is_internal):
        return
    if head.class_head is None and not _FUNCTION.match(head.text):
        for part in split_parameters(tokens):
            yield next(
                token for token in reversed(part[: part.index("[")] if "[" in part else part) if WORD.match(token)
            )


def _renamed(text: bytes) -> dict[str, str]:
    """Return the macros that stand for another name, with that."""
    found = (_DEFINE.fullmatch(rest) for word, rest in all_directives(text) if word == "define")
    return {each[1]: _last(each[2]) for each in found if each and _NAME.fullmatch(each[2])}


def _special_macros(text: bytes) -> Iterator[tuple[str, str]]:
    """Yield the macros of a text that specialise a template, each with it."""
    for word, rest in all_directives(text):
        match = _DEFINE.fullmatch(rest) if word == "define" and "<" in rest else None
        if match is not None:
            for head in heads(match[2] + "{ }"):
                yield from ((match[1], each.name) for each in _special(head))


def undefined_types(texts: Iterable[bytes]) -> frozenset[str]:
    """Return the classes and enums that some headers declare and none of them defines."""
    texts = list(texts)
    every = [read_declarations(text) for text in texts]
    plain = "\n".join(map(plain_text, texts))
    defined = {_last(name) for each in every for name in each.defined}
    # A primary template need not be defined where specialisations are, or where nothing uses it.
    known = defined | {special.name for each in every for special in each.special}
    templates = {name for each in every for name in each.templates if _last(name) not in known}
    used = {name for name in templates if re.search(rf"\b{_last(name)}\s*<", plain)}
    return frozenset({n for each in every for n in each.declared if _last(n) not in defined} | used)


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
    overloads = own.functions.difference(*(other.functions for other in others))
    defined = macros(text, ("define",))
    for kind, names in (
        ("macro", defined),
        ("undef", macros(text) - defined),
        ("specialisation", _specialised(text, own, headers.values(), ours)),
        ("overload", {name for name, types in overloads if ours.isdisjoint(_WORDS.findall(types))}
            & {name for other in others for name in other.called}),
    ):  # fmt: skip
        for name in sorted(names & mentioned):
            yield Conflict(kind, name, next(header for header, other in headers.items() if name in words(other)))
    open_types = undefined_types(headers.values()) if own.defined else ()
    for name in sorted(name for name in own.defined if any(_may_be(name, each) for each in open_types)):
        yield Conflict("definition", name, next(h for h, other in headers.items() if _last(name) in words(other)))


def _specialised(text: bytes, own: Declarations, headers: Iterable[bytes], ours: set[str]) -> set[str]:
    """Return the templates of others that a text specialises, but for types of its own alone."""
    others = [read_declarations(other) for other in headers]
    # What is only declared there gives a type no meaning that a specialisation could change.
    meant = {_last(name) for other in others for name in other.defined}
    meant |= {special.name for other in others for special in other.special}
    primaries = own.templates | own.defined | own.variables
    found = {
        special.name
        for special in own.special
        if (special.name in meant or not special.is_class)
        and ours.isdisjoint(_WORDS.findall(special.arguments))
        and _qualify(special.scope, special.name) not in primaries
    }
    macros = {name for each in (own, *others) for name, _ in each.special_macros}
    through = {template for _, template in own.special_macros} | _macro_arguments(text, macros)
    through |= {template for other in others for name, template in other.special_macros if name in words(text)}
    return found | (through & meant)


def _may_be(name: str, other: str) -> bool:
    """Return whether two names of types may mean one: macros can open namespaces that the text does not show."""
    return _last(name) == _last(other) and (name == other or "::" not in name or "::" not in other)


def _macro_arguments(text: bytes, names: Iterable[str]) -> frozenset[str]:
    """Return the words with which a text uses macros."""
    calls = "|".join(map(re.escape, names))
    uses = re.findall(rf"\b(?:{calls})\s*\(([^()]*)\)", plain_text(text)) if calls else ()
    return frozenset(word for arguments in uses for word in _WORDS.findall(arguments))


def _qualify(scope: str, name: str) -> str:
    return "::".join(filter(None, (scope, name.removeprefix("::"))))


def _last(name: str) -> str:
    return name.rpartition("::")[2]
