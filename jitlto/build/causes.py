"""Failures and findings grouped by cause: one mistake in a template is one cause, however many fragments show it.

Messages have the same cause if they differ only in parts that vary between fragments. :func:`value_eraser` removes
these parts from compilers' logs, which repeat values of the matrices; :func:`name_folder` from jitlto's own messages,
which contain keys, configurations and symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jitlto.base.mangling import base_name, demangle
from jitlto.record.fragment import Fragment

T = TypeVar("T")

_NUMBER = re.compile(r"\b(?:0[xX][0-9a-fA-F]+|\d[\d.]*(?:[eE][-+]?\d+)?)[uUlLfF]*|\d+")
# A typedef among the values appears in messages as the type that it names.
_SCALAR = re.compile(
    r"\b(?:unsigned|signed|long|short|char|bool|__half|__nv_bfloat16|(?:u?int|float|double)(?:\d*|\d+_t))\b"
)
_SHORT = 3  # characters; a shorter value is matched as a whole word, because "a" occurs inside many names


@dataclass(frozen=True, slots=True)
class Cause(Generic[T]):
    """Failures or findings with the same cause.

    Args:
        members: At least one, in their original order; the first represents them all.
    """

    members: tuple[T, ...]

    @property
    def first(self) -> T:
        """The representative."""
        return self.members[0]

    def __len__(self) -> int:
        return len(self.members)


def group_by_cause(items: Iterable[T], signature: Callable[[T], Hashable]) -> list[Cause[T]]:
    """Group items whose signatures are equal.

    Args:
        items : iterable of T
        signature: Returns the key that items with the same cause share, such as the message after
            :func:`value_eraser` or :func:`name_folder`.

    Returns:
        list of Cause: The most frequent first; equally frequent ones in the order of their first members.
    """
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(signature(item), []).append(item)
    return sorted((Cause(tuple(members)) for members in groups.values()), key=lambda cause: -len(cause))


def value_eraser(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function that removes values, numbers, scalar types and white space from a text.

    Args:
        values: The values of all combinations; each line of a multi-line value is an item. All combinations are needed,
            because a 4 that is a value in one may be a constant in another, and must be erased from both.
    """
    words = [_word(value) for value in sorted(set(values) - {""}, key=lambda value: (-len(value), value))]
    varying = re.compile("|".join([*words, _SCALAR.pattern, _NUMBER.pattern]))
    return lambda text: "".join(varying.sub("", text).split())  # white space too, because a value may be empty


def _word(value: str) -> str:
    if len(value) >= _SHORT:
        return re.escape(value)
    before = r"(?<!\w)" if re.match(r"\w", value) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", value) else ""
    return f"{before}{re.escape(value)}{after}"


def name_folder(fragments: Iterable[Fragment]) -> Callable[[str], str]:
    """Return a function that folds keys, ``name=value`` pairs, numbers and symbols in a text.

    Args:
        fragments: The fragments whose symbols may occur, mangled or demangled; each symbol is replaced by its name
            without types and arguments.
    """
    spellings: dict[str, str] = {}
    for fragment in fragments:
        names = [symbol.name for symbol in (*fragment.provides, *fragment.requires)]
        for name in names:
            spellings |= dict.fromkeys((name, demangle(name)), base_name(name))
    symbols = re.compile("|".join(map(re.escape, sorted(spellings, key=lambda s: (-len(s), s)))) or "(?!)")

    def fold(text: str) -> str:
        text = symbols.sub(lambda match: spellings[match[0]], text)
        text = re.sub(r"([\w.-]+/[\w.-]+)\[[^\]]*\]", r"\1[]", text)
        text = re.sub(r"([A-Za-z_][\w.-]*)=[^,\s;]+", r"\1=", text)
        return re.sub(r"0x[0-9a-fA-F]+|\d+", "0", text)

    return fold
