"""Proof by the compiler: each interface compiles alone, and together they declare what fragments require of each other.

A source is compiled that has the interfaces, and a line of C++ that refers to each required symbol: it must be
declared, with exactly these parameters, and the PTX must have this symbol. What the lines say is never linked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from jitlto.base.errors import BuildError, FamilyError
from jitlto.base.mangling import demangle, parameter_types, qualified_name
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interface_compiler import PROBE_NAME, InterfaceCompiler, Question, ask_symbols, ask_syntax
from jitlto.build.interfaces import path_of
from jitlto.compile.compiler import CompiledSource
from jitlto.record.headers import interfaces_first

#: What no interface declares as a fragment requires it: family, symbol and reason, sorted.
Faults = tuple[tuple[str, str, str], ...]

_PACK = "jitlto: an interface leaves #pragma pack open"
_PACKED = f"""
namespace jitlto_probe {{ struct alignas(128) line@ {{ char jitlto_a[128]; }}; }}
namespace jitlto_probe {{ struct packed@ {{ char jitlto_a; line@ jitlto_b; }}; }}
static_assert(sizeof(jitlto_probe::packed@) == 256, "{_PACK}");
"""
_TOOLS = """
namespace jitlto_probe {
template <int jitlto_N, class jitlto_T> __device__ char type;
template <class jitlto_A> struct typed { jitlto_A jitlto_a; const void* jitlto_b; };
}
"""
# Types of the toolkit mean the same on both sides wherever they are defined.
_TOOLKIT_TYPES = {
    "cuda_fp16.h": re.compile(r"\b__half"),
    "cuda_bf16.h": re.compile(r"\b__nv_bfloat16"),
    "cuda_fp8.h": re.compile(r"\b__nv_fp8"),
}
_PACKS = re.compile(rb"#[ \t]*pragma[ \t]+pack[ \t]*\([ \t]*(?!pop\b|\))")
# In names: what has none in C++, or none outside of one source.
_NAMELESS = re.compile(r"\{(?:lambda|unnamed|default arg|parm)|\(anonymous|'lambda|'unnamed")
_FUNCTION_ARGUMENT = re.compile(r"&\(([\w:]+)\([^()]*\)\)")  # a template argument, which is spelled with its parameters
_TYPE = re.compile(r"_ZN12jitlto_probe4typeILi(\d+)E")
_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): [\w ]*error(?: #[\w-]+)?: (?P<text>.*)$", re.M)
_ANY_ERROR = re.compile(r"\berror(?: #[\w-]+)?: (?P<text>.*)")


class InterfaceProof:
    """The interfaces of all families of a build, proved in each way in which their sources are compiled.

    Args:
        sources: What was compiled.
        compiler: Compiles the questions, from now on.
    """

    def __init__(self, sources: Mapping[CompileRequest, CompiledSource], compiler: InterfaceCompiler) -> None:
        self._compiler = compiler
        self._required: dict[tuple[str, CompileConfig], set[str]] = defaultdict(set)
        self._types: dict[str, dict[str, str]] = defaultdict(dict)  # of each symbol, with a family that has it
        families: dict[str, set[str]] = defaultdict(set)  # that require a symbol
        for request, compiled in sources.items():
            for symbol in compiled.requires if request.config.interfaces else ():
                self._required[request.key.family, request.config].add(symbol.name)
                families[symbol.name].add(request.key.family)
        for request, compiled in sources.items():
            for symbol in compiled.provides if request.config.interfaces else ():
                if families.get(symbol.name, set()) - {request.key.family}:
                    self._required[request.key.family, request.config].add(symbol.name)
        self._in_reverse = {how: _reversed(how) for _, how in self._required if len(how.interfaces) > 1}
        self._probes = {each: _probe(each[1], sorted(names)) for each, names in self._required.items()}
        compiler.start([*self._in_reverse.values(), *(question for question, _ in self._probes.values())])

    def faults(self, own: Mapping[str, Sequence[str]]) -> Faults:
        """Return what the interfaces do not declare, for symbols which the fragments require.

        Args:
            own: The interfaces of each family itself, without those of the families that it uses.

        Raises:
            BuildError: An interface does not compile alone, or leaves ``#pragma pack`` open.
            FamilyError: A symbol has another type in a family than in another that uses it.
        """
        found: set[tuple[str, str, str]] = set()
        for (family, config), names in self._required.items():
            # What compiles in both orders borrows nothing of what precedes it.
            in_reverse = self._in_reverse.get(config)
            is_borrowed = in_reverse is not None and self._compiler.answer(in_reverse).log
            if is_borrowed and (error := find_broken(self._compiler, config, own[family])):
                raise error
            found.update((family, name, reason) for name, reason in self._judge(family, config, sorted(names)))
        for name, types in self._types.items():
            if len(types) > 1:
                forms = " and ".join(f"`{each}` in {family}" for each, family in types.items())
                hint = "what other interfaces declare hides a name that its own means: give one of them another name"
                raise FamilyError(f"the type of {demangle(name)} is {forms}", code="family-use", hint=hint)
        return tuple(sorted(found))

    def _judge(self, family: str, config: CompileConfig, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the symbols that the interfaces do not declare, with the reasons, and keep the types of the others.

        What compiles may have found another declaration of the name: then its PTX has another symbol.
        """
        question, lines = self._probes[family, config]
        while names:
            answer = self._compiler.answer(question)
            if not answer.log:
                for found in answer.found:
                    if match := _TYPE.match(found):
                        self._types[names[int(match[1])]].setdefault(_type_of(found), family)
                for name in lines.values():
                    if name not in answer.found and not _is_structor(name):
                        yield name, f"{demangle(name)} is not what the interfaces declare by this name"
                return
            errors = [*_ERROR.finditer(answer.log)]
            faulty = {lines[int(m["line"])]: m["text"] for m in reversed(errors) if int(m["line"]) in lines}
            if _PACK in answer.log or not faulty:
                raise _alone_error(config, config.interfaces, answer.log)
            reasons = {name: text for name, text in faulty.items() if "inaccessible" not in text}
            if len(reasons) == len(faulty):
                yield from reasons.items()
                return
            # Private members are declared, and cannot be referred to.
            names = [name for name in names if name not in faulty or name in reasons]
            question, lines = _probe(config, names)


