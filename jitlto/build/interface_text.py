"""One text of the interfaces wherever fragments meet: as each compiler preprocesses them.

To see what a preprocessor makes of a header, its lines between directives are compiled as strings, whose macros the
compiler expands. Those of two ways to compile, or behind other headers and alone, are then compared word by word.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, zip_longest
from typing import NamedTuple, TypeAlias

from jitlto.base.errors import BuildError, FamilyError
from jitlto.base.versions import Architecture
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interface_compiler import InterfaceCompiler, Question, ask_texts
from jitlto.build.interfaces import path_of
from jitlto.compile.declarations import line_of, macros, words
from jitlto.compile.stretches import declarations, is_balanced, stretches
from jitlto.compile.tokens import TOKEN, plain_text
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import HeaderSet, interfaces_first

_CALLERS = "callers' code"
_NEXT = "jitlto_next"  # a header that counts, since one that is included twice has two texts
_DIGITS = ("jitlto_c", "jitlto_b", "jitlto_a")  # of its count, the last first
_HEAD = """
#define jitlto_variable(a, b, c, header, line, ...) \\
  extern "C" __device__ char jitlto_text_##a##b##c##_##header##_##line[] = " " #__VA_ARGS__;
#define jitlto_expand(...) jitlto_variable(__VA_ARGS__)
""" + "".join(f"#define {digit} 0\n" for digit in _DIGITS)
_INCLUDED = re.compile(r"include|include_next|import")
_PARENTHESES = {"(": " jitlto_open ", ")": " jitlto_close "}
# Both front ends mean the same by these, and spell them in their own ways.
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(?:__)?(\w+?)(?:__)?\s*((?:\([^()]*\))?)\s*\)\)|__inline__|__inline\b")
_TOKEN = re.compile(rf'"(?:[^"\\]|\\.)*"|{TOKEN.pattern}', re.M)


class _Piece(NamedTuple):
    """Lines of a header as the preprocessor gives them."""

    header: str
    line: int
    text: str


_Text: TypeAlias = list[_Piece]  # in order


class _Side(NamedTuple):
    """Whose sources are compiled in one way."""

    family: str
    who: str


@dataclass(frozen=True, eq=False)
class _Way:
    """How one side is compiled for one architecture."""

    who: str
    config: CompileConfig
    architecture: Architecture

    def __str__(self) -> str:
        tool = self.config.toolchain.name
        return f"{self.who} ({' '.join([tool, *self.config.options])} for {self.architecture})"


class _Difference(NamedTuple):
    """The first place at which two texts differ, and what each has there."""

    header: str
    line: int
    texts: tuple[str, str]


class InterfaceTexts:
    """Compares what preprocessors make of the interfaces of a build's families.

    Args:
        families: All of a build.
        requests: Those of all fragments.
        compiler: Compiles the texts.
    """

    def __init__(
        self,
        families: Sequence[FamilyDeclaration],
        requests: Iterable[CompileRequest],
        compiler: InterfaceCompiler,
    ) -> None:
        self._families, self._compiler = families, compiler
        self._sides: dict[str, dict[CompileConfig, _Side]] = defaultdict(dict)
        for request in requests:
            name, group = request.key.family, request.key.group
            self._sides[name].setdefault(request.config, _Side(name, f"{name}/{group}"))
        self._question = cache(_question)

    def check(self, callers: Callable[[FamilyDeclaration], CompileConfig | None]) -> dict[str, str]:
        """Check that interfaces have one text in all ways in which the fragments that share them are compiled.

        Args:
            callers: Gives how callers' sources are compiled for a family; None if that cannot be told here.

        Returns:
            What has another text in callers' sources, for each family of which something has.

        Raises:
            BuildError: Something has not one text in all fragments; or in callers' sources, where callers supply a
                group; or an interface has another text alone than behind those before it.
            FamilyError: A used family's interfaces have another text alone than behind those of another.
        """
        found: dict[str, str] = {}
        for family in self._families:
            own = self._sides[family.name]
            if not own or not family.interfaces:
                continue
            users = [each for each in self._families if family.name in each.all_used()]
            sides = own | {config: who for each in users for config, who in self._sides[each.name].items()}
            if difference := self._compare_ways(family, sides):
                raise _error(family, difference)
            self._check_order(family, next(iter(own)))
            theirs = callers(family)
            both = own if theirs is None else own | {theirs: _Side(family.name, _CALLERS)}
            if difference := self._compare_ways(family, both):
                if any(
                    group.template is None for each in (family, *family.all_used().values()) for group in each.groups
                ):
                    raise _error(family, difference)
                found[family.name] = difference
        return found

    def _compare_ways(self, family: FamilyDeclaration, sides: Mapping[CompileConfig, _Side]) -> str:
        """Return what has not one text for all sides; empty if all has."""
        several = any(config.candidates for config in sides) or len({_architectures(config) for config in sides}) > 1
        # Each family looks for headers in its own directories.
        headers = next(iter(sides)).own_closure(interfaces_first(family.interfaces)).headers
        looks = any(b"__has_include" in text for text in headers.values())
        unlike: dict[tuple[object, str], CompileConfig] = {}
        for config, side in sides.items():
            unlike.setdefault((_settings(config), side.family if looks else ""), config)
        if len(unlike) == 1 and not several:
            return ""
        groups: dict[Architecture | None, list[_Way]] = defaultdict(list)
        for config in unlike.values():
            for each in _architectures(config):
                alone = replace(config, architectures=(each,), images=(ImageKind.PTX,), candidates=())
                groups[None if several else each].append(_Way(sides[config].who, alone, each))
        self._compiler.start(self._question(way.config, family.interfaces) for ways in groups.values() for way in ways)
        for ways in groups.values():
            read = ((way, self._read(way.config, family.interfaces, way)) for way in ways)
            texts = [(way, text) for way, text in read if text is not None]
            for (one, text), (other, others) in sorted(combinations(texts, 2), key=_is_one_side):
                if found := _compare(text, others, is_outline=True):
                    what = f"{found.header}:{found.line} is not the same on both sides"
                    return f"{what}: {found.texts[0]} in {one}; {found.texts[1]} in {other}"
        return ""

    def _check_order(self, family: FamilyDeclaration, config: CompileConfig) -> None:
        """Check that what a family's interfaces are made of has the same text alone as behind what precedes it."""
        config = replace(config, architectures=config.architectures[:1], images=(ImageKind.PTX,), candidates=())
        headers = config.own_closure(interfaces_first(family.interfaces)).headers
        parts = [*((used.interfaces, used.name) for used in family.all_used().values())]
        parts += [((interface,), "") for interface in family.own_interfaces]
        left = {part: _left_macros(config, part[0], headers) for part in parts if part[0] != family.interfaces}
        left = {part: found for part, found in left.items() if found}
        if not left:
            return
        self._compiler.start(self._question(config, each) for each in (family.interfaces, *(part for part, _ in left)))
        every = self._read(config, family.interfaces) or []
        for (interfaces, used), found in left.items():
            alone = self._read(config, interfaces) or []
            own = set(config.own_closure(interfaces_first(interfaces)).headers.values())
            behind = _select(every, interfaces, {name for name, text in headers.items() if text in own})
            # A header of both stands where the first includes it.
            one, other = (sorted(text, key=lambda piece: headers[piece.header]) for text in (behind, alone))
            if difference := _compare(one, other, is_outline=False):
                raise _order_error(family, used, config, headers, difference, found)

    def _read(self, config: CompileConfig, interfaces: tuple[str, ...], way: _Way | None = None) -> _Text | None:
        """Return the text of some interfaces; None if callers' sources do not compile behind them."""
        answer = self._compiler.answer(self._question(config, interfaces))
        if answer.log:
            if way is not None and way.who == _CALLERS:
                return None
            what = f"the text of the interfaces cannot be compared: {answer.log.partition(chr(10))[0]}"
            raise BuildError(what, code="build-interface-alone", where=str(way or interfaces[0]))
        headers = sorted(config.own_closure(interfaces_first(interfaces)).headers)
        found = []
        for name, text in answer.found.items():
            count, header, line = map(int, name.split("_"))
            found.append((count, _Piece(headers[header], line, text[1:])))
        return [piece for _, piece in sorted(found, key=lambda each: (each[0], each[1].line))]


