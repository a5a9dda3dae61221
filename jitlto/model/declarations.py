"""What the front end does not prove of an interface, read from the tokens of headers and sources.

Types that are declared and never defined, templates that are specialised, macros that are defined. Like
:mod:`jitlto.model.kernel_text` a reading of tokens and no parser: bodies of functions are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from jitlto.model.directives import all_directives
from jitlto.model.kernel_text import (
    CLASS_KEYS,
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
_MACRO = re.compile(rb"[A-Za-z_$][\w$]*")
_DEFINE = re.compile(rb"([A-Za-z_$][\w$]*)(?:\([^)]*\))?\s*(.*)", re.S)
_NAME = re.compile(rb"(?:::)?[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
_ATTRIBUTES = frozenset(("alignas", "__align__", "__attribute__", "__declspec"))
_BEFORE = frozenset(("typedef", "friend", "extern", "static", "inline", "constexpr", "const", "volatile"))
_MEMORY = frozenset(("__device__", "__managed__"))  # that kernels may write
_MEMBER = re.compile(r"[A-Za-z_$][\w$]*|operator[^\w\s\"]+")
_LOOKS_LIKE_MACRO = re.compile(r"__\w+|[A-Z][A-Z0-9_]+")


_Special: TypeAlias = set[tuple[str, str]]  # names, and what stands in the brackets behind them


class Member(NamedTuple):
    """A name that a namespace has."""

    scope: str
    name: str
    parameters: str = ""  # of a function; of ``using namespace`` the word "namespace"


class Declarations(NamedTuple):
    """What one header or source declares; types by name with namespaces, templates by name alone."""

    declared: frozenset[str] = frozenset()  # classes and enums without a definition here
    templates: frozenset[str] = frozenset()  # class templates, the same
    mentioned: frozenset[tuple[str, ...]] = frozenset()  # as ``struct S`` where it is used: the names that it may mean
    defined: frozenset[str] = frozenset()
    specialised: frozenset[tuple[str, str]] = frozenset()  # class templates, with the arguments
    special_places: frozenset[tuple[str, ...]] = frozenset()  # what each of their names may mean, the nearest first
    revalued: frozenset[tuple[str, str]] = frozenset()  # the same of variables and constexpr functions
    functions: frozenset[tuple[str, str]] = frozenset()  # in namespaces: by name alone, with their parameters
    called: frozenset[str] = frozenset()  # by declarations of templates, outside of bodies
    special_macros: frozenset[tuple[str, str]] = frozenset()  # macros that specialise a template, and the template
    names: frozenset[str] = frozenset()  # words of declarations in namespaces, outside of parentheses, and macros
    members: frozenset[Member] = frozenset()
    internal: frozenset[str] = frozenset()  # variables of devices that may change, of which each source has its own


@lru_cache(maxsize=4096)
def words(text: bytes) -> frozenset[str]:
    """Return the words of a text outside of comments, strings and the names of headers."""
    return frozenset(_WORDS.findall(_INCLUDE.sub("", plain_text(text))))


@lru_cache(maxsize=4096)
def macros(text: bytes, kinds: tuple[bytes, ...] = (b"define", b"undef")) -> frozenset[str]:
    """Return the macros that a text defines or undefines."""
    found = (_MACRO.match(rest) for word, rest in all_directives(text) if word in kinds)
    return frozenset(match[0].decode() for match in found if match)


@lru_cache(maxsize=4096)
def read_declarations(text: bytes) -> Declarations:
    """Read what a text declares."""
    reader = _Reader()
    reader.read(TOKEN.findall(plain_text(text)))
    special_macros, renamed = _read_macros(text)
    renames = {(renamed[name], arguments) for name, arguments in reader.specialised if name in renamed}
    return Declarations(
        frozenset(reader.declared), frozenset(reader.templates), frozenset(reader.mentioned), frozenset(reader.defined),
        frozenset(reader.specialised | renames), frozenset(reader.special_places), frozenset(reader.revalued),
        frozenset(reader.functions), frozenset(reader.called), special_macros,
        frozenset(reader.words) | macros(text), frozenset(reader.members), frozenset(reader.internal),
    )  # fmt: skip


def _read_macros(text: bytes) -> tuple[frozenset[tuple[str, str]], dict[str, str]]:
    """Return the macros of a text that specialise a template, each with it; and those that are another name."""
    special, renamed = set(), {}
    for word, rest in all_directives(text):
        match = _DEFINE.fullmatch(rest) if word == b"define" else None
        if match is None:
            continue
        name, body = match[1].decode(), match[2]
        if _NAME.fullmatch(body):
            renamed[name] = _last(body.decode())
        elif b"<" in body:
            reader = _Reader()
            reader.read(TOKEN.findall(plain_text(body + b";")))
            special |= {(name, template) for template, _ in reader.specialised | reader.revalued}
    return frozenset(special), renamed


def undefined_types(texts: Iterable[bytes]) -> frozenset[str]:
    """Return the classes and enums that some headers declare and none of them defines."""
    texts = list(texts)
    every = [read_declarations(text) for text in texts]
    plain = "\n".join(map(plain_text, texts))
    defined = frozenset(name for each in every for name in each.defined)
    open_types = {name for each in every for name in each.declared} - defined
    # A primary template need not be defined where specialisations are, or where nothing uses it.
    specialised = {name for each in every for name, _ in each.specialised}
    templates = {n for each in every for n in each.templates if n not in defined and _last(n) not in specialised}
    open_types |= {name for name in templates if re.search(rf"\b{_last(name)}\s*<", plain)}
    open_types |= {names[-1] for each in every for names in each.mentioned if defined.isdisjoint(names)}
    return frozenset(open_types)


class Conflict(NamedTuple):
    """Something in a text that would change what an interface means, or look behind it."""

    kind: str  # macro, undef, specialisation, overload or definition
    name: str
    header: str  # of the interfaces


def find_conflicts(text: bytes, headers: Mapping[str, bytes], beside: Iterable[bytes] = ()) -> Iterator[Conflict]:
    """Yield what a source, or a header of its own, must not do behind the interfaces, whose headers are given.

    Args:
        beside: Further texts whose templates are no interface's.
    """
    own, others = read_declarations(text), [read_declarations(other) for other in headers.values()]
    mentioned = frozenset(word for other in headers.values() for word in words(other))
    ours = {_last(name) for name in own.defined} - mentioned  # types that mean nothing to others

    def theirs(names: Iterable[tuple[str, str]]) -> frozenset[str]:
        return frozenset(name for name, types in names if ours.isdisjoint(_WORDS.findall(types)))

    # What is only declared there gives a type no meaning that a specialisation could change.
    meant = {name for other in others for name in _templates(other)}
    special = theirs(own.specialised) | {template for _, template in own.special_macros}
    special |= {template for other in others for name, template in other.special_macros if name in words(text)}
    special |= _macro_arguments(text, {name for each in (own, *others) for name, _ in each.special_macros})
    special = theirs(own.revalued) | (special & meant)
    overloads = theirs(own.functions.difference(*(other.functions for other in others)))
    defined = macros(text, (b"define",))
    for kind, names in (
        ("macro", defined),
        ("undef", macros(text) - defined),
        ("specialisation", {name for name in special if not _is_own(name, (text, *beside), headers.values())}),
        ("overload", overloads.intersection(name for other in others for name in other.called)),
    ):
        for name in sorted(names & mentioned):
            yield Conflict(kind, name, next(header for header, other in headers.items() if name in words(other)))
    open_types = undefined_types(headers.values()) if own.defined else ()
    for name in sorted(name for name in own.defined if any(_may_be(name, each) for each in open_types)):
        yield Conflict("definition", name, next(h for h, other in headers.items() if _last(name) in words(other)))


def _may_be(name: str, other: str) -> bool:
    """Return whether two names of types may mean one: macros can open namespaces that the text does not show."""
    return _last(name) == _last(other) and (name == other or "::" not in name or "::" not in other)


def _macro_arguments(text: bytes, names: Iterable[str]) -> frozenset[str]:
    """Return the words with which a text uses macros."""
    calls = "|".join(map(re.escape, names))
    uses = re.findall(rf"\b(?:{calls})\s*\(([^()]*)\)", plain_text(text)) if calls else ()
    return frozenset(word for arguments in uses for word in _WORDS.findall(arguments))


def _is_own(template: str, texts: Iterable[bytes], interfaces: Iterable[bytes]) -> bool:
    """Return whether texts declare a template of this name that is none of the interfaces'."""
    texts = list(texts)
    if template in {_last(name) for text in texts for name in _classes(text)}:
        known = {name for text in interfaces for name in _classes(text)}
        own = {name for text in texts for name in _classes(text) if _last(name) == template} - known
        places = [
            each for text in texts for each in read_declarations(text).special_places if _last(each[-1]) == template
        ]
        meant = [next((name for name in each if name in own | known), "") for each in places]
        return bool(own) and known.isdisjoint(meant)
    primary = re.compile(rf"\btemplate\s*<\s*[^\s>][^;{{}}()]*\b{template}\s*[=({{;]")
    return any(primary.search(plain_text(text)) for text in texts)


