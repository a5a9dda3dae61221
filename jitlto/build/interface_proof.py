"""Proof by the compiler: each interface compiles alone, and together they declare what fragments require of each other.

A source is compiled that has the interfaces, and a line of C++ that refers to each required symbol: it must be
declared, with exactly these parameters, and the PTX must have this symbol. What the lines say is never linked. The
interfaces are in reverse order, so that none can borrow from those that precede it in the sources.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import combinations

import msgspec

from jitlto.base.errors import BuildError, CompileError, FamilyError
from jitlto.base.mangling import demangle, parameter_types, qualified_name
from jitlto.build.cache.cache import Cache, decode
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution import transport
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interfaces import place_of
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.diagnostics import ERROR, find_hint
from jitlto.compile.nvrtc_program import program_name
from jitlto.compile.snapshot import LEAST_SHARERS
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.fragment import ImageKind, Values, agrees
from jitlto.record.headers import Source, interfaces_first

# What logs call a text.
_NAME = "interfaces.cu"
_KIND, _REVISION = "interfaces", 7  # of entries in the build cache

#: What no interface declares as a fragment requires it: family and symbol, sorted.
Faults = tuple[tuple[str, str], ...]

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


class Answer(msgspec.Struct, frozen=True):
    """What a compile said, as kept in the build cache: its log if it failed, else the symbols of its PTX."""

    log: str = ""
    found: tuple[str, ...] = ()


def compile_text(job: CompileJob) -> Answer:
    """Compile a job to PTX for each of its architectures."""
    compiler = transport.find_compiler(job.toolchain)
    try:
        texts = compiler.make(job, [(ImageKind.PTX, each) for each in job.architectures]).images.values()
    except CompileError as error:
        return Answer((error.log or str(error)).replace(program_name(job.source.text), _NAME))
    return Answer(found=tuple(dict.fromkeys(name for text in texts for name in parse_ptx(text.decode()).declarations)))


class InterfaceCompiler:
    """Has texts compiled, all at the same time and each once.

    Args:
        pool: Where they are compiled.
        cache: Where answers are looked up and kept.
    """

    def __init__(self, pool: Executor, cache: Cache | None) -> None:
        self._pool, self._cache = pool, cache
        self._asked: dict[str, Callable[[], Answer]] = {}

    def ask(self, config: CompileConfig, text: str, headers: Mapping[str, bytes]) -> Callable[[], Answer]:
        """Begin to compile a text, which can reach some headers; return what waits for the answer."""
        source = Source(text.encode(), headers)
        key = config.key(source, f"{_KIND} {_REVISION}")
        if key not in self._asked:
            tool = config.toolchain
            how = config.architectures, config.options, ()
            job = CompileJob(tool.name, tool.identify(()), source, *how, sharers=LEAST_SHARERS)
            self._asked[key] = functools.cache(self._start(key, job))
        return self._asked[key]

    def _start(self, key: str, job: CompileJob) -> Callable[[], Answer]:
        if self._cache is not None and (known := decode(self._cache.find(_KIND, [key]).get(key, (b"",))[0], Answer)):
            return lambda: known
        running = transport.submit(self._pool, job, compile_text)

        def finish() -> Answer:
            answer = transport.result_of(running)
            if self._cache is not None:
                self._cache.put(_KIND, key, msgspec.msgpack.encode(answer))
            return answer

        return finish


class InterfaceProof:
    """The interfaces of all families of a build, proved in each way in which their sources are compiled.

    Args:
        sources: What was compiled.
        compiler: Compiles the probes, from now on.
        users: The families that are compiled behind interfaces of others too.
    """

    def __init__(
        self, sources: Mapping[CompileRequest, CompiledSource], compiler: InterfaceCompiler, users: Collection[str]
    ) -> None:
        self._compiler, self._users = compiler, users
        # Of each symbol, with the values on which interfaces depend and a family that has it.
        self._types: dict[str, dict[tuple[str, Values], str]] = defaultdict(dict)
        compiled = [(request, source) for request, source in sources.items() if request.config.interfaces]
        families: dict[str, set[str]] = defaultdict(set)  # that require a symbol
        for request, source in compiled:
            for symbol in source.requires:
                families[symbol.name].add(request.key.family)
        required: dict[tuple[str, CompileConfig], set[str]] = defaultdict(set)
        for request, source in compiled:
            family = request.key.family
            shared = {symbol.name for symbol in source.provides if families[symbol.name] - {family}}
            required[family, request.config] |= {symbol.name for symbol in source.requires} | shared
        ways = {way: names for way, names in required.items() if names}
        self._probes = {way: _Probe(compiler, way[1], way[1].interfaces[::-1], names) for way, names in ways.items()}
        for (family, config), names in ways.items():
            if family in users:  # begin: it is asked for the types that families share
                _Probe(compiler, config, config.interfaces, names)

    def faults(self) -> Faults:
        """Return what the interfaces do not declare, for symbols which the fragments require.

        Raises:
            BuildError: An interface does not compile alone, or leaves ``#pragma pack`` open.
            FamilyError: A symbol has another type in a family than in another that uses it.
        """
        found: set[tuple[str, str]] = set()
        for (family, config), probe in self._probes.items():
            if probe.answer().log and (error := find_broken(self._compiler, config, config.interfaces)):
                raise error
            # Interfaces of one family may hide names of another's.
            if probe.answer().log or family in self._users or any(probe.undeclared()):
                found.update((family, name) for name in self._judge(family, config, probe.names))
            else:
                self._keep_types(family, config, probe)
        for name, types in self._types.items():
            for ((one, values), family), ((other, theirs), user) in combinations(types.items(), 2):
                if one == other or not agrees(values, dict(theirs)):
                    continue
                forms = f"`{one}` in {family} and `{other}` in {user}"
                hint = "what other interfaces declare hides a name that its own means: give one of them another name"
                raise FamilyError(f"the type of {demangle(name)} is {forms}", code="family-use", hint=hint)
        return tuple(sorted(found))

    def _judge(self, family: str, config: CompileConfig, names: Sequence[str]) -> Iterator[str]:
        """Yield the symbols that the interfaces do not declare, and keep the types of the others."""
        while names:
            probe = _Probe(self._compiler, config, config.interfaces, names)
            if not (log := probe.answer().log):
                self._keep_types(family, config, probe)
                yield from probe.undeclared()
                return
            errors = [(int(match["line"]), match["text"]) for match in ERROR.finditer(log)]
            faulty = {probe.lines[line]: text for line, text in reversed(errors) if line in probe.lines}
            if not faulty:
                raise _alone_error(config, config.interfaces[-1], log)
            # Private members are declared, and cannot be referred to.
            yield from (name for name, text in faulty.items() if "inaccessible" not in text)
            names = [name for name in names if name not in faulty]

    def _keep_types(self, family: str, config: CompileConfig, probe: _Probe) -> None:
        for found in probe.answer().found:
            if match := _TYPE.match(found):
                type_ = demangle(found).partition(", ")[2].removesuffix(">").rstrip()
                self._types[probe.names[int(match[1])]].setdefault((type_, config.values), family)


class _Probe:
    """A source that refers to symbols behind some interfaces, each of which may leave no pragma open.

    Attributes:
        answer: Waits for what the compiler says.
        names: The symbols, sorted.
        lines: Those that C++ can name, by the line that refers to each.
    """

    def __init__(
        self, compiler: InterfaceCompiler, config: CompileConfig, interfaces: Sequence[str], names: Iterable[str] = ()
    ) -> None:
        self.names = sorted(names)
        parts = (f"{interfaces_first([each])}{_PACKED.replace('@', str(n))}" for n, each in enumerate(interfaces))
        every = " ".join(map(demangle, self.names))
        toolkit = "".join(f"#include <{header}>\n" for header, word in _TOOLKIT_TYPES.items() if word.search(every))
        asked = {name: line for number, name in enumerate(self.names) if (line := _line(number, name))}
        self.lines = dict(enumerate(asked, _TOOLS.count("\n") + 1))
        text = "".join([*parts, toolkit, "#line 1\n", _TOOLS, *(f"{line}\n" for line in asked.values())])
        headers = config.search.complete(
            config.search.closure((toolkit + interfaces_first(interfaces)).encode(), config.generated)
        ).headers
        self.answer = compiler.ask(config, text, headers)

    def undeclared(self) -> Iterator[str]:
        """Yield symbols that PTX lacks: what compiles may have found another declaration of the name."""
        found = self.answer().found
        return (name for name in self.lines.values() if name not in found and not _is_structor(name))


def read_interfaces(compiler: InterfaceCompiler, config: CompileConfig) -> None:
    """Begin to compile the interfaces, without symbols: what is asked of NVRTC later continues where these are read."""
    if config.interfaces and config.toolchain.name == "nvrtc":
        _Probe(compiler, config, config.interfaces[::-1])


def find_broken(compiler: InterfaceCompiler, config: CompileConfig, interfaces: Sequence[str]) -> BuildError | None:
    """Return what is wrong with the first interface that does not compile alone; None if each of them does.

    Its sources, which are compiled behind it, then fail wherever the compiler happens to notice.
    """
    if len(interfaces) > 1 and not _Probe(compiler, config, interfaces[::-1]).answer().log:
        return None
    probes = [(interface, _Probe(compiler, config, [interface])) for interface in interfaces]
    logs = ((interface, probe.answer().log) for interface, probe in probes)
    return next((_alone_error(config, interface, log) for interface, log in logs if log), None)


def _alone_error(config: CompileConfig, interface: str, log: str) -> BuildError:
    texts = config.interface_headers([interface])
    first = ERROR.search(log)
    said = first["text"] if first else log
    what, code = f"interface {interface} does not compile alone: ", "build-interface-alone"
    if _PACK in said:
        opened = ((name, text, each) for name, text in texts.items() for each in _PACKS.finditer(text))
        places = [place_of(config, name, text.count(10, 0, each.start()) + 1) for name, text, each in opened]
        where, code = (places or [place_of(config, interface, 1)])[-1], "build-interface-pack"
        what, hint = f"{interface} leaves #pragma pack open", "end it with #pragma pack(pop) in the same header"
    elif first and first["file"] != _NAME:
        where, lines = place_of(config, first["file"], int(first["line"])), log[first.end() :].partition("\n\n")[0]
        what += "\n  ".join([first["text"], *filter(None, lines.splitlines())])
        hint = find_hint(log) or "include in it what it uses: every source is compiled behind it"
    else:
        where = place_of(config, interface, texts.get(interface, b"").rstrip().count(10) + 1)
        what += f"at its end: {said}"
        hint = "end in it what it begins, a declaration with a semicolon: every source is compiled behind it"
    return BuildError(what, code=code, where=where, hint=hint)


def _line(number: int, name: str) -> str | None:
    """Return C++, made unique by a number, that refers to a symbol if it is declared; None if C++ cannot name it."""
    types, called = parameter_types(name), _FUNCTION_ARGUMENT.sub(r"&\1", qualified_name(name))
    if _NAMELESS.search(", ".join([called, *(types or ())])):
        return None
    asked = f"jitlto_asked{number}"
    if _is_structor(name):  # declared with its class
        scope = called[: called.rfind("::")] if not called.endswith(">") else ""
        return f"typedef ::{scope} {asked};" if scope else None
    if types is None:  # of C, or a variable
        return f"__device__ auto {asked}() {{ return {_typed(number, f'&::{called}', f'decltype(::{called})')}; }}"
    parameters = ", ".join(each for each in types if each != "void")
    body = f"{{ return {_typed(number, 'jitlto_f', 'jitlto_R')}; }}"
    qualifiers = demangle(name)[demangle(name).rfind(")") + 1 :]  # of a member function, such as ``const &``
    return (
        f"template <class jitlto_R> __device__ auto {asked}_of(jitlto_R (*jitlto_f)({parameters})) {body} "
        f"template <class jitlto_R, class jitlto_C> __device__ auto {asked}_of("
        f"jitlto_R (jitlto_C::*jitlto_f)({parameters}){qualifiers}) {body} "
        f"__device__ auto {asked}() {{ return {asked}_of(&::{called}); }}"
    )


def _typed(number: int, value: str, type_: str) -> str:
    """Return C++ for a value, with a variable that has its type in its name."""
    return f"jitlto_probe::typed<decltype({value})>{{{value}, &jitlto_probe::type<{number}, {type_}>}}"


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
