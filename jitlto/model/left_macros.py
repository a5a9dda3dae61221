"""Macros that some headers leave behind, and that change what the headers after them mean.

The headers of a sequence are read in order, line by line, each text once. Which branch of a condition holds is not
known: a definition is remembered with the conditions around it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from jitlto.model.kernel_text import without_comments
from jitlto.model.options import macro_values

_DIRECTIVE = re.compile(r"\s*(?:#|%:)\s*(\w+)\s*(.*)", re.S)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_UNDEFINED = re.compile(r"!\s*defined\s*(?:\(\s*([A-Za-z_]\w*)\s*\)|\s([A-Za-z_]\w*))")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_JOINT = "\0"  # in place of the end of a line that goes on

#: Definitions that may hold: the conditions of each, and its text. None at all for a macro that is not defined.
_State: TypeAlias = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(eq=False)
class _Block:
    """What lies between an ``#if`` and its ``#endif``."""

    guarded: str | None  # the macro that must not be defined
    chain: list[str]
    defines: set[str] = field(default_factory=set)
    is_plain: bool = True  # nothing but definitions, and no other branch
    is_header: bool = False  # the include guard of a whole header


class Line(NamedTuple):
    """A line of a header with its continuations: a directive has a word."""

    header: str
    number: int
    word: str
    text: str
    blocks: tuple[tuple[str, _Block], ...]  # around it, each with its condition

    @property
    def changed(self) -> str | None:
        """The macro that it defines or undefines."""
        match = _NAME.match(self.text) if self.word in ("define", "undef") else None
        return match[0] if match else None

    @property
    def place(self) -> str:
        """Its header and number, as compilers write them."""
        return f"{self.header}:{self.number}"


class LeftMacro(NamedTuple):
    """A macro that is another one where it is mentioned than it would be without the headers of others."""

    name: str
    left: Line
    mention: Line


def read_sequence(headers: Mapping[str, bytes], interfaces: Iterable[str]) -> list[Line]:
    """Return the lines of some headers and of those that they include, in the order of a compiler."""
    return list(_read(headers, [f'"{name}"' for name in interfaces], (), set()))


def find_left_macro(
    lines: Sequence[Line], own: Collection[str], checked: Collection[str], options: Iterable[str]
) -> LeftMacro | None:
    """Find a macro that headers of others leave, and that a checked header mentions.

    Args:
        lines: Those of all headers.
        own: The headers that would be there without the others.
        checked: Those among them whose meaning is asked for.
        options: Of the compiler.
    """
    changed = {line.changed for line in lines if line.header not in own}
    mentioned = {word for line in lines if line.header in checked for word in _words(line)}
    given = macro_values(options)
    for name in sorted(name for name in changed if name in mentioned):
        value = given.get(name)
        state: _State = () if value is None else (((), value),)
        alone, left = state, None
        for line in lines:
            if line.changed == name:
                state = _follow(state, line)
                alone = _follow(alone, line) if line.header in own else alone
                left = line if line.header not in own else left
            elif state == alone or left is None or line.header not in checked or name not in _words(line):
                continue
            elif not _is_guard(line, name, changed):
                return LeftMacro(name, left, line)
    return None


def _follow(state: _State, line: Line) -> _State:
    guards = [block for _, block in line.blocks if block.guarded == line.changed and block.is_plain]
    conditions = tuple(condition for condition, block in line.blocks if block not in guards)
    if guards and any(not before for before, _ in state):
        return state
    entry = conditions, "" if line.word == "undef" else " ".join(line.text.split())
    if conditions:
        return (*(each for each in state if each != entry), entry)
    return () if line.word == "undef" else (entry,)


def _is_guard(line: Line, name: str, changed: Collection[str | None]) -> bool:
    """Return whether a line asks for a macro only to define it."""
    block = line.blocks[-1][1] if line.word.startswith("if") and line.blocks else None
    if block is None or block.guarded != name or not block.is_plain:
        return False
    return block.defines == {name} or (not block.is_header and block.defines.issubset(changed))


def _read(
    headers: Mapping[str, bytes], names: Iterable[str], around: tuple[tuple[str, _Block], ...], read: set[bytes]
) -> Iterator[Line]:
    for name in (each.strip('"<>') for each in names):
        if name not in headers or headers[name] in read:
            continue
        read.add(headers[name])
        for line in _lines(name, headers[name]):
            yield line._replace(blocks=(*around, *line.blocks))
            if line.word == "include":
                yield from _read(headers, [line.text.strip()], (*around, *line.blocks), read)


@lru_cache(maxsize=1024)
def _lines(header: str, text: bytes) -> tuple[Line, ...]:
    found: list[Line] = []
    blocks: list[_Block] = []
    number = 1
    for written in without_comments(_CONTINUED.sub(_JOINT, text.decode("utf-8", "replace")), _JOINT).split("\n"):
        match = _DIRECTIVE.match(written.replace(_JOINT, ""))
        word, rest = (match[1], match[2].strip()) if match else ("", written.replace(_JOINT, "").strip())
        if word in ("if", "ifdef", "ifndef"):
            blocks.append(_open(word, rest))
        elif word.startswith(("el", "endif")) and blocks:
            _go_on(blocks, word, rest)
        elif rest or word:
            _fill(blocks, found, word, rest)
        if rest or word:
            around = tuple((" ".join(block.chain), block) for block in blocks if not block.is_header)
            found.append(Line(header, number, word, rest, around))
        number += 1 + written.count(_JOINT)
    return tuple(found)


def _open(word: str, rest: str) -> _Block:
    undefined = _UNDEFINED.fullmatch(rest)
    guarded = rest if word == "ifndef" else (undefined[1] or undefined[2]) if undefined else None
    condition = f"!defined({guarded})" if guarded else f"defined({rest})" if word == "ifdef" else rest
    return _Block(guarded, [" ".join(re.findall(r"\w+|\S", condition))])


def _go_on(blocks: list[_Block], word: str, rest: str) -> None:
    if word == "endif":
        blocks.pop()
        return
    blocks[-1].is_plain = False
    blocks[-1].chain[-1] = f"!({blocks[-1].chain[-1]})"
    blocks[-1].chain.append(f"{word} {' '.join(rest.split())}")


def _fill(blocks: Sequence[_Block], found: Sequence[Line], word: str, rest: str) -> None:
    """Note in the blocks around a line what it is."""
    if word == "define" and len(blocks) == 1 and rest == blocks[0].guarded:
        blocks[0].is_header = all(line.word == "pragma" for line in found[:-1])
    for block in blocks:
        if word in ("define", "undef") and (name := _NAME.match(rest)):
            block.defines.add(name[0])
        else:
            block.is_plain = False


def _words(line: Line) -> frozenset[str]:
    if line.word in ("error", "warning") or (line.word == "include" and line.text.startswith(('"', "<"))):
        return frozenset()
    return frozenset(_NAME.findall(_STRING.sub("", line.text)))