def _classes(text: bytes) -> frozenset[str]:
    return read_declarations(text).defined | read_declarations(text).templates


def _templates(declarations: Declarations) -> Iterator[str]:
    yield from (name for name, _ in declarations.specialised)
    yield from map(_last, declarations.defined)


def line_of(text: bytes, conflict: Conflict) -> int:
    """Return the line of a conflict in its text."""
    name = re.escape(_last(conflict.name)).encode()
    before = rb"(?:define|undef)[ \t]+" if conflict.kind in ("macro", "undef") else rb"(?<!\w)"
    match = re.search(before + name + rb"(?!\w)", text)
    return text.count(b"\n", 0, match.start()) + 1 if match else 1


def _last(name: str) -> str:
    return name.rpartition("::")[2]


class _Reader:
    """Reads tokens: statements in namespaces and classes, with the scopes around them."""

    def __init__(self) -> None:
        # As in Declarations.
        self.declared: set[str] = set()
        self.templates: set[str] = set()
        self.mentioned: set[tuple[str, ...]] = set()
        self.defined: set[str] = set()
        self.specialised: _Special = set()
        self.special_places: set[tuple[str, ...]] = set()
        self.revalued: _Special = set()
        self.words: set[str] = set()
        self.members: set[Member] = set()
        self.functions: set[tuple[str, str]] = set()
        self.called: set[str] = set()
        self.internal: set[str] = set()
        self._scopes: list[_Scope | None] = []  # None for a function's body

    def read(self, tokens: Sequence[str]) -> None:
        branches: list[list[_Scope | None]] = []
        head: list[str] = []
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            if token.lstrip().startswith(("#", "%:")):
                follow_condition(token, self._scopes, branches)
            elif token == "{":
                self._scopes.append(None if None in self._scopes else self._open(head))
                head = []
            elif token in ("}", ";"):
                if token == ";" and None not in self._scopes:
                    self._end(head)
                if token == "}":
                    if self._scopes and (scope := self._scopes[-1]) and scope.is_enum:
                        self._add_members([head[n] for n in range(len(head)) if n == 0 or head[n - 1] == ","])
                    del self._scopes[-1:]
                head = []
            elif token == ":" and head in (["public"], ["protected"], ["private"]):
                head = []
            elif token == "(":
                end = skip(tokens, position - 1)
                head += tokens[position - 1 : end]
                position = end
            elif None not in self._scopes:
                head.append(token)

    def _open(self, head: Sequence[str]) -> _Scope | None:
        """Return the scope that a brace behind ``head`` opens, and note what is defined there."""
        if "namespace" in head:
            written = head[list(head).index("namespace") + 1 :]
            name = "".join(token for token in written if token == "::" or WORD.match(token))
            outer, _, last = name.rpartition("::")
            self._add_members([last], within=outer)
            return _Scope(name, is_internal=not name)
        if list(head[-2:]) == ["extern", '"C"']:
            return _Scope()
        prefixes, rest = _split_templates(head)
        self._add_words(rest)
        self._add_declared(rest)
        self._add_function(prefixes, rest)
        found = _class_head(rest)
        if found is None or found.rest not in ((), (":",)) or len(found.names) > 2:
            self._mention(rest)
            self._specialise(prefixes, rest)
            return None
        name = found.names[-1] if found.names else ""
        if name and found.arguments is not None:
            self.specialised.add((_last(name), found.arguments))
            self.special_places.add(self._meanings(name))
        elif name:
            self.defined.add(self._qualified(name))
        return _Scope(
            name,
            is_class=True,
            is_template=bool(prefixes) or self._in_template(),
            is_enum="enum" in rest and not {"class", "struct"} & set(rest),
        )

    def _end(self, head: Sequence[str]) -> None:
        """Note what a statement that ends in a semicolon declares."""
        prefixes, rest = _split_templates(head)
        self._add_words(rest)
        if rest[:1] == ["template"]:  # an explicit instantiation
            return
        self._add_declared(rest)
        self._add_function(prefixes, rest)
        found = _class_head(rest)
        is_plain = found is not None and found.rest in ((), (":",)) and "typedef" not in rest
        if found is not None and is_plain and found.names and found.arguments is None:
            names = found.names
            if len(names) == 1 or _LOOKS_LIKE_MACRO.fullmatch(names[0]):
                if rest[:1] != ["friend"]:
                    (self.templates if prefixes else self.declared).add(self._qualified(names[-1]))
                return
        self._mention(rest)
        self._specialise(prefixes, rest)

    def _specialise(self, prefixes: Sequence[Sequence[str]], rest: Sequence[str]) -> None:
        """Note the explicit specialisation of a variable or a constexpr function, or a partial one of a variable."""
        if not prefixes:
            return
        position = 0
        while position < len(rest) and rest[position] not in ("(", "=", "{"):
            if rest[position] == "<":
                end, name = skip(rest, position), rest[position - 1] if position else ""
                is_constant = not {"const", "constexpr"}.isdisjoint(rest[:position])
                after = end + 2 if rest[end : end + 1] == ["::"] and is_constant else end  # behind a member's name
                follows = rest[after : after + 1]
                is_function = follows == ["("]
                if WORD.match(name) and (follows in ([], ["="], ["{"]) or (is_function and "constexpr" in rest)):
                    self.revalued.add((name, " ".join(rest[position:end])))
                position = end
            else:
                position += 1

    def _in_template(self) -> bool:
        return any(scope and scope.is_template for scope in self._scopes)

    def _add_function(self, prefixes: Sequence[Sequence[str]], rest: Sequence[str]) -> None:
        """Note the parameters of a function, and what the declaration of a template calls."""
        position = _find_parameters(rest)
        if position and not any(scope and scope.is_class for scope in self._scopes):
            parameters = rest[position + 1 : skip(rest, position) - 1]
            self.functions.add((rest[position - 1], _signature(prefixes, parameters)))
        if prefixes or self._in_template():
            tokens = [token for prefix in prefixes for token in prefix]
            tokens += [*rest[: position - 1], *rest[position:]] if position else rest
            called = {word for word, follows in pairwise(tokens) if follows == "(" and WORD.match(word)}
            self.called |= called - KEYWORDS

    def _mention(self, tokens: Sequence[str]) -> None:
        for position, token in enumerate(tokens[:-1]):
            if token in CLASS_KEYS and WORD.match(tokens[position + 1]):
                name = [tokens[position + 1]]
                while tokens[position + 1 + len(name) :][:1] == ["::"]:
                    name += tokens[position + 1 + len(name) :][:2]
                self._add_mention("".join(name))

    def _add_words(self, tokens: Sequence[str]) -> None:
        position = 0
        while position < len(tokens) and not any(scope and scope.is_class for scope in self._scopes):
            if tokens[position] == "(":
                position = skip(tokens, position)
            elif (token := tokens[position]) and WORD.match(token) and token not in KEYWORDS:
                self.words.add(token)
            position += 1

    def _add_declared(self, rest: Sequence[str]) -> None:
        """Note the names that a declaration in a namespace gives it."""
        found = _class_head(rest)
        if found is not None and found.names and found.rest in ((), (":",)) and "typedef" not in rest:
            self._add_members(() if found.arguments is not None else found.names[-1:])
        elif rest[:2] == ["using", "namespace"]:
            self._add_members(rest[-1:], "namespace")
        elif rest[:1] == ["using"] and "=" in rest:
            self._add_members(rest[1:2])
        else:
            names, parameters = _declarators(rest)
            self._add_members(names, parameters)
            is_internal = "static" in rest or any(scope and scope.is_internal for scope in self._scopes)
            is_const = "constexpr" in rest or ("const" in rest and "*" not in rest)
            if is_internal and not is_const and not parameters and not _MEMORY.isdisjoint(rest):
                self.internal.update(() if any(scope and scope.is_class for scope in self._scopes) else names)

    def _add_members(self, names: Iterable[str], parameters: str = "", within: str = "") -> None:
        if not any(scope and scope.is_class and not scope.is_enum for scope in self._scopes):
            spaces = [each.name for each in self._scopes if each and each.name and not each.is_enum]
            scope = "::".join([*spaces, within] if within else spaces)
            self.members.update(Member(scope, name, parameters) for name in names if _MEMBER.fullmatch(name))

    def _add_mention(self, name: str) -> None:
        self.mentioned.add(self._meanings(name))

    def _meanings(self, name: str) -> tuple[str, ...]:
        scopes = [scope.name for scope in self._scopes if scope and scope.name]
        return tuple("::".join([*scopes[:depth], name]) for depth in range(len(scopes), -1, -1))

    def _qualified(self, name: str) -> str:
        return "::".join([*(scope.name for scope in self._scopes if scope and scope.name), name.removeprefix("::")])


