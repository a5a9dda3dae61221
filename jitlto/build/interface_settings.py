"""Interfaces whose sides are compiled in other ways: what they declare must not depend on that.

No text is preprocessed: where sides differ, a word that may mean something else for each is refused. In the bodies of
functions, which change no declaration, there may be any.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from jitlto.base.errors import BuildError
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.compile.declarations import defined_macros
from jitlto.compile.heads import heads
from jitlto.compile.includes import all_directives
from jitlto.compile.tokens import TOKEN, line_at, plain_text, skip
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.fragment import ImageKind, agrees
from jitlto.record.headers import digest_headers
from jitlto.record.options import macro_values, option_macros

_CALLERS = "callers' code"
# Words that may differ with headers, with architectures, and with all else.
_OF_HEADERS = r"__has_\w+"
_OF_ARCHITECTURES = r"_+[A-Z]\w*_ARCH\w*|CUB_PTX_ARCH|NV_(?:IF|DISPATCH|IS|HAS|PROVIDES)\w*"
_OF_ALL = r"_[A-Z]\w*|__[A-Z]\w*|__cplusplus|__cpp_\w+|(?:CUB|THRUST|NV)_\w+"
# In conditions: what one compiler defines and another does not, and what the host's headers do, which nvcc includes.
_OF_TOOLCHAINS = (
    r"__\w+|linux|unix|CUDA(?:RT)?_\w+|[A-Z]+_(?:MAX|MIN|BIT|DIG|EPSILON)|M_[A-Z]\w*|NULL|assert|offsetof|errno"
)
_CONDITION = re.compile(r"\s*#\s*(?:el)?if")
# What is the same for all: all code is for devices.
_SAME = re.compile(r"__CUDACC__|_Pragma|(?:\bifn?def\s+|\bdefined\s*\(?\s*)(?:__CUDA_ARCH__|__cplusplus)(?!\w)")
# Conditions that choose headers of the toolkit or the host, or refuse to go on.
_LINE = r"[^\S\n]*(?:#\s*(?:else|elif|error|warning|include\s*<(?:cuda|nv/|cub/|thrust/|\w+>))[^\n]*)?\n"
_HARMLESS = re.compile(rf"^[^\S\n]*#\s*if[^\n]*\n(?:{_LINE})*[^\S\n]*#\s*endif", re.M)
_INCLUDED = re.compile(r"<([^>\n]*)>")
# Tokens in a body that matter behind it.
_LASTING = re.compile(r"\s*(?:#|%:)\s*(?:define|undef|include|pragma\s+pack)")
_PACKS = re.compile(rb'_Pragma\s*\(\s*"\s*pack')
# What makes a body matter: its function may be called, or its type be asked for, by a declaration.
_MEANT = frozenset(("constexpr", "consteval", "auto", "decltype"))


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
        theirs, users = callers(family), [sides[each.name] for each in families if family.name in each.all_used()]
        for like in {how.values: how for how in own}.values():  # the same interfaces
            alike = {
                how: who for side in (own, *users) for how, who in side.items() if agrees(like.values, dict(how.values))
            }
            if error := _find_dependence(family, alike):
                raise error
            if theirs is not None:
                alike |= {replace(theirs, generated=like.generated): _CALLERS}
            if error := _find_dependence(family, alike):
                every = (family, *family.all_used().values())
                if any(group.supplied for each in every for group in each.groups):
                    raise error
                found[family.name] = error.what
    return found


def _find_dependence(family: FamilyDeclaration, sides: Mapping[CompileConfig, str]) -> BuildError | None:
    """Return the error for the first word on which the family's interfaces must not depend; None if there is none."""
    headers = {config: config.interface_headers(family.interfaces) for config in sides}
    first, *others = sides
    # Of one interface, images for several architectures may meet in a kernel, or take each other's place.
    is_mixed = any(config.candidates or {a for _, a in config.images} - {*config.architectures} for config in sides)
    cubins = {tuple(a for kind, a in config.images if kind is ImageKind.SASS) for config in sides} - {()}
    asked = [
        (_OF_ALL, next((each for each in others if _settings(each) != _settings(first)), None)),
        (_OF_TOOLCHAINS, next((each for each in others if each.toolchain.name != first.toolchain.name), None)),
        (_OF_ARCHITECTURES, next((each for each in others if each.architectures != first.architectures), None)),
        (_OF_ARCHITECTURES, first if is_mixed or len(cubins) > 1 else None),
        (_OF_HEADERS, next((o for o in others if digest_headers(headers[o]) != digest_headers(headers[first])), None)),
    ]
    for each in others:  # macros of nvcc's options for the host, which callers' sources do not have
        differing = {macro for macro, _ in _host_macros(first).items() ^ _host_macros(each).items()}
        asked += [("|".join(sorted(differing)), each)] if differing else []
    for words, other in asked:
        if other is not None and (place := _first_mention(headers[first], words, first.options)):
            who = "; ".join(dict.fromkeys(f"{sides[each]} ({_describe(each)})" for each in (first, other)))
            what = f"{place}, which may differ between those who share it: {who}"
            hint = "give all groups the same, under [family]; or ask for it in the bodies of functions alone"
            return BuildError(what, code="build-interface-architecture", where=str(family.path), hint=hint)
    return None


