"""One text of the interfaces wherever fragments meet: as each compiler preprocesses them.

To see what a preprocessor makes of a header, its lines between directives are compiled as strings, whose macros the
compiler expands. Those of two ways to compile, or behind other headers and alone, are then compared word by word.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, zip_longest
from typing import NamedTuple, TypeAlias

from jitlto.base.errors import BuildError, FamilyError, JitltoError
from jitlto.base.versions import Architecture
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interface_compiler import TEXT, Answer, InterfaceCompiler
from jitlto.compile.declarations import line_of, macros, words
from jitlto.compile.heads import heads
from jitlto.compile.tokens import TOKEN, is_balanced, plain_text, skip, stretches
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.headers import HeaderSet, digest_headers, interfaces_first

_CALLERS = "callers' code"
_NEXT = "jitlto_next"  # a header that counts, since one that is included twice has two texts
_DIGITS = ("jitlto_c", "jitlto_b", "jitlto_a")  # of its count, the last first
_HEAD = f"""
#define jitlto_variable(a, b, c, header, line, ...) \\
  extern "C" __device__ char {TEXT}##a##b##c##_##header##_##line[] = " " #__VA_ARGS__;
#define jitlto_expand(...) jitlto_variable(__VA_ARGS__)
""" + "".join(f"#define {digit} 0\n" for digit in _DIGITS)
_PARENTHESES = {"(": " jitlto_open ", ")": " jitlto_close "}
# Both front ends mean the same by these, and spell them in their own ways.
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(?:__)?(\w+?)(?:__)?\s*((?:\([^()]*\))?)\s*\)\)|__inline__|__inline\b")


class _Piece(NamedTuple):
    """Lines of a header as the preprocessor gives them."""

    header: str
    line: int
    text: str


class _Way(NamedTuple):
    """How one side is compiled for one architecture."""

    who: str
    config: CompileConfig

    def __str__(self) -> str:
        tool, (architecture,) = self.config.toolchain.name, self.config.architectures
        return f"{self.who} ({' '.join([tool, *self.config.options])} for {architecture})"


_Texts: TypeAlias = dict[bytes, list[_Piece]]  # of headers, by their contents, since families have copies


def compare_texts(
    families: Sequence[FamilyDeclaration],
    requests: Iterable[CompileRequest],
    compiler: InterfaceCompiler,
    callers: Callable[[FamilyDeclaration], CompileConfig | None],
) -> dict[str, str]:
    """Check that interfaces have one text in all ways in which the fragments that share them are compiled.

    Args:
        families: All of a build.
        requests: Those of all fragments.
        compiler: Compiles the texts.
        callers: Gives how callers' sources are compiled for a family; None if that cannot be told here.

    Returns:
        What has another text in callers' sources, for each family of which something has.

    Raises:
        BuildError: Something has not one text in all fragments; or in callers' sources, where callers supply a group.
        FamilyError: A used family's interfaces have another text alone than behind those of another.
    """
    sides: dict[str, dict[CompileConfig, str]] = defaultdict(dict)  # of each family, with whose sources they are for
    for request in requests:
        sides[request.key.family].setdefault(request.config, f"{request.key.family}/{request.key.group}")
    found: dict[str, str] = {}
    for family in families:
        own = sides[family.name]
        if not own or not family.interfaces:
            continue
        users = [sides[each.name] for each in families if family.name in each.all_used()]
        if error := _find_difference(family, own | {how: who for each in users for how, who in each.items()}, compiler):
            raise error
        theirs = callers(family)
        if theirs is not None and (error := _find_difference(family, own | {theirs: _CALLERS}, compiler)):
            every = (family, *family.all_used().values())
            if any(group.template is None for each in every for group in each.groups):
                raise error
            found[family.name] = error.what
    return found


def _find_difference(
    family: FamilyDeclaration, sides: Mapping[CompileConfig, str], compiler: InterfaceCompiler
) -> JitltoError | None:
    several = any(config.candidates for config in sides) or len({_architectures(config) for config in sides}) > 1
    unlike: dict[object, CompileConfig] = {}
    for config in sides:
        headers = digest_headers(_own_headers(config, family.interfaces))
        unlike.setdefault((_settings(config), headers, *_left_macros(config, family)), config)
    if len(unlike) == 1 and not several:
        return None
    groups: dict[Architecture | None, list[tuple[_Way, Callable[[], Answer]]]] = defaultdict(list)
    for config in unlike.values():
        for each in _architectures(config):
            way = _Way(sides[config], replace(config, architectures=(each,), candidates=()))
            groups[None if several else each].append((way, _ask(compiler, way.config)))
    for asked in groups.values():
        ways = [(way, text) for way, answer in asked if (text := _read(way, answer(), family)) is not None]
        # What differs between two sides says more than what differs within one.
        for (one, text), (other, others) in sorted(
            combinations(ways, 2), key=lambda two: two[0][0].who == two[1][0].who
        ):
            is_outline = _settings(one.config) != _settings(other.config)
            for content in sorted(text.keys() | others.keys()):
                both = text.get(content, []), others.get(content, [])
                if place := _compare(*both, is_outline=is_outline):
                    return _error(family, one, other, place, both)
    return None


def _settings(config: CompileConfig) -> tuple[str, tuple[str, ...], tuple[Architecture, ...]]:
    return config.toolchain.name, config.options, _architectures(config)


def _architectures(config: CompileConfig) -> tuple[Architecture, ...]:
    return tuple(sorted({*config.architectures, *config.candidates}))


def _own_headers(config: CompileConfig, interfaces: Sequence[str]) -> Mapping[str, bytes]:
    return config.own_closure(interfaces_first(interfaces)).headers


def _ask(compiler: InterfaceCompiler, config: CompileConfig) -> Callable[[], Answer]:
    headers = dict(config.complete(config.closure(interfaces_first(config.interfaces))).headers)
    own = _own_headers(config, config.interfaces)
    names = sorted(own)
    headers |= {name: _as_strings(number, own[name]) for number, name in enumerate(names)}
    # Where each begins, line 0 says.
    begins = "".join(
        f'#include "{_NEXT}"\n{_keep(names.index(each), 0)}\n#include "{each}"\n' for each in config.interfaces
    )
    return compiler.ask(config, f"{_HEAD}{begins}", HeaderSet({**headers, _NEXT: _count(_DIGITS).encode()}))


def _read(way: _Way, answer: Answer, family: FamilyDeclaration) -> _Texts | None:
    """Return the texts of a family's interfaces; None if callers' sources do not compile behind them.

    What they include has the text that it has there, or, if it was included before, the one that it has there.
    """
    if answer.log:
        if way.who == _CALLERS:
            return None
        what = f"the text of the interfaces cannot be compared: {answer.log.partition(chr(10))[0]}"
        raise BuildError(what, code="build-interface-alone", where=str(way))
    headers = _own_headers(way.config, way.config.interfaces)
    named = (name.removeprefix(TEXT).split("_") for name in answer.found if name.startswith(TEXT))
    texts: tuple[_Texts, _Texts] = defaultdict(list), defaultdict(list)  # behind others' interfaces, and the family's
    interface = ""
    for count, number, line in sorted((int(count), int(number), int(line)) for count, number, line in named):
        place = sorted(headers)[number]
        interface = interface if line else place
        text = answer.found[f"{TEXT}{count:03}_{number}_{line}"][1:]
        texts[interface in family.interfaces][headers[place]].append(_Piece(place, line, text))
    wanted = _own_headers(way.config, family.interfaces).values()
    return {content: texts[content in texts[1]][content] for content in wanted}


def _as_strings(number: int, text: bytes) -> bytes:
    """Return a header of which the lines between directives are strings."""
    again = f'#include "{_NEXT}"'
    lines = [again]
    for stretch in stretches(text):
        if stretch.word and (stretch.word != "pragma" or stretch.text == "once"):
            lines += [f"#{stretch.word} {stretch.text}", *[again] * (stretch.word in ("include", "include_next"))]
            continue
        content = f"{stretch.word} {stretch.text}"
        if not is_balanced(content):  # by a directive in between
            content = re.sub(r"[()]", lambda match: _PARENTHESES[match[0]], plain_text(content.encode()))
        lines.append(_keep(number, stretch.line, content.replace("_Pragma", "jitlto_Pragma")))
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


def _tokens(text: Sequence[_Piece], *, is_outline: bool) -> Iterator[tuple[str, _Piece]]:
    """Yield the words of a text, each with where it is; those of an outline are not in the bodies of functions."""
    pairs = [(token, piece) for piece in text for token in TOKEN.findall(_ATTRIBUTE.sub(_spell, piece.text))]
    tokens, hidden = [token for token, _ in pairs], set[int]()
    for head in heads(tokens) if is_outline else ():
        if head.tokens[:1] == ["static_assert"]:
            hidden.update(range(head.begin, head.end))
        elif head.is_definition:
            hidden.update(range(head.end, skip(tokens, head.end)))
    return (pair for position, pair in enumerate(pairs) if position not in hidden)


def _spell(match: re.Match[str]) -> str:
    return f"__{match[1]}__{match[2]}" if match[1] else "inline"


def _compare(one: Sequence[_Piece], other: Sequence[_Piece], *, is_outline: bool) -> _Piece | None:
    """Return where two texts differ; an outline is without the bodies of functions."""
    for mine, theirs in zip_longest(_tokens(one, is_outline=is_outline), _tokens(other, is_outline=is_outline)):
        if mine is None or theirs is None or mine[0] != theirs[0]:
            places = [each[1] for each in (mine, theirs) if each]
            in_both = {piece[:2] for piece in one} & {piece[:2] for piece in other}
            return next((place for place in places if place[:2] not in in_both), places[0])
    return None


def _left_macros(config: CompileConfig, family: FamilyDeclaration) -> dict[str, tuple[str, bytes]]:
    """Return the macros that a family's interfaces mention and that others' headers change, each with one of those."""
    if config.interfaces == family.interfaces:
        return {}
    own, every = _own_headers(config, family.interfaces), _own_headers(config, config.interfaces)
    changed = {macro: (n, text) for n, text in every.items() if n not in own for macro in macros(text)}
    return {macro: changed[macro] for text in own.values() for macro in sorted(words(text) & changed.keys())}


def _error(
    family: FamilyDeclaration, one: _Way, other: _Way, place: _Piece, both: tuple[list[_Piece], list[_Piece]]
) -> JitltoError:
    shown = (" ".join(piece.text for piece in text if piece[:2] == place[:2]) for text in both)
    first, second = (f"`{textwrap.shorten(each, 200)}`" if each else "nothing" for each in shown)
    what = f"{place.header}:{place.line} is not the same on both sides: {first} in {one}; {second} in {other}"
    left = {**_left_macros(one.config, family), **_left_macros(other.config, family)}
    if not left or _settings(one.config) != _settings(other.config):
        hint = "give all groups the same, under [family]; or ask for it in the bodies of functions alone"
        return BuildError(what, code="build-interface-architecture", where=str(family.path), hint=hint)
    macro, (header, text) = next(iter(left.items()))
    what += f", behind {header}:{line_of(text, macro, is_macro=True)}, which leaves the macro {macro} changed"
    hint = f"undefine {macro} at the end of {header}, or give it another name there"
    return FamilyError(what, code="family-use", where=str(family.path), hint=hint)
