"""Proof by the compiler: each interface compiles alone, and together they declare what fragments require of each other.

A source is compiled that has the interfaces, and a line of C++ that refers to each required symbol: it must be
declared, with exactly these parameters, every type in its signature must be complete, and the PTX must have this
symbol. What the lines say is never linked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import msgspec

from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig, entry_key
from jitlto.build.compilers.base import CompiledSource, CompileJob
from jitlto.build.execution import transport
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interfaces import path_of
from jitlto.cuda.nvrtc import program_name
from jitlto.errors import BuildError, CompileError
from jitlto.model.declarations import read_declarations, words
from jitlto.model.fragment import ImageKind
from jitlto.model.headers import HeaderSet, Source, interfaces_first
from jitlto.model.kernel_probe import NO_PROBE
from jitlto.model.mangling import demangle, parameter_types, qualified_name

#: What no interface declares as a fragment requires it: family, symbol and reason, sorted.
Faults = tuple[tuple[str, str, str], ...]

_KIND, _REVISION = "interfaces", 2  # of entries in the build cache
_SYNTAX_ONLY = {"nvrtc": ("--fdevice-syntax-only",)}
# An empty header before an interface: from there the compiler goes on for each of them, as for sources that begin
# with the same includes.
_NOTHING = "jitlto_nothing"
_PROBE_NAME = "interfaces.cu"
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
# A member function's type has qualifiers; a function that does not throw has a type of its own from C++17 on.
_FUNCTIONS = "\n".join(
    "template <class jitlto_R, class... jitlto_P> struct whole<"
    f"jitlto_R(jitlto_P...{more}){qualifier}{reference}{throws}> : all<jitlto_R, jitlto_P...> {{}};"
    for throws in ("", " noexcept")
    for qualifier in ("", " const", " volatile", " const volatile")
    for reference in ("", " &", " &&")
    for more in ("", ", ...")
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
@FUNCTIONS@
}
""".replace("@ARRAYS@", _ARRAYS).replace("@FUNCTIONS@", _FUNCTIONS)
# Types of the toolkit mean the same on both sides wherever they are defined.
_TOOLKIT_TYPES = {
    "cuda_fp16.h": re.compile(r"\b__half"),
    "cuda_bf16.h": re.compile(r"\b__nv_bfloat16"),
    "cuda_fp8.h": re.compile(r"\b__nv_fp8"),
}
_TOOLKIT_INCLUDES = "".join(f"#include <{header}>\n" for header in _TOOLKIT_TYPES)
_OTHER_TOOLKIT_TYPE = re.compile(r"\b(?:cuda|cub|thrust|nvcuda|cooperative_groups)::|\b(?:__nv_|curand)\w+")
_PACKS = re.compile(rb"#[ \t]*pragma[ \t]+pack[ \t]*\([ \t]*(?!pop\b|\))")
# In names: what has none in C++, or none outside of one source.
_NAMELESS = re.compile(r"\{(?:lambda|unnamed|default arg|parm)|\(anonymous|'lambda|'unnamed")
_FUNCTION_ARGUMENT = re.compile(r"&\(([\w:]+)\([^()]*\)\)")  # a template argument, which is spelled with its parameters
_ASKED = "jitlto_asked"
_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): [\w ]*error(?: #[\w-]+)?: (?P<text>.*)$", re.M)
_ANY_ERROR = re.compile(r"\berror(?: #[\w-]+)?: (?P<text>.*)")


class Answer(msgspec.Struct, frozen=True):
    """What a compile said, as kept in the build cache: its log if it failed, else what was found in its PTX."""

    log: str = ""
    found: dict[str, str] = {}


def try_compile(job: CompileJob) -> Answer:
    """Compile a job in this process, each architecture by itself; find the symbols of its PTX if it asks for any."""
    compiler = transport.find_compiler(job.toolchain)
    found: set[str] = set()
    try:
        for architecture in job.architectures:
            if ImageKind.PTX in job.images:
                compiled = compiler.compile(replace(job, architectures=(architecture,)))
                found.update(symbol.name for symbol in (*compiled.provides, *compiled.requires))
            else:
                syntax = replace(job, options=(*job.options, *_SYNTAX_ONLY.get(job.toolchain, ())))
                compiler.compile_ltoir(syntax, architecture)
    except CompileError as error:
        return Answer(error.log or str(error))
    return Answer(found=dict.fromkeys(sorted(found), ""))


def prove_interfaces(
    requests: Sequence[CompileRequest],
    sources: Mapping[int, CompiledSource],
    own: Mapping[str, Sequence[str]],
    opaque: frozenset[str],
    submit: Callable[..., Future[Answer]],
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
            if log := compiler.answer(config, _alone(interface)).log:
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
        self,
        submit: Callable[..., Future[Answer]],
        cache: Cache | None,
        run: Callable[[CompileJob], Answer] = try_compile,
    ) -> None:
        self._submit, self._cache, self._run = submit, cache, run
        self._headers: dict[CompileConfig, HeaderSet] = {}
        self._running: dict[tuple[CompileConfig, str], tuple[str, Answer | Future[Answer]]] = {}

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

    def _known(self, key: str) -> Answer | None:
        data = self._cache.store.get(_KIND, key) if self._cache else None
        try:
            return None if data is None else msgspec.json.decode(data, type=Answer)
        except (msgspec.MsgspecError, ValueError):
            return None

    def _compile(self, config: CompileConfig, text: str, sharers: int) -> Future[Answer]:
        tool = config.toolchain
        images = (ImageKind.PTX if self._run is not try_compile or _ASKED in text else ImageKind.LTOIR,)
        how = self._source(config, text), config.architectures, config.options, images
        job = CompileJob(tool.name, tool.identify(images), *how, sharers, NO_PROBE)
        return self._submit(job, run=self._run)

    def _source(self, config: CompileConfig, text: str) -> Source:
        if config not in self._headers:
            headers = config.complete(config.closure(_TOOLKIT_INCLUDES + interfaces_first(config.interfaces))).headers
            self._headers[config] = HeaderSet({**headers, _NOTHING: b""})
        return Source(text.encode(), self._headers[config])

    def answer(self, config: CompileConfig, text: str) -> Answer:
        """Return what the compiler said of a text, with a log if it does not compile."""
        self.start([(config, text, 1)])
        key, answer = self._running[config, text]
        if isinstance(answer, Answer):
            return answer
        made = answer.result()
        made = Answer(made.log.replace(program_name(self._source(config, text)), _PROBE_NAME), made.found)
        if self._cache is not None:
            self._cache.keep(_KIND, key, msgspec.json.encode(made))
        return made


def _faults(
    compiler: InterfaceCompiler, config: CompileConfig, names: Sequence[str], opaque: frozenset[str]
) -> Iterable[tuple[str, str]]:
    """Yield the symbols that the interfaces do not declare, with the reasons.

    What compiles may have found another declaration of the name: then its PTX has another symbol.
    """
    open_names: set[str] = set()  # of symbols whose types may be incomplete
    while names:
        text, lines = _probe(config.interfaces, names, open_names)
        answer = compiler.answer(config, text)
        if not answer.log:
            for name in lines.values():
                if name not in answer.found and not _is_structor(name):
                    yield name, f"{demangle(name)} is not what the interfaces declare by this name"
            return
        errors = [*_ERROR.finditer(answer.log)]
        found = {lines[int(m["line"])]: m["text"] for m in reversed(errors) if int(m["line"]) in lines}
        reasons = {name: text for name, text in found.items() if _is_fault(name, text, opaque)}
        if _PACK in answer.log or not found:
            raise _alone_error("", config, config.interfaces, answer.log)
        if len(reasons) == len(found):
            yield from reasons.items()
            return
        incomplete = {name for name, text in found.items() if _INCOMPLETE in text and name not in reasons}
        # What is declared and cannot be referred to is left out.
        names = [name for name in names if name not in found or name in reasons or name in incomplete - open_names]
        open_names |= incomplete


def _is_fault(name: str, text: str, opaque: frozenset[str]) -> bool:
    if _INCOMPLETE in text:
        declared = demangle(name)
        return not _OTHER_TOOLKIT_TYPE.search(declared) and opaque.isdisjoint(re.findall(r"\w+", declared))
    return "inaccessible" not in text  # private members are declared, too


def find_broken(config: CompileConfig, submit: Callable[..., Future[Answer]], cache: Cache | None) -> BuildError | None:
    """Return what is wrong with the first interface that does not compile alone; None if each of them does.

    Its sources, which are compiled behind it, then fail wherever the compiler happens to notice.

    Args:
        config: How sources are compiled that fail.
        submit, cache: As for :func:`prove_interfaces`.
    """
    compiler = InterfaceCompiler(submit, cache)
    compiler.start([(config, _alone(interface), len(config.interfaces)) for interface in config.interfaces])
    logs = ((interface, compiler.answer(config, _alone(interface)).log) for interface in config.interfaces)
    return next((_alone_error("", config, [interface], log) for interface, log in logs if log), None)


def _alone_error(family: str, config: CompileConfig, interfaces: Sequence[str], log: str) -> BuildError:
    interface = ", ".join(interfaces)
    texts = config.own_closure(interfaces_first(interfaces)).headers
    first, message = _ERROR.search(log), _ANY_ERROR.search(log)
    said = message["text"] if message else log
    if _PACK in said:
        found = ((name, text, each) for name, text in texts.items() for each in _PACKS.finditer(text))
        places = [f"{path_of(config, name)}:{text.count(10, 0, each.start()) + 1}" for name, text, each in found]
        what, hint = f"{interface} leaves #pragma pack open", "end it with #pragma pack(pop) in the same header"
        return BuildError(what, code="build-interface-pack", where=places[-1] if places else family, hint=hint)
    what = f"interface {interface} does not compile alone"
    if first and first["file"] != _PROBE_NAME:
        where, what = f"{path_of(config, first['file'])}:{first['line']}", f"{what}: {first['text']}"
        lines = log[first.end() :].partition("\n\n")[0].splitlines()  # of the header
        what = "\n".join([what, *(f"  {line}" for line in lines if line)])
        hint = "include in it what it uses: every source is compiled behind it"
    else:
        last, text = interfaces[-1], texts.get(interfaces[-1], b"").rstrip()
        where, what = f"{path_of(config, last)}:{text.count(10) + 1}", f"{what}: at its end: {said}"
        hint = "end in it what it begins, a declaration with a semicolon: every source is compiled behind it"
    return BuildError(what, code="build-interface-alone", where=where, hint=hint)


def _alone(interface: str) -> str:
    return f'#include "{_NOTHING}"\n;\n{interfaces_first([interface])}{_PACKED}'


def _probe(
    interfaces: Sequence[str], names: Sequence[str], open_names: Container[str] = ()
) -> tuple[str, dict[int, str]]:
    """Return a source that refers to some symbols, and the symbol that each of its lines refers to."""
    every = " ".join(map(demangle, names))
    includes = "".join(f"#include <{header}>\n" for header, word in _TOOLKIT_TYPES.items() if word.search(every))
    head = f"{includes}{_PACKED}{_TOOLS}"
    asked = {name: line for n, name in enumerate(names) if (line := _line(n, name, is_open=name in open_names))}
    lines = dict(enumerate(asked, head.count("\n") + 1))
    return "".join([interfaces_first(interfaces), head, *(f"{line}\n" for line in asked.values())]), lines


def _line(number: int, name: str, *, is_open: bool) -> str | None:
    """Return C++ that refers to a symbol if it is declared with complete types; None if C++ cannot name it.

    Args:
        number: Makes the names in it unique.
        name: The symbol.
        is_open: Whether its types may be incomplete.
    """
    types, called = parameter_types(name), _FUNCTION_ARGUMENT.sub(r"&\1", qualified_name(name))
    if _NAMELESS.search(", ".join([called, *(types or ())])):
        return None
    asked = f"{_ASKED}{number}"
    if _is_structor(name):  # declared with its class
        return f'static_assert(jitlto_probe::whole<::{_owner(called)}>::value, "{_INCOMPLETE}");'
    if types is None:  # of C, or a variable
        whole = "true" if is_open else f"jitlto_probe::whole<decltype(::{called})>::value"
        return f'__device__ auto {asked}() {{ static_assert({whole}, "{_INCOMPLETE}"); return &::{called}; }}'
    given = [each for each in types if each != "void"]
    parameters, checked = ", ".join(given), ", ".join(["jitlto_R", *(each for each in given if each != "...")])
    whole = "true" if is_open else f"jitlto_probe::all<{checked}>::value"
    body = f'{{ static_assert({whole}, "{_INCOMPLETE}"); return jitlto_f; }}'
    return (
        f"template <class jitlto_R> __device__ auto {asked}_of(jitlto_R (*jitlto_f)({parameters})) {body} "
        f"template <class jitlto_R, class jitlto_C> __device__ auto {asked}_of("
        f"jitlto_R (jitlto_C::*jitlto_f)({parameters}){_qualifiers(name)}) {body} "
        f"__device__ auto {asked}() {{ return {asked}_of(&::{called}); }}"
    )


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