class _Scope(NamedTuple):
    name: str = ""  # empty for one without
    is_class: bool = False
    is_enum: bool = False  # whose names are those of the namespace around it
    is_template: bool = False
    is_internal: bool = False  # a namespace without a name


class _ClassHead(NamedTuple):
    names: tuple[str, ...]  # words behind the class key: perhaps a macro, and the name
    arguments: str | None  # of a specialisation
    rest: tuple[str, ...]  # (":",) for a base or an underlying type


def _split_templates(head: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Split ``template <...>`` from what follows it."""
    rest, prefixes = list(head), []
    while rest[:2] == ["template", "<"]:
        end = skip(rest, 1)
        prefixes.append(rest[2 : end - 1])
        rest = rest[end:]
    return prefixes, rest


def _declarators(tokens: Sequence[str]) -> tuple[list[str], str]:
    """Return the names that a declaration gives variables, a type or a function, and a function's parameters."""
    names: list[str] = []
    position, last = 0, ""
    while position < len(tokens):
        token = tokens[position]
        if token == "(":
            end = skip(tokens, position)
            if last and last not in _ATTRIBUTES and not last.startswith("__") and last not in KEYWORDS:
                return [*names, last], " ".join(tokens[position:end])
            position = end
        elif token in ("<", "["):
            position = skip(tokens, position)
        elif token == "operator" and "(" in tokens[position + 2 :]:
            end = position + 1 + list(tokens[position + 1 :]).index("(", 1)
            return ["operator" + "".join(tokens[position + 1 : end])], " ".join(tokens[end : skip(tokens, end)])
        elif token in ("=", "operator"):
            break
        else:
            names += [last] if token == "," and last else []
            last = token if WORD.match(token) else last
            position += 1
    return [*names, last] if last and last not in KEYWORDS else names, ""


def _find_parameters(tokens: Sequence[str]) -> int:
    """Return where the parameters of a function begin in its declaration; 0 if it is none."""
    position = 0
    while position < len(tokens) and tokens[position] != "=":
        token, before = tokens[position], tokens[position - 1] if position else ""
        if token == "(" and WORD.match(before) and before not in KEYWORDS | _ATTRIBUTES and before[:2] != "__":
            return position
        position = skip(tokens, position) if token in ("(", "[", "<") else position + 1
    return 0


def _signature(prefixes: Sequence[Sequence[str]], parameters: Sequence[str]) -> str:
    """Return a function's parameters in one spelling: without their names and defaults, templates' own by number."""
    numbers = {token: str(n) for n, token in enumerate(t for prefix in prefixes for t in prefix if WORD.match(t))}
    parts = split_parameters(parameters)
    for part in parts:
        if name := parameter_name(part):
            part.remove(name)
    return ", ".join(" ".join(numbers.get(token, token) for token in part) for part in parts)


def _class_head(tokens: Sequence[str]) -> _ClassHead | None:
    """Read a class or enum at the begin of a declaration; None if it begins otherwise."""
    position = 0
    while position < len(tokens) and (tokens[position] in _BEFORE or _LOOKS_LIKE_MACRO.fullmatch(tokens[position])):
        position += 1
    if position == len(tokens) or tokens[position] not in CLASS_KEYS:
        return None
    position += 2 if list(tokens[position : position + 2]) in (["enum", "class"], ["enum", "struct"]) else 1
    names: list[str] = []
    arguments = None
    while position < len(tokens):
        token = tokens[position]
        if token in _ATTRIBUTES and tokens[position + 1 : position + 2] == ["("]:
            position = skip(tokens, position + 1)
        elif token == "[":
            position = skip(tokens, position)
        elif token == "::" and names:
            names[-1] += "".join(tokens[position : position + 2])
            position += 2
        elif token == "<" and names:
            end = skip(tokens, position)
            arguments, position = " ".join(tokens[position:end]), end
        elif token != "final" and WORD.match(token):
            names.append(token)
            position += 1
        elif token == "final":
            position += 1
        else:
            return _ClassHead(tuple(names), arguments, (":",) if token == ":" else tuple(tokens[position:]))
    return _ClassHead(tuple(names), arguments, ())
