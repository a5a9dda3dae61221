"""Where sources test the architecture they are compiled for: ``__CUDA_ARCH__``, ``NV_IF_TARGET`` and their like.

A source makes the same code for two architectures if nothing that it can include tests a number between them. The texts
are not preprocessed: a test in an ``#if 0`` counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from jitlto.base.versions import Architecture, Version
from jitlto.cuda.compatibility import can_link_for
from jitlto.record.headers import Source

#: Architectures for which code is worth comparing: each has instructions that the one before lacks.
CANDIDATES = tuple(Architecture(number) for number in (75, 80, 86, 89, 90, 100, 120))

# Headers of the toolkit that define what others test by, or say which types exist.
_DEFINES_TESTS = re.compile(r"(?:^|/)(?:nv/|crt/|cuda/std/__cccl/|cuda_runtime_api\.h|cuda_device_runtime_api\.h)")
# Directories of the toolkit's libraries, which a family may bring along: what they test for is not its author's wish.
_LIBRARIES = re.compile(r"(?:^|/)(?:nv|crt|cub|cuda|cute|cutlass|thrust)/")
# Headers of numbers of 16 bits or fewer, and what a source that uses them mentions.
_NUMBERS = (
    (re.compile(r"(?:^|/)cuda_fp16\.hp?p?$"), re.compile(rb"half|fp16|float16|__h[a-z]")),
    (re.compile(r"(?:^|/)cuda_bf16\.hp?p?$"), re.compile(rb"bf16|bfloat")),
    (re.compile(r"(?:^|/)cuda_fp[468]\.hp?p?$"), re.compile(rb"fp[468]|float[468]_|e4m3|e5m2|e8m0|e2m1|e2m3|e3m2")),
)
_NOTHING = re.compile(rb"(?!)")
# Those that only compute capability 10.0 and later convert to and from by an instruction.
_BLACKWELL_NUMBERS = re.compile(rb"e8m0|e2m1|e2m3|e3m2|fp4|fp6")
_ARCH = rb"(?:__CUDA(?:_MINIMUM)?_ARCH__|\b_CCCL_PTX_ARCH\b(?:[ \t]*\(\))?|\bCUB_PTX_ARCH\b)"
_NAMES = (b"__CUDA_ARCH__", b"__CUDA_MINIMUM_ARCH__", b"_CCCL_PTX_ARCH", b"CUB_PTX_ARCH", b"_SM_", b"__vi")
_MENTION = re.compile(_ARCH)
# A number that stands alone: neither hexadecimal nor part of a sum.
_AFTER = re.compile(_ARCH + rb"[ \t]*\)?[ \t]*(==|!=|>=|<=|<|>)[ \t]*\(?[ \t]*(\d+)(?![\w.']|[ \t]*(?:[-+*/%^]|<<|>>))")
_BEFORE = re.compile(
    rb"(?<![\w.'])(?<![-+*/%^<>])(?<![-+*/%^<>] )(\d+)[ \t]*\)?[ \t]*(==|!=|>=|<=|<|>)[ \t]*\(?[ \t]*" + _ARCH
)
_TARGET = re.compile(rb"\bNV_(PROVIDES|IS_EXACTLY)_SM_(\d*)")
_DEFINED = re.compile(rb"(?:defined[ \t]*\(?|#[ \t]*ifn?def)[ \t]*" + _ARCH)
# All architectures of a compile: for one, its own.
_LIST = re.compile(rb"__CUDA_ARCH_LIST__|\bNV_TARGET_(?:SM_INTEGER_LIST|MINIMUM_SM)")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.S)
# The compiler's own functions for dynamic programming are instructions from compute capability 9.0 on.
_EXACT = re.compile(rb"NV_IS_EXACTLY_SM|[!=]=[ \t]*" + _ARCH + rb"|" + _ARCH + rb"[ \t]*\)?[ \t]*[!=]=")
_DPX = re.compile(rb"\b__vib?(?:add|min|max)")
# Tests for what only one architecture (a) or family (f) has.
_FEATURES = (
    (re.compile(rb"__CUDA_ARCH_(?:FEAT_|HAS_FEATURE__[ \t]*\([ \t]*)SM(\d+)_ALL"), "a"),
    (re.compile(rb"__CUDA_HAS_ARCH_SPECIFIC[ \t]*\([ \t]*(\d+)"), "a"),
    (re.compile(rb"__CUDA_HAS_ARCH_FAMILY_SPECIFIC[ \t]*\([ \t]*(\d+)"), "f"),
    (re.compile(rb"\b__CUDA_ARCH_SPECIFIC__[ \t]*\)?(?:[ \t]*[=<>]=?[ \t]*(\d+)0\b)?"), "a"),
    (re.compile(rb"\b__CUDA_ARCH_FAMILY_SPECIFIC__[ \t]*\)?(?:[ \t]*[=<>]=?[ \t]*(\d+)0\b)?"), "f"),
    (re.compile(rb"\bNV_HAS_FEATURE_SM_(\d+[af])"), ""),
)
_MIRRORED = {b">": b"<", b"<": b">", b">=": b"<=", b"<=": b">="}


class ArchitectureTests(Struct, frozen=True):
    """The architectures for which a source may make other code than for the one before. All are sorted.

    Args:
        architectures: All of them.
        beside_numbers: Those of a source whose code has no number of 16 bits or fewer.
        exact: Whether the family's own tests may be for one architecture only. Otherwise a source that makes the same
            code for two architectures makes it for those between them.
    """

    architectures: tuple[Architecture, ...]
    beside_numbers: tuple[Architecture, ...]
    exact: bool


def comparable_architectures(base: Architecture, compiler: Version, linker: Version) -> tuple[Architecture, ...]:
    """Return a base, and the later architectures worth comparing that a compiler and nvJitLink both know."""
    known = min(compiler, linker)
    return (base, *(a for a in CANDIDATES if a.number > base.number and can_link_for(known, a)))


def find_tests(
    source: Source, own: Iterable[str], candidates: Sequence[Architecture], options: Sequence[str] = ()
) -> ArchitectureTests:
    """Find the tests in a source.

    Args:
        source: With all headers that it can reach.
        own: Names of the family's own headers among them.
        candidates: The architectures to choose from, sorted; the first is never chosen.
        options: Of the compiler; they may define macros.
    """
    names = frozenset(own) & source.headers.keys()
    written = (source.text, "\n".join(options).encode(), *(source.headers[name] for name in names))
    own_tests = [None if _LIST.search(text) else _tests(text) for text in written]
    beside, numbers = list(own_tests), []
    for name, text in source.headers.items():
        if name in names:
            continue
        used = _used_by(name)
        if used is None:
            beside.append(_tests(text))
        elif used is not _NOTHING and any(used.search(each) for each in written):
            numbers.append(_tests(text))
    if not any(_BLACKWELL_NUMBERS.search(text) for text in written):
        numbers = [tests and frozenset(number for number in tests if number < 1000) for tests in numbers]
    return ArchitectureTests(
        _choose([*beside, *numbers], candidates),
        _choose(beside, candidates),
        # Between two tests, code may be other than before and after both.
        len(_choose(own_tests, candidates)) > 1 or any(_EXACT.search(text) for text in written),
    )


def find_features(source: Source) -> tuple[str, ...]:
    """Return what a source and the family's own headers test for that only one architecture or family has, sorted.

    Args:
        source: With the family's headers that it can reach.

    Returns:
        tuple: Such as ``90a`` and ``100f``; ``a`` and ``f`` for those without a number.
    """
    own = (text for name, text in source.headers.items() if not _LIBRARIES.search(name))
    return tuple(sorted(frozenset[str]().union(*map(_features, (source.text, *own)))))


def has_narrow_numbers(ptx: bytes) -> bool:
    """Return whether PTX may compute with numbers of 16 bits or fewer; inline assembly may always."""
    return b".b16" in ptx or b"inline asm" in ptx


@lru_cache(maxsize=4096)
def _used_by(name: str) -> re.Pattern[bytes] | None:
    """Return what a source mentions if it uses what a header of the toolkit tests; None for any source."""
    if _DEFINES_TESTS.search(name):
        return _NOTHING
    return next((mentions for header, mentions in _NUMBERS if header.search(name)), None)


def _choose(tests: Sequence[frozenset[int] | None], candidates: Sequence[Architecture]) -> tuple[Architecture, ...]:
    known = [each for each in tests if each is not None]
    if len(known) < len(tests):
        return tuple(candidates[1:])
    numbers = frozenset[int]().union(*known)
    return tuple(
        later
        for earlier, later in pairwise(candidates)
        if any(10 * earlier.number < number <= 10 * later.number for number in numbers)
    )


@lru_cache(maxsize=4096)  # the sources of a build share their headers
def _tests(text: bytes) -> frozenset[int] | None:
    """Return the values of ``__CUDA_ARCH__`` from which on a text may mean something else; None if any may."""
    if not any(name in text for name in _NAMES):  # most texts, and far faster than what follows
        return frozenset()
    text = _COMMENT.sub(b" ", text)
    comparisons = [(match[1], match[2]) for match in _AFTER.finditer(text)]
    comparisons += [(_MIRRORED.get(match[2], match[2]), match[1]) for match in _BEFORE.finditer(text)]
    if len(_MENTION.findall(text)) > len(comparisons) + len(_DEFINED.findall(text)):
        return None
    numbers: set[int] = set()
    for operator, digits in comparisons:
        number = int(digits)
        if operator in (b">=", b"<", b"==", b"!="):
            numbers.add(number)
        if operator in (b">", b"<=", b"==", b"!="):
            numbers.add(number + 1)
    for match in _TARGET.finditer(text):
        if not match[2]:  # a macro adds the number
            return None
        numbers.update((10 * int(match[2]), 10 * int(match[2]) + (match[1] == b"IS_EXACTLY")))
    if _DPX.search(text):
        numbers.add(900)
    return frozenset(numbers)


@lru_cache(maxsize=4096)
def _features(text: bytes) -> frozenset[str]:
    """Return the features of single architectures and families that a text tests for."""
    if not any(name in text for name in (b"__CUDA_ARCH_", b"__CUDA_HAS_ARCH_", b"NV_HAS_FEATURE_SM_")):
        return frozenset()
    text = _COMMENT.sub(b" ", text)
    return frozenset(
        (match[1] or b"").decode() + suffix for tests, suffix in _FEATURES for match in tests.finditer(text)
    )
