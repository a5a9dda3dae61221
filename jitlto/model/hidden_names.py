"""Names that some headers declare and that other headers would find in place of their own.

The front end refuses two declarations of one name in one scope. It says nothing where a namespace of both gets a name
that hides another of a scope around it, or a function gets another overload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from jitlto.model.declarations import Member, read_declarations
from jitlto.model.kernel_text import CLASS_KEYS, KEYWORDS, TOKEN, TYPES, WORD, plain_text


def find_hidden(foreign: Iterable[bytes], own: Collection[bytes], checked: Collection[bytes]) -> Member | None:
    """Find a name of others that checked headers would find where they mean another.

    Args:
        foreign: The headers of others.
        own: The headers that would be there without them.
        checked: Those among them whose meaning is asked for.
    """
    others = {member for text in foreign for member in read_declarations(text).members}
    known = {member for text in own for member in read_declarations(text).members}
    scopes = {scope for text in checked for member in read_declarations(text).members for scope in _around(member)}
    uses = {name for text in checked for name in _names(text)[0]}
    given = {name for text in checked for name in _names(text)[1]}
    types = {member.name for member in others - known if not member.parameters}
    symbols = {token for text in checked for token in TOKEN.findall(plain_text(text))}
    for member in sorted(_adopted(others) - known):
        if not WORD.match(member.name):  # an operator, which concerns the types of its parameters
            if symbols.issuperset(member.name[len("operator") :]) and types.isdisjoint(member.parameters.split()):
                return member
            continue
        is_named = member.name in uses
        same = {each for each in known if each[:2] == member[:2]}
        if same and member.parameters and any(each.parameters for each in same):
            if is_named:
                return member
        elif not same and member.scope and member.scope in scopes:
            outer = {"", *_around(member)} - {member.scope}
            is_outer = any(each.name == member.name and each.scope in outer for each in known)
            if (is_named or member.name in given) and (is_outer or (is_named and member.name not in given)):
                return member
    return None


def _around(member: Member) -> Iterator[str]:
    """Yield the namespace of a member, and those around it."""
    parts = member.scope.split("::")
    for depth in range(1, len(parts) + 1):
        yield "::".join(parts[:depth])


def _adopted(members: Collection[Member]) -> set[Member]:
    """Return the members with what each ``using namespace`` adds to the namespace in which it stands."""
    found = {member for member in members if member.parameters != "namespace"}
    for using in (member for member in members if member.parameters == "namespace"):
        inner = (member for member in members if member.scope.rpartition("::")[2] == using.name)
        found |= {member._replace(scope=using.scope) for member in inner}
    return found


@lru_cache(maxsize=1024)
def _names(text: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a text uses, and those that it gives: what stands behind a type."""
    uses: set[str] = set()
    given: set[str] = set()
    before = ""
    for token in TOKEN.findall(plain_text(text)):
        if WORD.match(token) and token not in KEYWORDS and before not in (".", "->"):
            is_type = WORD.match(before) and (before in TYPES or before in CLASS_KEYS or before not in KEYWORDS)
            (given if is_type or before in ("*", "&", ">", "typename") else uses).add(token)
        before = token
    return frozenset(uses), frozenset(given)