def _is_one_side(pair: tuple[tuple[_Way, _Text], tuple[_Way, _Text]]) -> bool:
    return pair[0][0].who == pair[1][0].who


def _architectures(config: CompileConfig) -> tuple[Architecture, ...]:
    return tuple(sorted({*config.architectures, *config.candidates}))


def _settings(config: CompileConfig) -> tuple[str, tuple[str, ...], tuple[Architecture, ...]]:
    return config.toolchain.name, config.options, _architectures(config)


def _question(config: CompileConfig, interfaces: tuple[str, ...]) -> Question:
    includes = interfaces_first(interfaces)
    own = config.own_closure(includes).headers
    headers = dict(config.complete(config.closure(includes)).headers)
    names = sorted(own)
    headers |= {name: _as_strings(number, own[name]) for number, name in enumerate(names)}
    # Where each begins, line 0 says.
    begins = "".join(f'#include "{_NEXT}"\n{_keep(names.index(each), 0)}\n#include "{each}"\n' for each in interfaces)
    return Question(config, f"{_HEAD}{begins}", ask_texts, HeaderSet({**headers, _NEXT: _count(_DIGITS).encode()}))


def _as_strings(number: int, text: bytes) -> bytes:
    """Return a header of which the lines between directives are strings."""
    again = f'#include "{_NEXT}"'
    lines = [again]
    for stretch in stretches(text):
        if stretch.word and (stretch.word != "pragma" or stretch.text == "once"):
            lines.append(f"#{stretch.word} {stretch.text}")
            if _INCLUDED.fullmatch(stretch.word):
                lines.append(again)
            continue
        content = f"{stretch.word} {stretch.text}"
        if not is_balanced(content):  # by a directive in between
            content = re.sub(r"[()]", lambda match: _PARENTHESES[match[0]], plain_text(content.encode()))
        content = content.replace("_Pragma", "jitlto_Pragma")
        lines.append(_keep(number, stretch.line, content))
    return "\n".join([*lines, ""]).encode()


