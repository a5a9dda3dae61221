"""Proof by the compiler: each interface compiles alone, and together they declare what fragments require of each other.

A source is compiled that has the interfaces, and a line of C++ for each required symbol: it must be declared, with
exactly these parameters, and every type in its signature be complete. What the lines say is never linked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import msgspec

from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig, entry_key
from jitlto.build.compilers.base import CompiledSource, CompileJob
from jitlto.build.execution import transport
from jitlto.build.execution.request import CompileRequest
from jitlto.cuda.nvrtc import program_name
from jitlto.errors import BuildError, CompileError
from jitlto.model.declarations import read_declarations, words
from jitlto.model.headers import HeaderSet, Source, interfaces_first
from jitlto.model.kernel_probe import NO_PROBE
from jitlto.model.mangling import base_name, demangle, parameter_types, qualified_name

#: What no interface declares as a fragment requires it: family, symbol and reason, sorted.
Faults = tuple[tuple[str, str, str], ...]

_KIND, _REVISION = "interfaces", 1  # of entries in the build cache
_SYNTAX_ONLY = {"nvrtc": ("--fdevice-syntax-only",)}
# An empty header before an interface: from there the compiler goes on for each of them, as for sources that begin
# with the same includes.
_NOTHING = "jitlto_nothing"
_PACK = "jitlto: an interface leaves #pragma pack open"
_INCOMPLETE = "jitlto: a type of the signature is incomplete"
_PACKED = f"""
namespace jitlto_probe {{ struct alignas(128) whole_line {{ char jitlto_a[128]; }}; }}
namespace jitlto_probe {{ struct packed {{ char jitlto_a; whole_line jitlto_b; }}; }}
static_assert(sizeof(jitlto_probe::packed) == 256, "{_PACK}");
"""
# An array of const elements is const itself, so that each of both has a specialisation of its own.
_ARRAYS = "".join(
    f"template <class jitlto_T> struct whole<{each} jitlto_T[]> : whole<jitlto_T> {{}};\n"
    f"template <class jitlto_T, decltype(sizeof(0)) jitlto_N>\n"
    f"struct whole<{each} jitlto_T[jitlto_N]> : whole<jitlto_T> {{}};\n"
    for each in ("", "const", "volatile", "const volatile")
)
_TOOLS = """
namespace jitlto_probe {
template <class jitlto_T> struct has_size {
  template <class jitlto_U> static __device__ char of(char (*)[sizeof(jitlto_U)]);
  template <class jitlto_U> static __device__ long of(...);
  static constexpr bool value = sizeof(of<jitlto_T>(nullptr)) == 1;
};
template <class jitlto_T> struct whole { static constexpr bool value = has_size<jitlto_T>::value; };
template <class jitlto_T> struct whole<jitlto_T&> : whole<jitlto_T> {};
template <class jitlto_T> struct whole<jitlto_T&&> : whole<jitlto_T> {};
template <class jitlto_T> struct whole<jitlto_T*> : whole<jitlto_T> {};
template <class jitlto_T> struct whole<const jitlto_T> : whole<jitlto_T> {};
template <class jitlto_T> struct whole<volatile jitlto_T> : whole<jitlto_T> {};
template <class jitlto_T> struct whole<const volatile jitlto_T> : whole<jitlto_T> {};
@ARRAYS@
template <class jitlto_T, class jitlto_C> struct whole<jitlto_T jitlto_C::*> : whole<jitlto_T> {};
template <> struct whole<void> { static constexpr bool value = true; };
template <class... jitlto_T> struct all { static constexpr bool value = true; };
template <class jitlto_T, class... jitlto_R> struct all<jitlto_T, jitlto_R...> {
  static constexpr bool value = whole<jitlto_T>::value && all<jitlto_R...>::value;
};
template <class jitlto_R, class... jitlto_P> struct whole<jitlto_R(jitlto_P...)> : all<jitlto_R, jitlto_P...> {};
template <class jitlto_R, class... jitlto_P> struct whole<jitlto_R(jitlto_P..., ...)> : all<jitlto_R, jitlto_P...> {};
template <class... jitlto_P> struct exact {
  template <class jitlto_R> static __device__ jitlto_R of(jitlto_R (*)(jitlto_P...));
  template <class jitlto_R, class jitlto_C> static __device__ jitlto_R of(jitlto_R (jitlto_C::*)(jitlto_P...));
  template <class jitlto_R, class jitlto_C> static __device__ jitlto_R of(jitlto_R (jitlto_C::*)(jitlto_P...) const);
};
}
""".replace("@ARRAYS@", _ARRAYS)
# Types of the toolkit mean the same on both sides wherever they are defined.
_TOOLKIT_TYPES = {
    "cuda_fp16.h": re.compile(r"\b__half"),
    "cuda_bf16.h": re.compile(r"\b__nv_bfloat16"),
    "cuda_fp8.h": re.compile(r"\b__nv_fp8"),
}
_TOOLKIT_INCLUDES = "".join(f"#include <{header}>\n" for header in _TOOLKIT_TYPES)
_OTHER_TOOLKIT_TYPE = re.compile(r"\b(?:cuda|cub|thrust|nvcuda|cooperative_groups)::|\b(?:__nv_|curand)\w+")
_PACKS = re.compile(rb"#[ \t]*pragma[ \t]+pack[ \t]*\([ \t]*(?!pop\b|\))")
# Errors of the compiler that say so; any other means that C++ cannot ask for this symbol.
_UNDECLARED = re.compile(r"is undefined|has no member|no instance of|is not a (?:class or function )?template")
_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): [\w ]*error(?: #[\w-]+)?: (?P<text>.*)$", re.M)


class _Answer(msgspec.Struct):
    """What a compile said, as kept in the build cache: its log if it failed."""

    log: str = ""


def check_compiles(job: CompileJob) -> str:
    """Compile a job in this process; return the log if the compiler rejects it."""
    compiler = transport.find_compiler(job.toolchain)
    job = replace(job, options=(*job.options, *_SYNTAX_ONLY.get(job.toolchain, ())))
    try:
        for architecture in job.architectures:
            compiler.compile_ltoir(job, architecture)
    except CompileError as error:
        return error.log or str(error)
    return ""


def prove_interfaces(
    requests: Sequence[CompileRequest],
    sources: Mapping[int, CompiledSource],
    own: Mapping[str, Sequence[str]],
    opaque: frozenset[str],
    submit: Callable[..., Future[str]],
    cache: Cache | None,
) -> Faults:
    """Prove the interfaces of all families of a build, in each way in which their sources are compiled.

    Args:
        requests, sources: The build's, by position.
        own: The interfaces of each family itself, without those of the families that it uses.
        opaque: Types that are only declared on purpose, by their last names.
        submit: Runs a function with a job in a worker.
        cache: Where answers are looked up and kept.

    Returns:
        What the interfaces do not declare, for symbols which the fragments require.

    Raises:
        BuildError: An interface does not compile alone, or leaves ``#pragma pack`` open.
    """
    required: dict[tuple[str, CompileConfig], set[str]] = defaultdict(set)
    for position, compiled in sources.items():
        request = requests[position]
        if request.config.interfaces:
            required[request.key.family, request.config].update(symbol.name for symbol in compiled.requires)
    compiler = InterfaceCompiler(submit, cache)
    alone = {how: [each for each in own[how[0]] if _may_borrow(how[1], each)] for how in required}
    # All begin before the first is waited for.
    compiler.start(
        [(how[1], _alone(interface), len(each)) for how, each in alone.items() for interface in each]
        + [(config, _probe(config.interfaces, sorted(names))[0], 1) for (_, config), names in required.items()]
    )
    faults: set[tuple[str, str, str]] = set()
    for (family, config), names in required.items():
        for interface in alone[family, config]:
            if log := compiler.answer(config, _alone(interface)):
                raise _alone_error(family, config, [interface], log)
        faults.update((family, name, reason) for name, reason in _faults(compiler, config, sorted(names), opaque))
    return tuple(sorted(faults))


def _may_borrow(config: CompileConfig, interface: str) -> bool:
    """Return whether an interface has a word that only an interface before it declares, or may leave a pragma open.

    Otherwise it compiles alone because it compiles behind them.
    """
    before = config.interfaces[: config.interfaces.index(interface)]
    own = config.own_closure(interfaces_first([interface])).headers
    earlier = config.own_closure(interfaces_first(before)).headers
    borrowed = {name for header in earlier if header not in own for name in read_declarations(earlier[header]).names}
    known = {name for header in own if header != interface for name in read_declarations(own[header]).names}
    return any(b"pack" in text or not words(text).isdisjoint(borrowed - known) for text in own.values())


class InterfaceCompiler:
    """Compiles texts behind a family's headers, all at the same time and each once.

    Args:
        submit: Runs a function with a job in a worker.
        cache: Where answers are looked up and kept.
        run: That function, which gives the answer.
    """

    def __init__(
        self, submit: Callable[..., Future[str]], cache: Cache | None, run: Callable[[CompileJob], str] = check_compiles
    ) -> None:
        self._submit, self._cache, self._run = submit, cache, run
        self._headers: dict[CompileConfig, HeaderSet] = {}
        self._running: dict[tuple[CompileConfig, str], tuple[str, str | Future[str]]] = {}

    def start(self, texts: Iterable[tuple[CompileConfig, str, int]]) -> None:
        """Compile what the cache does not know: texts, how, and how many begin with the same includes."""
        keys = {
            (config, text): (entry_key(f"{_REVISION} {config.source_key(text)}", self._source(config, text).sha256), n)
            for config, text, n in texts
            if (config, text) not in self._running
        }
        if self._cache is not None:
            self._cache.fetch(_KIND, [key for key, _ in keys.values()])
        for (config, text), (key, sharers) in keys.items():
            known = self._known(key)
            self._running[config, text] = key, self._compile(config, text, sharers) if known is None else known

    def _known(self, key: str) -> str | None:
        data = self._cache.store.get(_KIND, key) if self._cache else None
        try:
            return None if data is None else msgspec.json.decode(data, type=_Answer).log
        except (msgspec.MsgspecError, ValueError):
            return None

    def _compile(self, config: CompileConfig, text: str, sharers: int) -> Future[str]:
        tool = config.toolchain
        how = self._source(config, text), config.architectures, config.options, config.images
        job = CompileJob(tool.name, tool.identify(config.images), *how, sharers, NO_PROBE)
        return self._submit(job, run=self._run)

    def _source(self, config: CompileConfig, text: str) -> Source:
        if config not in self._headers:
            headers = config.complete(config.closure(_TOOLKIT_INCLUDES + interfaces_first(config.interfaces))).headers
            self._headers[config] = HeaderSet({**headers, _NOTHING: b""})
        return Source(text.encode(), self._headers[config])

    def answer(self, config: CompileConfig, text: str) -> str:
        """Return the log of a text that does not compile; empty for one that does."""
        self.start([(config, text, 1)])
        key, answer = self._running[config, text]
        if isinstance(answer, str):
            return answer
        log = answer.result().replace(program_name(self._source(config, text)), "interfaces.cu")
        if self._cache is not None:
            self._cache.keep(_KIND, key, msgspec.json.encode(_Answer(log)))
        return log


def _faults(
    compiler: InterfaceCompiler, config: CompileConfig, names: Sequence[str], opaque: frozenset[str]
) -> Iterable[tuple[str, str]]:
    """Yield the symbols that the interfaces do not declare, with the compiler's reasons.

    A line that C++ cannot express may spoil others, which are asked again without it.
    """
    while names:
        text, lines = _probe(config.interfaces, names)
        log = compiler.answer(config, text)
        if not log:
            return
        found = {lines[int(m["line"])]: m["text"] for m in reversed([*_ERROR.finditer(log)]) if int(m["line"]) in lines}
        reasons = {name: text for name, text in found.items() if _is_fault(name, text, opaque)}
        if _PACK in log or not found:
            raise _alone_error("", config, config.interfaces, log)
        if len(reasons) == len(found):
            yield from reasons.items()
            return
        # What is opaque, or cannot be asked for, is left out.
        names = [name for name in names if name not in found or name in reasons]


def _is_fault(name: str, text: str, opaque: frozenset[str]) -> bool:
    if _INCOMPLETE in text:
        declared = demangle(name)
        return not _OTHER_TOOLKIT_TYPE.search(declared) and opaque.isdisjoint(re.findall(r"\w+", declared))
    return bool(_UNDECLARED.search(text))


def _alone_error(family: str, config: CompileConfig, interfaces: Sequence[str], log: str) -> BuildError:
    interface = ", ".join(interfaces)
    if _PACK in log:
        texts = config.own_closure(interfaces_first(interfaces)).headers
        found = ((name, text, each) for name, text in texts.items() for each in _PACKS.finditer(text))
        places = [f"{name}:{text.count(10, 0, each.start()) + 1}" for name, text, each in found]
        what, hint = f"{interface} leaves #pragma pack open", "end it with #pragma pack(pop) in the same header"
        return BuildError(what, code="build-interface-pack", where=places[-1] if places else family, hint=hint)
    first = _ERROR.search(log)
    where = f"{first['file']}:{first['line']}" if first else family
    what = f"interface {interface} does not compile alone: {first['text'] if first else log}"
    hint = "include in it what it uses: every source is compiled behind it"
    return BuildError(what, code="build-interface-alone", where=where, hint=hint)


def _alone(interface: str) -> str:
    return f'#include "{_NOTHING}"\n;\n{interfaces_first([interface])}{_PACKED}'


def _probe(interfaces: Sequence[str], names: Sequence[str]) -> tuple[str, dict[int, str]]:
    """Return a source that asks for some symbols, and the symbol that is asked for in each of its lines."""
    every = " ".join(map(demangle, names))
    includes = "".join(f"#include <{header}>\n" for header, word in _TOOLKIT_TYPES.items() if word.search(every))
    head = f"{includes}{_PACKED}{_TOOLS}"
    asked = {name: line for name in names if (line := _line(name))}
    lines = dict(enumerate(asked, head.count("\n") + 1))
    return "".join([interfaces_first(interfaces), head, *(f"{line}\n" for line in asked.values())]), lines


def _line(name: str) -> str | None:
    """Return C++ that compiles if a symbol is declared with complete types; None if C++ cannot ask for it."""
    declared, types = demangle(name), parameter_types(name)
    if "{" in declared or "(anonymous" in declared or base_name(name).startswith(("~", "operator")):
        return None
    if types is None:  # of C, or a variable
        return f'static_assert(jitlto_probe::whole<decltype({declared})>::value, "{_INCOMPLETE}");'
    called = qualified_name(name)
    if called.rpartition("::")[2] == called.rpartition("::")[0].rpartition("::")[2]:  # a constructor
        return None
    given = [each for each in types if each != "void"]
    if called.endswith(">"):  # the name of a function template's instance has the result, too
        result = declared.partition(called)[0].strip()
        checked = ", ".join([*([result] if result else []), *given])
        return f'static_assert(jitlto_probe::all<{checked}>::value, "{_INCOMPLETE}");'
    result = f"decltype(jitlto_probe::exact<{', '.join(given)}>::of(&{called}))"
    return f'static_assert(jitlto_probe::all<{", ".join([result, *given])}>::value, "{_INCOMPLETE}");'