def _type_of(symbol: str) -> str:
    """Return the type in the name of a variable ``jitlto_probe::type<N, T>``."""
    return demangle(symbol).partition(", ")[2].removesuffix(">").rstrip()


def find_broken(compiler: InterfaceCompiler, config: CompileConfig, interfaces: Sequence[str]) -> BuildError | None:
    """Return what is wrong with the first interface that does not compile alone; None if each of them does.

    Its sources, which are compiled behind it, then fail wherever the compiler happens to notice.
    """
    questions = [(interface, _in_order(config, [interface])) for interface in interfaces]
    compiler.start(question for _, question in questions)
    logs = ((interface, compiler.answer(question).log) for interface, question in questions)
    return next((_alone_error(config, [interface], log) for interface, log in logs if log), None)


def _reversed(config: CompileConfig) -> Question:
    return _in_order(config, config.interfaces[::-1])


def _in_order(config: CompileConfig, interfaces: Sequence[str]) -> Question:
    """Return a text of some interfaces, behind each of which no pragma may be left open."""
    parts = (f"{interfaces_first([each])}{_PACKED.replace('@', str(n))}" for n, each in enumerate(interfaces))
    return Question(config, "".join(parts), ask_syntax, _headers(config))


def _headers(config: CompileConfig, includes: str = "") -> Mapping[str, bytes]:
    return config.complete(config.closure(includes + interfaces_first(config.interfaces))).headers


