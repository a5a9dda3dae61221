"""The headers that a text names, by a scan that evaluates no condition and knows no macro: a superset of what is read.

A name stands in an ``#include``, or in a call of ``__has_include`` or another macro in a condition. Where else a text
may name a header, the scan says that it cannot follow.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from jitlto.compile.tokens import plain_text

# Blanks, comments and continued lines may stand between the words of a directive.
_COMMENT = rb"/\*(?:[^*]++|\*(?!/))*+\*/"
_GAP = rb"(?:[ \t\f\v]|" + _COMMENT + rb"|\\\r?\n)*+"
_NAME = rb'(?:"[^"\r\n]*+"|<[^>\r\n]*+>)'
_STRING = rb'"(?:[^"\\\n]++|\\\r?\n|\\.)*+"'
_LINE_REST = rb"(?:[^\n\\]++|\\\r?\n|\\)*+"
_LINE_COMMENT = rb"//" + _LINE_REST
_HIDING = b"|".join((_LINE_COMMENT, _COMMENT, _STRING))
_REST = rb"(?:[^\n(/\"\\]++|\([ \t]*<[^>\r\n]*+>|" + _HIDING + rb"|\\\r?\n|[^\n])*+"
_WORDS = rb"(include\w*+|import|embed|if|elif|define)\b"
# A toolkit's headers are megabytes: a # counts wherever only blanks stand before it, also in a comment.
_LINE = re.compile(rb"#[ \t\f\v]*+" + _WORDS + rb"(" + _LINE_REST + rb")")
# A text without these is read that way too.
_INVOLVED = re.compile(rb'/\*|R"|%:|\?\?|\\[ \t\f\v]*+\r?\n')
_WHOLE = re.compile(
    rb"^" + _GAP + rb"(?:#|%:)" + _GAP + _WORDS + rb"(" + _GAP + _NAME + rb"|" + _REST + rb")"
    rb"|" + _LINE_COMMENT + rb"|" + _COMMENT + rb'|\b(?:u8|[uUL])?R"([^ ()\\\t\v\f\n"]{0,16})\((?s:.*?)\)\3"'
    rb"|" + _STRING + rb"|'(?:[^'\\\n]|\\\r?\n|\\.)*+'" + rb"|\.?[0-9](?:[eEpP][+-]|'?\w|\.)*+|\w++",
    re.M,
)  # fmt: skip
_INCLUDED = re.compile(_GAP + rb"(" + _NAME + rb")")
_ASKED = re.compile(
    rb"\bdefined" + _GAP + rb"\(?" + _GAP + rb"__has_include\b"
    rb"|\b\w++" + _GAP + rb"\(" + _GAP + rb"(?P<name>" + _NAME + rb")" + _GAP + rb"\)|(?P<open>(?i:has_include))"
)  # fmt: skip
_MAY_ASK = re.compile(rb'[Nn][Cc][Ll][Uu][Dd][Ee]|[>"]')  # only in these a name can stand, or be asked for
_SPLICE = re.compile(rb"\\[ \t\f\v]*+\r?\n")
_DIRECTIVE = re.compile(r"^[ \t\f\v]*(?:#|%:)[ \t\v]*(\w+)[ \t]*([^\n]*)", re.M)
# What a toolkit's macro names, in a directory that another macro names, as in Thrust up to CUDA 13.0.
_IN_SOME_DIRECTORY = re.compile(rb"#[ \t]*+define[ \t]++\w++[ \t]++<\w++(/[^>\r\n]+?\.h)>")
_NVCC = 'compile the family with toolchain = "nvcc"'
# What NVRTC reads otherwise than nvcc, or not at all: what is said of it, and the remedy.
_ODD = (
    (re.compile(rb"#[ \t]*+(?:include_next|import|embed)\b|__has_include_next\b"), "is not in NVRTC", _NVCC),
    (re.compile(rb"#[ \t]*+elifn?def\b"), "is ignored by NVRTC before C++23", "write #elif defined(NAME)"),
    (re.compile(rb"\?\?[=/]"), "is a trigraph or not, by the language standard", "write the character itself"),
    (re.compile(rb"^[ \t]*+%:", re.M), "is another spelling of #", "write #"),
    (re.compile(rb"\\[ \t\f\v]++\r?\n"), "continues the line or not, by the compiler", "remove the blanks at its end"),
    (re.compile(rb"\*/[ \t\f\v]*+(?:#|%:)[ \t]*+" + _WORDS), "is a directive or not", "write it on a line"),
)  # fmt: skip


class Include(NamedTuple):
    """A header's name where it is written, from ``start`` to ``end``, with its quotes or angle brackets."""

    start: int
    end: int
    quoted: bool
    name: str