def _keep(header: int, line: int, content: str = "") -> str:
    return f"jitlto_expand({', '.join(reversed(_DIGITS))}, {header}, {line}, {content})"


def _count(digits: Sequence[str]) -> str:
    """Return directives that add one to a number, of which each digit is a macro."""
    if not digits:
        return ""
    step = "#undef {0}\n#define {0} {1}\n".format
    cases = "".join(f"#elif {digits[0]} == {n}\n{step(digits[0], n + 1)}" for n in range(9))
    return f"#if 0\n{cases}#else\n{step(digits[0], 0)}{_count(digits[1:])}#endif\n"


def _select(text: _Text, interfaces: Sequence[str], headers: Collection[str]) -> _Text:
    """Return the pieces of some headers: where these interfaces include them, or else where others do before."""
    interface = ""
    within: _Text = []
    others: _Text = []
    for piece in text:
        interface = interface if piece.line else piece.header
        if piece.header in headers:
            (within if interface in interfaces else others).append(piece)
    again = {piece.header for piece in within}
    return [*(piece for piece in others if piece.header not in again), *within]


def _tokens(text: _Text, *, is_outline: bool) -> Iterator[tuple[str, _Piece]]:
    pairs = [(token, piece) for piece in text for token in _TOKEN.findall(_ATTRIBUTE.sub(_spell, piece.text))]
    if not is_outline:
        return iter(pairs)
    return (pairs[position] for position in declarations(token for token, _ in pairs))


def _spell(match: re.Match[str]) -> str:
    return f"__{match[1]}__{match[2]}" if match[1] else "inline"


def _compare(one: _Text, other: _Text, *, is_outline: bool) -> _Difference | None:
    """Return where two texts differ; an outline is without the bodies of functions."""
    for mine, theirs in zip_longest(_tokens(one, is_outline=is_outline), _tokens(other, is_outline=is_outline)):
        if mine and theirs and mine[0] == theirs[0]:
            continue
        texts = one, other
        places = [each[1][:2] for each in (mine, theirs) if each]
        lacking = (place for place in places if any(all(piece[:2] != place for piece in text) for text in texts))
        place = next(lacking, places[0])
        shown = (" ".join(piece.text for piece in text if piece[:2] == place) for text in texts)
        first, second = (f"`{textwrap.shorten(each, 200)}`" if each else "nothing" for each in shown)
        return _Difference(place[0], place[1], (first, second))
    return None


def _left_macros(config: CompileConfig, interfaces: tuple[str, ...], headers: Mapping[str, bytes]) -> dict[str, str]:
    """Return the macros that some interfaces mention and that other headers change, each with one of those."""
    own = config.own_closure(interfaces_first(interfaces)).headers
    changed = {macro: name for name, text in headers.items() if name not in own for macro in macros(text)}
    return {macro: changed[macro] for text in own.values() for macro in sorted(words(text) & changed.keys())}


def _error(family: FamilyDeclaration, difference: str) -> BuildError:
    hint = "give all groups the same, under [family]; or ask for it in the bodies of functions alone"
    return BuildError(difference, code="build-interface-architecture", where=str(family.path), hint=hint)


def _order_error(
    family: FamilyDeclaration,
    used: str,
    config: CompileConfig,
    headers: Mapping[str, bytes],
    difference: _Difference,
    left: Mapping[str, str],
) -> BuildError | FamilyError:
    macro, header = next(iter(left.items()))
    behind, alone = difference.texts
    what = f"means {behind} behind {header}:{line_of(headers[header], macro, is_macro=True)}, "
    what += f"which leaves the macro {macro} changed, and {alone} alone"
    hint = f"undefine {macro} at the end of {header}, or give it another name there"
    if used:
        what = f"{difference.header}:{difference.line} {what}"
        what += f": {family.name} is compiled behind both, the fragments of {used} behind the second alone"
        return FamilyError(what, code="family-use", where=f"{family.path} [use]", hint=hint)
    where = f"{path_of(config, difference.header)}:{difference.line}"
    return BuildError(what, code="build-interface-macro", where=where, hint=hint)
