"""Interfaces whose sides are compiled in other ways: what they declare must not depend on that.

No text is preprocessed: where sides differ, a word that may mean something else for each is refused. In the bodies of
functions, which change no declaration, there may be any.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from jitlto.base.errors import BuildError
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.compile.declarations import macros
from jitlto.compile.heads import heads
from jitlto.compile.tokens import TOKEN, line_at, plain_text, skip
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.headers import digest_headers, interfaces_first
from jitlto.record.options import option_macros

_CALLERS = "callers' code"
# Words that may differ with headers, with architectures, and with all else.
_OF_HEADERS = r"__has_\w+"
_OF_ARCHITECTURES = r"_+[A-Z]\w*_ARCH\w*|CUB_PTX_ARCH|NV_(?:IF|DISPATCH|IS|HAS|PROVIDES)\w*"
_OF_ALL = r"_[A-Z]\w*|__[A-Z]\w*|__cplusplus|__cpp_\w+|(?:CUB|THRUST|NV)_\w+"
# What is the same for all: all code is for devices.
_SAME = re.compile(r"__CUDACC__|_Pragma|(?:\bifn?def\s+|\bdefined\s*\(?\s*)__CUDA_ARCH__(?!\w)")
# Conditions that choose headers of the toolkit or the host, or refuse to go on.
_LINE = r"[^\S\n]*(?:#\s*(?:else|elif|error|warning|include\s*<(?:cuda|nv/|cub/|thrust/|\w+>))[^\n]*)?\n"
_HARMLESS = re.compile(rf"^[^\S\n]*#\s*if[^\n]*\n(?:{_LINE})*[^\S\n]*#\s*endif", re.M)
# Directives in a body that matter behind it.
_LASTING = re.compile(r"\s*(?:#|%:)\s*(?:define|undef|include|pragma\s+pack)")

_Sides: TypeAlias = Mapping[CompileConfig, str]  # with whose sources they are for


def check_settings(
    families: Sequence[FamilyDeclaration],
    requests: Iterable[CompileRequest],
    callers: Callable[[FamilyDeclaration], CompileConfig | None],
) -> dict[str, str]:
    """Check that interfaces mean the same in all ways in which the fragments that share them are compiled.

    Args:
        families: All of a build.
        requests: Those of all fragments.
        callers: Gives how callers' sources are compiled for a family; None if that cannot be told here.

    Returns:
        What may mean something else in callers' sources, for each family of which something may.

    Raises:
        BuildError: Something may not mean the same in all fragments; or in callers' sources, where callers supply a
            group.
    """
    sides: dict[str, dict[CompileConfig, str]] = defaultdict(dict)
    for request in requests:
        sides[request.key.family].setdefault(request.config, f"{request.key.family}/{request.key.group}")
    found: dict[str, str] = {}
    for family in families:
        own = sides[family.name]
        if not own or not family.interfaces:
            continue
        users = [sides[each.name] for each in families if family.name in each.all_used()]
        if error := _find_dependence(family, own | {how: who for each in users for how, who in each.items()}):
            raise error
        theirs = callers(family)
        if theirs is not None and (error := _find_dependence(family, own | {theirs: _CALLERS})):
            every = (family, *family.all_used().values())
            if any(group.template is None for each in every for group in each.groups):
                raise error
            found[family.name] = error.what
    return found


def _find_dependence(family: FamilyDeclaration, sides: _Sides) -> BuildError | None:
    """Return the error for the first word on which the family's interfaces must not depend; None if there is none."""
    headers = {config: _own_headers(config, family.interfaces) for config in sides}
    first, *others = sides
    is_auto = any(config.candidates for config in sides)
    asked = [
        (_OF_ALL, next((each for each in others if _settings(each) != _settings(first)), None)),
        (_OF_ARCHITECTURES, next((each for each in others if each.architectures != first.architectures), None)),
        (_OF_ARCHITECTURES, first if is_auto else None),
        (_OF_HEADERS, next((o for o in others if digest_headers(headers[o]) != digest_headers(headers[first])), None)),
    ]
    for words, other in asked:
        if other is not None and (place := _first_mention(headers[first], words)):
            one, two = (f"{sides[each]} ({_describe(each)})" for each in (first, other))
            what = f"{place}, which may differ between those who share it: {one}; {two}"
            hint = "give all groups the same, under [family]; or ask for it in the bodies of functions alone"
            return BuildError(what, code="build-interface-architecture", where=str(family.path), hint=hint)
    return None


def _own_headers(config: CompileConfig, interfaces: Iterable[str]) -> Mapping[str, bytes]:
    return config.own_closure(interfaces_first([*interfaces])).headers


def _settings(config: CompileConfig) -> tuple[str, list[str]]:
    """How it is compiled, but for architectures; macros of options have their own check."""
    return config.toolchain.name, [option for option in config.options if not option_macros([option])]


def _describe(config: CompileConfig) -> str:
    architectures = sorted({*config.architectures, *config.candidates})
    return f"{' '.join([config.toolchain.name, *config.options])} for {', '.join(map(str, architectures))}"


def _first_mention(headers: Mapping[str, bytes], words: str) -> str | None:
    """Say where the first of some words is outside of functions' bodies, but for macros of the headers themselves."""
    known = {macro for text in headers.values() for macro in macros(text, ("define",))}
    for name, text in headers.items():
        for line, token in _outline(text):
            for match in re.finditer(rf"\b(?:{words})\b", _SAME.sub("", token)):
                if match[0] not in known:
                    return f"{name}:{line} asks for {match[0]}"
    return None


@lru_cache(maxsize=256)
def _outline(text: bytes) -> tuple[tuple[int, str], ...]:
    """Return the words and directives of a text, with their lines, but for what changes no declaration."""
    plain = _HARMLESS.sub(lambda match: re.sub(r"[^\n\v]", "", match[0]), plain_text(text))
    tokens = [(match[0], match.start()) for match in TOKEN.finditer(plain)]
    texts, hidden = [token for token, _ in tokens], set[int]()
    for head in heads(texts):
        if head.tokens[:1] == ["static_assert"]:
            hidden.update(range(head.begin, head.end))
        elif head.is_definition:
            body = range(head.end, skip(texts, head.end))
            if not any(_LASTING.match(texts[n]) for n in body):
                hidden.update(body)
    return tuple((line_at(plain, start), token) for n, (token, start) in enumerate(tokens) if n not in hidden)