def _alone_error(config: CompileConfig, interfaces: Sequence[str], log: str) -> BuildError:
    interface = ", ".join(interfaces)
    texts = config.own_closure(interfaces_first(interfaces)).headers
    first, message = _ERROR.search(log), _ANY_ERROR.search(log)
    said = message["text"] if message else log
    if _PACK in said:
        found = ((name, text, each) for name, text in texts.items() for each in _PACKS.finditer(text))
        places = [f"{path_of(config, name)}:{text.count(10, 0, each.start()) + 1}" for name, text, each in found]
        what, hint = f"{interface} leaves #pragma pack open", "end it with #pragma pack(pop) in the same header"
        return BuildError(what, code="build-interface-pack", where=places[-1] if places else interface, hint=hint)
    what = f"interface {interface} does not compile alone"
    if first and first["file"] != PROBE_NAME:
        where, what = f"{path_of(config, first['file'])}:{first['line']}", f"{what}: {first['text']}"
        lines = log[first.end() :].partition("\n\n")[0].splitlines()  # of the header
        what = "\n".join([what, *(f"  {line}" for line in lines if line)])
        hint = "include in it what it uses: every source is compiled behind it"
    else:
        last, text = interfaces[-1], texts.get(interfaces[-1], b"").rstrip()
        where, what = f"{path_of(config, last)}:{text.count(10) + 1}", f"{what}: at its end: {said}"
        hint = "end in it what it begins, a declaration with a semicolon: every source is compiled behind it"
    return BuildError(what, code="build-interface-alone", where=where, hint=hint)


def _probe(config: CompileConfig, names: Sequence[str]) -> tuple[Question, dict[int, str]]:
    """Return a source that refers to some symbols, and the symbol that each of its lines refers to."""
    every = " ".join(map(demangle, names))
    includes = "".join(f"#include <{header}>\n" for header, word in _TOOLKIT_TYPES.items() if word.search(every))
    head = f"{includes}{_PACKED.replace('@', '')}{_TOOLS}"
    asked = {name: line for n, name in enumerate(names) if (line := _line(n, name))}
    lines = dict(enumerate(asked, head.count("\n") + 1))
    text = "".join([interfaces_first(config.interfaces), head, *(f"{line}\n" for line in asked.values())])
    return Question(config, text, ask_symbols, _headers(config, includes)), lines


def _line(number: int, name: str) -> str | None:
    """Return C++ that refers to a symbol if it is declared; None if C++ cannot name it.

    Args:
        number: Makes the names in it unique.
        name: The symbol.
    """
    types, called = parameter_types(name), _FUNCTION_ARGUMENT.sub(r"&\1", qualified_name(name))
    if _NAMELESS.search(", ".join([called, *(types or ())])):
        return None
    asked = f"jitlto_asked{number}"
    if _is_structor(name):  # declared with its class
        return f"typedef ::{_owner(called)} {asked};"
    if types is None:  # of C, or a variable
        return f"__device__ auto {asked}() {{ return {_typed(number, f'&::{called}', f'decltype(::{called})')}; }}"
    parameters = ", ".join(each for each in types if each != "void")
    body = f"{{ return {_typed(number, 'jitlto_f', 'jitlto_R')}; }}"
    return (
        f"template <class jitlto_R> __device__ auto {asked}_of(jitlto_R (*jitlto_f)({parameters})) {body} "
        f"template <class jitlto_R, class jitlto_C> __device__ auto {asked}_of("
        f"jitlto_R (jitlto_C::*jitlto_f)({parameters}){_qualifiers(name)}) {body} "
        f"__device__ auto {asked}() {{ return {asked}_of(&::{called}); }}"
    )


def _typed(number: int, value: str, type_: str) -> str:
    """Return C++ for a value, with a variable that has its type in its name."""
    return f"jitlto_probe::typed<decltype({value})>{{{value}, &jitlto_probe::type<{number}, {type_}>}}"


def _qualifiers(name: str) -> str:
    """Return the qualifiers of a member function, such as ``const &``."""
    return demangle(name)[demangle(name).rfind(")") + 1 :]


def _is_structor(name: str) -> bool:
    """Return whether a mangled name is that of a constructor or destructor."""
    position = 2 if name.startswith("_Z") else len(name)
    while position < len(name):
        if length := re.compile(r"\d+").match(name, position):
            position = length.end() + int(length[0])
        elif re.compile(r"[CD][0-5]").match(name, position):
            return True
        else:
            position += 1
    return False


def _owner(called: str) -> str:
    """Return the class of a constructor or destructor that is spelled with its scopes."""
    depth = 0
    for position in range(len(called) - 1, 0, -1):
        depth += (called[position] == ">") - (called[position] == "<")
        if depth == 0 and called[position - 1 : position + 1] == "::":
            return called[: position - 1]
    return called
