"""Questions to NVRTC about the parameters of kernels, answered in the log of the compile that is made anyway.

PTX tells the sizes of a kernel's parameters; the mangled name tells their types, except for an ``extern "C"`` kernel;
nothing tells their names. So a source is followed by declarations that generate no code and use what is marked as
deprecated, and NVRTC's warning about that spells out a type that holds the answers: the types of the parameters
of ``extern "C"`` kernels, and which words in a list of parameters are macros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from jitlto.base.mangling import base_name, split_top_level
from jitlto.compile.kernel_text import KernelDefinition, Parameters, find_kernels, plain_text

#: The first line of a probe, and a word in every message of a compiler about one.
MARK = b"\n// jitlto_probe\n"
NAME = "jitlto_probe"

_MOST_KERNELS, _MOST_WORDS = 8, 60
_SCALARS = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long",
    "unsigned long", "long long", "unsigned long long", "float", "double", "void", "wchar_t", "char16_t", "char32_t",
    "decltype(nullptr)",
)  # fmt: skip
# Those that an option or a later standard adds, by the macro that tells.
_MORE_SCALARS = {
    "__int128": "__SIZEOF_INT128__", "unsigned __int128": "__SIZEOF_INT128__", "char8_t": "__cpp_char8_t",
}  # fmt: skip
# NVRTC's own names for the former, in the arguments of a template.
_WIDE = {"**128-BIT SIGNED INTEGER**": "__int128", "**128-BIT UNSIGNED INTEGER**": "unsigned __int128"}
# Whatever a source or an option has made of this one warning.
_ANSWERS = """
#pragma nv_diag_warning deprecated_entity
template <int, unsigned long long, class...> struct jitlto_probe_answer { enum { value [[deprecated]] = 1 }; };
"""
# A type is a list from the outside in, for the compiler leaves out what is deep in one another. It ends with what has a
# name, and its number in the table of scalars, 0 for others.
_TYPES = """
template <class> struct jitlto_probe_scalar {{ enum : int {{ value = 0 }}; }};
{scalars}
template <class...> struct jitlto_probe_is;
template <int, class> struct jitlto_probe_named;
struct jitlto_probe_const;
struct jitlto_probe_volatile;
struct jitlto_probe_pointer;
struct jitlto_probe_reference;
template <unsigned long long> struct jitlto_probe_array;
template <class...> struct jitlto_probe_function;
template <class, class> struct jitlto_probe_push;
template <class F, class... T> struct jitlto_probe_push<F, jitlto_probe_is<T...>>
{{ typedef jitlto_probe_is<F, T...> is; }};
template <class T> struct jitlto_probe_type
{{ typedef jitlto_probe_is<jitlto_probe_named<jitlto_probe_scalar<T>::value, T>> is; }};
{compounds}
template <class T, class... A> struct jitlto_probe_type<T(A...)>
{{ typedef typename jitlto_probe_type<T>::is result;
  typedef jitlto_probe_is<jitlto_probe_function<result, typename jitlto_probe_type<A>::is...>> is; }};
template <int N, unsigned long long M, class> struct jitlto_probe {{ enum {{ value = 1 }}; }};
template <class...> struct jitlto_probe_list;
template <int N, unsigned long long M, class... A> struct jitlto_probe<N, M, jitlto_probe_list<A...>*>
{{ enum {{ value = jitlto_probe_answer<N, M, typename jitlto_probe_type<A>::is...>::value }}; }};
struct jitlto_probe_tag;
template <class... A> __device__ jitlto_probe_list<A...>* jitlto_probe_deduce(void (*)(A...), int);
__device__ void jitlto_probe_deduce(jitlto_probe_tag* (*)(jitlto_probe_tag*), long);
"""
_COMPOUND = """
template <class T{1}> struct jitlto_probe_type<{0}>
{{ typedef typename jitlto_probe_push<jitlto_probe_{2}, typename jitlto_probe_type<{3}>::is>::is is; }};
"""
_QUALIFIERS = ("", "const ", "volatile ", "const volatile ")
_COMPOUNDS = "".join(
    _COMPOUND.format(*each)
    for each in (
        ("const T", "", "const", "T"),
        ("volatile T", "", "volatile", "T"),
        ("const volatile T", "", "volatile", "const T"),
        ("T*", "", "pointer", "T"),
        ("T&", "", "reference", "T"),
        *((f"{cv}T[N]", ", decltype(sizeof 0) N", "array<N>", f"{cv}T") for cv in _QUALIFIERS),
        *((f"{cv}T[]", "", "array<0>", f"{cv}T") for cv in _QUALIFIERS),
    )
)
_ANSWER = re.compile(r'jitlto_probe_answer<.*?>::value \[with (.*)\]" was declared deprecated')
_DEFINE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(define|undef)[ \t]+([\w$]+)([^\n]*)", re.M)
_WORD = re.compile(r"[\w$]+")
_NUMBER = re.compile(r"(\d+)U?L*\Z", re.I)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one kernel's definition.

    Args:
        kernel: The definition.
        words: Its words, by the position of their bit in the answer.
        harmless: Those that the texts define as macros that can stand for no parameter and no name.
        doubted: Whether the texts define a macro that could, or one that could define the kernel.
    """

    kernel: KernelDefinition
    words: tuple[str, ...]
    harmless: frozenset[str]
    doubted: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """Text to put behind a source, and what it asks."""

    text: bytes = b""
    questions: tuple[Question, ...] = ()