class Unclear(NamedTuple):
    """What the scan of a text cannot follow."""

    position: int  # its place in the text
    code: str  # the end of the error's code: unknown, or unsupported of what NVRTC alone does not read
    what: str
    hint: str
    is_asked: bool = False  # whether the text asks if a header exists, and does not include it


@lru_cache(maxsize=16384)
def scan(text: bytes) -> tuple[list[Include], list[Unclear]]:
    """Scan a source, or a header of an author."""
    pattern = _WHOLE if _INVOLVED.search(text) else _LINE
    includes, unclear = _read(text, pattern)
    if _SPLICE.search(text):
        joined, unsure = _read(_SPLICE.sub(b"", text), pattern)
        if [each[2:] for each in joined] != [each[2:] for each in includes] or len(unsure) != len(unclear):
            what = "a word of a directive that names a header goes on in the next line"
            unclear.append(Unclear(0, "unsupported", what, "write the directive in one line"))
            includes += [Include(0, 0, *each[2:]) for each in joined]
    for odd, what, hint in _ODD:
        if match := odd.search(text):
            found = match[0].decode("utf-8", "replace").strip()
            unclear.append(Unclear(match.start(), "unsupported", f"{found} {what}", hint))
    return includes, unclear


@lru_cache(maxsize=16384)
def scan_quickly(text: bytes) -> list[Include]:
    """Scan a header of a toolkit, of which nothing is refused: also what stands in comments is found.

    What is in a directory that a macro names has ``*`` for that directory.
    """
    ends = map(bytes.decode, _IN_SOME_DIRECTORY.findall(text))
    return [*_read(text, _LINE)[0], *(Include(0, 0, False, f"*{end}") for end in ends)]


def all_directives(text: bytes) -> Iterator[tuple[str, str]]:
    """Return the word and the rest of every directive, without comments, continued lines, and contents of strings."""
    for match in _DIRECTIVE.finditer(plain_text(text)):
        yield match[1], match[2].strip()


def _read(text: bytes, pattern: re.Pattern[bytes]) -> tuple[list[Include], list[Unclear]]:
    includes: list[Include] = []
    unclear: list[Unclear] = []
    for match in pattern.finditer(text):
        word, (start, end) = match[1], match.span(2)
        if word is None or (word == b"define" and b"nclude" not in match[2]):
            continue
        if word in (b"if", b"elif") and not _MAY_ASK.search(match[2]):
            continue
        if pattern is _LINE and text[text.rfind(b"\n", 0, match.start()) + 1 : match.start()].strip():
            continue
        if word not in (b"if", b"elif", b"define"):
            name = _INCLUDED.match(text, start, end)
            if name:
                includes.append(_include(name, 1))
            elif word in (b"include", b"include_next", b"import"):
                what = "a macro whose value only the compiler knows names a header"
                hint = f"write its name in the #include, or {_NVCC}"
                unclear.append(Unclear(match.start(1), "unknown", what, hint))
            continue
        for asked in _ASKED.finditer(text, start, end):
            if asked["name"] and (word != b"define" or asked["name"].startswith(b"<")):
                includes.append(_include(asked, "name"))
            elif asked["name"] or asked["open"]:
                what = "whether a header exists is asked through a macro"
                hint = f"write __has_include with the header's name in the #if, or {_NVCC}"
                unclear.append(Unclear(match.start(1), "unknown", what, hint, is_asked=True))
    return includes, unclear


def _include(match: re.Match[bytes], group: int | str) -> Include:
    name = match[group]
    written = name[1:-1].decode("utf-8", "surrogateescape")
    return Include(match.start(group), match.end(group), name.startswith(b'"'), written)


def rewrite(text: bytes, names: Sequence[tuple[Include, str]]) -> bytes:
    """Return a text that calls headers by other names."""
    parts, done = [], 0
    for include, name in names:
        first, last = ('"', '"') if ">" in name else ("<", ">")
        parts += [text[done : include.start], f"{first}{name}{last}".encode("utf-8", "surrogateescape")]
        done = include.end
    return b"".join([*parts, text[done:]])
