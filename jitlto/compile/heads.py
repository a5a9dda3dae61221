"""What a text of C++ declares outside of functions, read from its tokens: no parser, and bodies are passed over."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jitlto.base.cached import cached_property
from jitlto.compile.tokens import CLASS_KEYS, KEYWORDS, WORD, is_directive, outer, skip

# The head of a class or enum, its tokens separated by blanks: perhaps with macros and attributes, and of a base.
_ATTRIBUTE = r"(?:alignas|__align__|__attribute__|__declspec) \((?: [^()]+| \( [^()]* \))* \) "
_CLASS = re.compile(
    r"(?:(?:friend|extern|static|inline|constexpr|const|volatile|typedef|__\w+|[A-Z][A-Z0-9_]+) )*"
    r"(?:enum class|enum struct|enum|struct|class|union) "
    rf"(?:{_ATTRIBUTE}|\[ \[ [^\]]* \] \] |[A-Z_][A-Z0-9_]+ (?=\w|:))*"
    r"(?P<name>(?::: )?[A-Za-z_$][\w$]*(?: :: [A-Za-z_$][\w$]*)* )?"
    r"(?P<arguments><.*> (?::: [A-Za-z_$][\w$]* )*)?(?:final )?(?:: .*)?"
)
_NO_FUNCTIONS = frozenset(("alignas", "__align__", "__attribute__", "__declspec", "decltype", "noexcept", "explicit"))
_NO_BODIES = CLASS_KEYS | {"constexpr", "consteval", "namespace"}


class Scope(NamedTuple):
    """The namespaces and classes around a declaration."""

    name: str = ""  # of all of them
    in_class: bool = False
    in_template: bool = False
    is_internal: bool = False  # in a namespace without a name


@dataclass(frozen=True)
class Head:
    """A declaration up to its semicolon or opening brace."""

    scope: Scope
    prefixes: list[list[str]]  # what stands in the brackets of ``template <...>``
    tokens: list[str]  # behind those
    begin: int  # where it begins among all tokens
    end: int  # where its semicolon or brace is
    has_body: bool  # a brace

    def qualify(self, name: str) -> str:
        """Return a name with the namespaces and classes around it."""
        return "::".join(filter(None, (self.scope.name, name.replace(" ", "").removeprefix("::"))))

    @cached_property
    def text(self) -> str:
        """Its tokens, each followed by a blank."""
        return "".join(f"{token} " for token in self.tokens)

    @cached_property
    def class_head(self) -> re.Match[str] | None:
        """What it says if it declares or defines a class or an enum."""
        return _CLASS.fullmatch(self.text)

    @cached_property
    def function(self) -> tuple[str, list[str]] | None:
        """The name without namespaces and the parameters, if it is that of a function."""
        name, found = "", None
        for position, end in outer(self.tokens, "([<"):
            if self.tokens[position] == "(" and name and name not in KEYWORDS | _NO_FUNCTIONS:
                found = name, self.tokens[position + 1 : end - 1]
            if self.tokens[position] in (":", "="):
                break
            name = self.tokens[position] if WORD.match(self.tokens[position]) else name
        return found

    @property
    def is_definition(self) -> bool:
        """Whether its brace opens the body of a function that changes no declaration."""
        rest = [self.tokens[position] for position, _ in outer(self.tokens)]  # of parentheses, the opening ones
        calls = (n for n, (before, token) in enumerate(pairwise(rest)) if token == "(" and before not in _NO_FUNCTIONS)
        first = next(calls, None)
        if not self.has_body or first is None or not _NO_BODIES.isdisjoint(rest):
            return False
        is_value = "=" in rest[:first] and "operator" not in rest
        return not is_value and ({"auto", "decltype"}.isdisjoint(rest) or ("-", ">") in pairwise(rest))

    @property
    def opens(self) -> Scope | None:
        """The scope that its brace opens; None for a function's body or a value."""
        if "namespace" in self.tokens:
            rest = self.tokens[self.tokens.index("namespace") + 1 :]
            name = "".join(token for token in rest if token == "::" or WORD.match(token))
            return self.scope._replace(name=self.qualify(name), is_internal=self.scope.is_internal or not name)
        if self.tokens[-2:] == ["extern", '"C"']:
            return self.scope
        if (found := self.class_head) is None:
            return None
        in_template = bool(self.prefixes) or self.scope.in_template
        return Scope(self.qualify(found["name"] or ""), True, in_template, self.scope.is_internal)


def heads(tokens: Sequence[str]) -> Iterator[Head]:
    """Yield the declarations outside of functions, each up to its semicolon or opening brace."""
    scopes: list[Scope | None] = [Scope()]  # None for the body of a function, or a value
    branches: list[list[Scope | None]] = []
    head: list[int] = []
    position = 0
    while position < len(tokens):
        token, end = tokens[position], position + 1
        if is_directive(token):
            word = token.strip(" \t\f\v#%:")[:2]
            if word == "if":
                branches.append([*scopes])
            elif word == "el" and branches:  # each branch of a condition begins in the scope of the first
                scopes[:] = branches[-1]
            elif word == "en" and branches:
                branches.pop()
        elif token in ("{", ";", "}"):
            found = _head(tokens, head, position, scopes[-1]) if scopes[-1] else None
            if head and found and token != "}":
                yield found
            if token == "{":
                scopes.append(found.opens if found else None)
            elif token == "}":
                del scopes[max(1, len(scopes) - 1) :]
            head = []
        elif token == ":" and [tokens[n] for n in head] in (["public"], ["protected"], ["private"]):
            head = []
        else:
            end = skip(tokens, position) if token == "(" else end
            head += range(position, end)
        position = end


def _head(tokens: Sequence[str], head: Sequence[int], end: int, scope: Scope) -> Head:
    rest, prefixes = [tokens[n] for n in head], []
    while rest[:2] == ["template", "<"]:
        behind = skip(rest, 1)
        prefixes.append(rest[2 : behind - 1])
        rest = rest[behind:]
    return Head(scope, prefixes, rest, head[0] if head else end, end, tokens[end] == "{")