NO_PROBE = Probe()


def make_probe(texts: Iterable[bytes], only: str | None = None) -> Probe:
    """Return a probe for the kernels that a source and its own headers define; an empty one if there are too many.

    Args:
        texts: The source and the headers.
        only: The name of a kernel without namespaces, if no other is of interest.
    """
    texts = list(texts)
    found = dict.fromkeys(k for text in texts for k in find_kernels(text) if only in (None, k.base_name))
    if not 0 < len(found) <= _MOST_KERNELS:
        return NO_PROBE
    macros = [match for text in texts for match in _find_macros(text)]
    questions = tuple(_question(kernel, macros) for kernel in found)
    text = _ANSWERS
    if any(question.kernel.is_c for question in questions):
        text += _TYPES.format(scalars=_number_scalars(), compounds=_COMPOUNDS)
    for number, question in enumerate(questions):
        bits = []
        for place, word in enumerate(question.words):
            text += f"#ifdef {word}\n#define jitlto_probe_{number}_{place} 1ULL\n#else\n"
            text += f"#define jitlto_probe_{number}_{place} 0ULL\n#endif\n"
            bits.append(f"jitlto_probe_{number}_{place} << {place}")
        mask, name = " | ".join(bits) or "0", question.kernel.name
        asked = f"jitlto_probe_answer<{number}, ({mask})>"
        if question.kernel.is_c:
            # A kernel under a condition may not be there: then the overload that is declared here is the only one.
            space, _, base = name.rpartition("::")
            overload = f"__device__ ::jitlto_probe_tag* {base}(::jitlto_probe_tag*);"
            text += f"namespace {space} {{ {overload} }}\n" if space else f"{overload}\n"
            asked = f"jitlto_probe<{number}, ({mask}), decltype(jitlto_probe_deduce(::{name}, 0))>"
        text += f'static_assert({asked}::value, "");\n'
    return Probe(MARK + text.encode(), questions)


def _number_scalars() -> str:
    text = ""
    for number, name in enumerate((*_SCALARS, *_MORE_SCALARS), 1):
        line = f"template <> struct jitlto_probe_scalar<{name}> {{ enum : int {{ value = {number} }}; }};\n"
        text += f"#ifdef {_MORE_SCALARS[name]}\n{line}#endif\n" if name in _MORE_SCALARS else line
    return text


@lru_cache(maxsize=256)  # the sources of a build share their headers
def _find_macros(text: bytes) -> list[tuple[str, str, str]]:
    return _DEFINE.findall(plain_text(text)) if b"def" in text else []


def _question(kernel: KernelDefinition, macros: Iterable[tuple[str, str, str]]) -> Question:
    defined: dict[str, bool] = {}  # whether it is harmless
    doubted = False
    undefined = set()
    for directive, name, body in macros:
        if directive == "undef":
            undefined.add(name)
        elif name in kernel.words:
            plain = name not in (kernel.names or ()) and not re.search(r"[(),#]", body)
            defined[name] = plain and defined.get(name, True)
        # Where a macro can define the kernel, what stands under a condition need not be its definition.
        doubted |= kernel.is_conditional and not {"__global__", kernel.base_name}.isdisjoint(_WORD.findall(body))
    harmless = frozenset(name for name, plain in defined.items() if plain)
    # A macro that is undefined, but not defined, is one of an option or another header.
    doubted |= len(harmless) < len(defined) or not kernel.words.isdisjoint(undefined - defined.keys())
    return Question(kernel, tuple(sorted(kernel.words)[:_MOST_WORDS]), harmless, doubted)


