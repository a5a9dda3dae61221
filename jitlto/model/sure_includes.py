"""The headers that a text includes under no condition, and those that they include so."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from jitlto.model.directives import INCLUDES, all_directives

H = TypeVar("H", bound=Hashable)  # what stands for a header

_DEFINED = re.compile(rb"#[ \t]*define[ \t]+(\w+)")
_HEADER = re.compile(rb"""(?:"([^"]*)"|<([^>]*)>)""")
_GUARD = re.compile(rb"(?:defined\s*\(\s*(\w+)\s*\)|defined\s+(\w+))")
# Every CUDA C++ compiler defines these.
_TRUE = frozenset([(b"if", b"1"), (b"ifdef", b"__cplusplus"), (b"ifdef", b"__CUDACC__")])


class SureInclude(NamedTuple):
    """An include that is compiled whenever its text is."""

    word: bytes
    quoted: bool
    name: str


class SureIncludes(NamedTuple):
    """The includes of a text; if it has an include guard, they hold where that macro is not defined before."""

    includes: tuple[SureInclude, ...]
    guard: bytes | None


@lru_cache(maxsize=4096)
def sure_includes(text: bytes) -> SureIncludes:
    """Return the includes that stand outside of all conditions, those of an include guard excepted."""
    lines = list(all_directives(text))
    guard = _guard(lines)
    found: list[SureInclude] = []
    conditions: list[bool] = []  # whether the branch is always compiled, from the outermost on
    for number, (word, rest) in enumerate(lines):
        if word in (b"if", b"ifdef", b"ifndef"):
            conditions.append((word, rest) in _TRUE or (number == 0 and guard is not None))
        elif word.startswith(b"el") and conditions:
            conditions[-1] = False
        elif word == b"endif" and conditions:
            conditions.pop()
        elif word in INCLUDES and all(conditions) and (match := _HEADER.match(rest)):
            quoted = match[1] is not None
            name = match[1] if quoted else match[2]
            found.append(SureInclude(word, quoted, name.decode("utf-8", "surrogateescape")))
    return SureIncludes(tuple(found), guard)


def _guard(lines: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the macro of the include guard that is around all directives."""
    if len(lines) < 3 or lines[1][0] != b"define" or lines[-1][0] != b"endif":
        return None
    word, rest = lines[0]
    match = _GUARD.fullmatch(rest.removeprefix(b"!").strip()) if word == b"if" and rest.startswith(b"!") else None
    name = rest if word == b"ifndef" else (match[1] or match[2]) if match else None
    if name is None or lines[1][1] != name:
        return None
    depth = 0
    for word, _ in lines[:-1]:
        depth += (word in (b"if", b"ifdef", b"ifndef")) - (word == b"endif")
        if depth == 0 or (depth == 1 and word.startswith(b"el")):
            return None
    return name


def follow(text: bytes, texts: Mapping[H, bytes], resolve: Callable[[H | None, SureInclude], H | None]) -> frozenset[H]:
    """Return the headers that a source includes, or one of those, under no condition.

    Args:
        text: The source.
        texts: Those of all headers that it can reach.
        resolve: Tells which header an include in a header means, or in the source (None); None to leave it out.
    """
    found: set[H] = set()
    pending: list[H | None] = [None]
    while pending:
        header = pending.pop()
        sure = sure_includes(text if header is None else texts[header])
        # A guard that is defined twice may be defined before.
        if sure.guard and sum(_definitions(each)[sure.guard] for each in (text, *texts.values())) > 1:
            continue
        new = {each for include in sure.includes if (each := resolve(header, include)) is not None} - found
        found |= new
        pending.extend(new)
    return frozenset(found)


def leading_to(targets: Iterable[H], includes: Mapping[H, Iterable[H | None]]) -> set[H]:
    """Return the targets, and all headers that include one of them or lead to one."""
    includers: dict[H | None, list[H]] = defaultdict(list)
    for header, included in includes.items():
        for each in included:
            includers[each].append(header)
    found = set(targets)
    pending = list(found)
    while pending:
        new = set(includers[pending.pop()]) - found
        found |= new
        pending.extend(new)
    return found


@lru_cache(maxsize=16384)
def _definitions(text: bytes) -> Counter[bytes]:
    return Counter(_DEFINED.findall(text))