def _settings(config: CompileConfig) -> tuple[str, list[str]]:
    """How it is compiled, but for architectures; macros of options have their own check."""
    options = [option for option in config.options if option.startswith("-X") or not option_macros([option])]
    return config.toolchain.name, options


def _host_macros(config: CompileConfig) -> dict[str, str]:
    return option_macros([option for option in config.options if not re.match(r"--?[DUdu]", option)])


def _describe(config: CompileConfig) -> str:
    architectures = sorted({*config.architectures, *config.candidates, *(each for _, each in config.images)})
    return f"{' '.join([config.toolchain.name, *config.options])} for {', '.join(map(str, architectures))}"


def _first_mention(headers: Mapping[str, bytes], words: str, options: Iterable[str]) -> str | None:
    """Say where the first of some words is outside of functions' bodies, but for macros of the headers themselves."""
    known = {macro for text in headers.values() for macro in defined_macros(text)}
    given, names = frozenset(_meant_macros(headers.values(), options)), frozenset(headers)
    for name, text in headers.items():
        for line, token in _outline(text, given, names):
            if words is _OF_TOOLCHAINS and not _CONDITION.match(token):
                continue
            for match in re.finditer(rf"\b(?:{words})\b", _SAME.sub("", token)):
                if match[0] not in known:
                    return f"{name}:{line} asks for {match[0]}"
    return None


def _meant_macros(texts: Iterable[bytes], options: Iterable[str]) -> set[str]:
    """Return the macros that stand for a word of :data:`_MEANT`, perhaps through others."""
    defined = [rest for text in texts for word, rest in all_directives(text) if word == "define"]
    defined += [f"{name} {value}" for name, value in macro_values(options).items()]
    every = [(name, {*rest}) for name, *rest in map(re.compile(r"[A-Za-z_$][\w$]*").findall, defined) if name]
    found, before = set[str](), -1
    while len(found) > before:
        before = len(found)
        found |= {name for name, rest in every if not rest.isdisjoint(_MEANT | found)}
    return found


@lru_cache(maxsize=256)
def _outline(text: bytes, given: frozenset[str], own: frozenset[str]) -> tuple[tuple[int, str], ...]:
    """Return the words and directives of a header, with their lines, but for what changes no declaration.

    Macros ``given`` make a body matter; headers of one's ``own`` may declare anything, unlike the toolkit's.
    """

    def blank(match: re.Match[str]) -> str:
        is_own = not own.isdisjoint(_INCLUDED.findall(match[0]))
        return match[0] if is_own else re.sub(r"[^\n\v]", "", match[0])

    plain = _HARMLESS.sub(blank, plain_text(text))
    tokens = [(match[0], match.start()) for match in TOKEN.finditer(plain)]
    texts, hidden = [token for token, _ in tokens], set[int]()
    for head in heads(texts):
        if head.tokens[:1] == ["static_assert"]:
            hidden.update(range(head.begin, head.end))
        elif head.is_definition and given.isdisjoint(head.tokens):
            body = range(head.end, skip(texts, head.end))
            if not _lasts([texts[n] for n in body], packs=_PACKS.search(text) is not None):
                hidden.update(body)
    return tuple((line_at(plain, start), token) for n, (token, start) in enumerate(tokens) if n not in hidden)


def _lasts(body: Sequence[str], *, packs: bool) -> bool:
    """Return whether a body has directives that matter behind it, or ends in the midst of a condition."""
    opened = sum(bool(re.match(r"\s*#\s*if", token)) - bool(re.match(r"\s*#\s*endif", token)) for token in body)
    return opened != 0 or (packs and "_Pragma" in body) or any(map(_LASTING.match, body))