def strip_probe(text: bytes) -> bytes:
    """Return a source without its probe."""
    return text.partition(MARK)[0]


def read_answers(probe: Probe, log: str, kernels: Mapping[str, int]) -> dict[str, Parameters]:
    """Read names and types of parameters from the log of a compile.

    Args:
        probe: What was asked.
        log: The compiler's log.
        kernels: The mangled name of each kernel that was compiled, and the number of its parameters.

    Returns:
        The parameters of each kernel of which the probe asked.
    """
    for name, spelling in _WIDE.items():
        log = log.replace(name, spelling)
    answers: dict[int, tuple[int, tuple[str | None, ...]]] = {}
    for match in _ANSWER.finditer(log):
        parts = [part.partition("=")[2].strip() for part in split_top_level(match[1])]
        numbers = [_NUMBER.match(part) for part in parts[:2]]
        if len(parts) >= 2 and numbers[0] and numbers[1]:
            inner = parts[2].removeprefix("<").removesuffix(">") if len(parts) > 2 else ""
            answers[int(numbers[0][1])] = int(numbers[1][1]), tuple(map(_type, split_top_level(inner)))
    result = {}
    for name, count in kernels.items():
        asked = [
            (question, *answers[number])
            for number, question in enumerate(probe.questions)
            if number in answers and question.kernel.base_name == base_name(name)
        ]
        types = {t for question, _, t in asked if question.kernel.is_c and name == question.kernel.base_name}
        names = {_names(question, mask, count) for question, mask, _ in asked}
        known = names.pop() if len(names) == 1 else (None,) * count
        typed = types.pop() if len(types) == 1 else ()
        if asked:
            result[name] = tuple(zip(known, typed if len(typed) == count else (None,) * count, strict=True))
    return result


def remove_answers(log: str) -> str:
    """Return a compiler's log without what it says about a probe."""
    left = [message for message in log.split("\n\n") if NAME not in message]
    return "\n\n".join(left).strip() if any(not message.startswith("Remark:") for message in left) else ""


def _names(question: Question, mask: int, count: int) -> tuple[str | None, ...]:
    """Return the names in a definition with ``count`` parameters, none if macros leave a doubt about them."""
    kernel, unknown = question.kernel, (None,) * count
    macros = {word for place, word in enumerate(question.words) if mask >> place & 1}
    if kernel.names is None or len(kernel.names) != count or len(question.words) < len(kernel.words):
        return unknown
    # Of a macro of another header, such as the toolkit's, nothing is known.
    return unknown if question.doubted or macros - question.harmless else kernel.names


def _type(answer: str, rest: str = "") -> str | None:
    """Return the type that an answer means, spelled as demanglers do; None if the compiler left a part of it out.

    Args:
        answer: The compiler's, ``jitlto_probe_is<...>``.
        rest: What follows the type where something is declared with it.
    """
    if "/*" in answer:
        return None
    *outer, inmost = _arguments(answer)
    for kind in outer:
        if kind in _BEHIND:
            rest = _BEHIND[kind] + rest
            continue
        count = _NUMBER.match(_arguments(kind)[0])
        extent = f"[{count[1]}]" if count and count[1] != "0" else "[]"
        rest = rest + extent if rest.startswith(" (") else f" ({rest}) {extent}"
    first, *others = _arguments(inmost)
    if inmost.startswith("jitlto_probe_function"):
        parameters = ", ".join(_type(other) or "" for other in others)
        return _type(first, f" ({rest})({parameters})")
    if first != "0":
        return (*_SCALARS, *_MORE_SCALARS)[int(first) - 1] + rest
    name = re.sub(r" (?=[*&])", "", ", ".join(others)).replace(">>", "> >")
    return name.replace(" (", f" ({rest})(", 1) if rest and name.endswith(")") else name + rest


def _arguments(answer: str) -> list[str]:
    return split_top_level(answer.partition("<")[2].removesuffix(">"))


_BEHIND = {
    "jitlto_probe_const": " const",
    "jitlto_probe_volatile": " volatile",
    "jitlto_probe_pointer": "*",
    "jitlto_probe_reference": "&",
}
