"""A caller's device function in Python: compiled by numba-cuda, joined to the interface by an adapter in CUDA C++.

The adapter defines the symbol that the kernel requires and calls the Python function under a name of its own. It is
compiled with the family's interface headers before it, so that the types that cross are the compiler's, not guesses.
Numba is imported when a function has to be compiled, and not before.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType, ModuleType
from typing import Any

from jitlto.cuda import nvrtc, toolkit
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.errors import CompileError, InterfaceMismatchError, JitltoError, PlanError, ToolchainError
from jitlto.model import ptx
from jitlto.model import types as dtypes
from jitlto.model.enumeration import find_user_symbols
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Fragment, Symbol, SymbolKind
from jitlto.model.mangling import base_name, demangle, parameter_types, split_top_level
from jitlto.model.resolve import Index, UserSymbols, resolve
from jitlto.model.versions import Architecture, Version
from jitlto.runtime.user_code import compilation, inputs
from jitlto.runtime.user_code.inputs import UserInput
from jitlto.runtime.user_code.python_fingerprint import fingerprint
from jitlto.storage.cache_dir import CacheDir

_SCHEMA = 1  # of what is kept of a compiled function
_INSTALL = "install jitlto with the extra numba, beside cu12 or cu13 (in a checkout: pip install '.[cu12,numba]')"
_IN_CPP = "give the function in CUDA C++: planner.add_source(text)"
_PACKAGES = ("numba-cuda", "numba", "llvmlite", "numpy")
_NUMBA_TYPES = {
    "b1": "boolean", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64",
}  # fmt: skip
_RELEASE = re.compile(r"^// Cuda compilation tools, release (\d+\.\d+)", re.M)
# Numba passes 16-bit floats as integers of their bits, returns None as a pointer, and does not extend the sign of a
# small result.
_CROSSING = """
namespace jitlto_python {
template <typename T> struct crossing {
  using argument = T;
  using result = T;
  static __device__ argument out(T value) { return value; }
  static __device__ T back(result value) { return value; }
};
template <> struct crossing<void> {
  using result = void*;
};
#define JITLTO_SMALL(T)                                   \\
  template <> struct crossing<T> {                        \\
    using argument = T;                                   \\
    using result = int;                                   \\
    static __device__ T out(T value) { return value; }    \\
    static __device__ T back(int value) { return (T)value; } \\
  };
JITLTO_SMALL(bool)
JITLTO_SMALL(char)
JITLTO_SMALL(signed char)
JITLTO_SMALL(unsigned char)
JITLTO_SMALL(short)
JITLTO_SMALL(unsigned short)
#define JITLTO_BITS(T, TO, FROM)                                    \\
  template <> struct crossing<T> {                                  \\
    using argument = unsigned short;                                \\
    using result = unsigned short;                                  \\
    static __device__ argument out(T value) { return TO(value); }   \\
    static __device__ T back(result value) { return FROM(value); }  \\
  };
#ifdef __CUDA_FP16_H__
JITLTO_BITS(__half, __half_as_ushort, __ushort_as_half)
#endif
#ifdef __CUDA_BF16_H__
JITLTO_BITS(__nv_bfloat16, __bfloat16_as_ushort, __ushort_as_bfloat16)
#endif
template <typename T> __device__ T value();
template <int N, typename... T> struct nth;
template <typename First, typename... Rest> struct nth<0, First, Rest...> {
  using type = First;
};
template <int N, typename First, typename... Rest> struct nth<N, First, Rest...> : nth<N - 1, Rest...> {};
template <typename F> struct parts;
template <typename R, typename... P> struct parts<R(P...)> {
  using result = R;
  template <int N> using parameter = typename nth<N, P...>::type;
};
template <typename R, typename... P>
extern __device__ typename crossing<R>::result @NAME@(typename crossing<P>::argument...);
namespace {
template <typename R, typename... P> struct adapt {
  static __device__ R call(P... a) { return crossing<R>::back(@NAME@<R, P...>(crossing<P>::out(a)...)); }
};
template <typename... P> struct adapt<void, P...> {
  static __device__ void call(P... a) { @NAME@<void, P...>(crossing<P>::out(a)...); }
};
}  // namespace
}  // namespace jitlto_python
"""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A caller's function and the group whose place it takes."""

    function: FunctionType
    group: str

    @property
    def where(self) -> str:
        """What messages call it: its name, file and line."""
        code = self.function.__code__
        return f"{self.function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def python_function(function: object, group: str | None = None) -> PythonFunction:
    """Take a function that :meth:`~jitlto.runtime.planning.planner.Planner.add_function` is given.

    Parameters, defaults and errors are those of that method.
    """
    plain = getattr(function, "py_func", function)
    if not inspect.isfunction(plain):
        raise PlanError(
            f"is a {type(function).__name__}, not a Python function",
            where=getattr(function, "__name__", None) or repr(function)[:40],
            hint="give a function written with def or lambda; for CUDA C++ there is add_source",
        )
    return PythonFunction(plain, group or plain.__name__)


def from_functions(
    functions: Sequence[PythonFunction],
    family: FamilyRecord,
    fragments: Sequence[Fragment],
    configuration: Mapping[str, str],
    *,
    entry_group: str | None = None,
    pinned: Sequence[Fragment] = (),
    supplied: Sequence[UserInput] = (),
    store: CacheDir | None = None,
) -> list[UserInput]:
    """Compile callers' Python functions for the symbols that the configuration requires of their groups.

    Parameters
    ----------
    functions : sequence of PythonFunction
        What the caller gives.
    family : FamilyRecord
        Whose interfaces they implement.
    fragments : sequence of Fragment
        All of the family.
    configuration, entry_group, pinned
        As :func:`~jitlto.model.resolve.resolve` takes them.
    supplied : sequence of UserInput
        The caller's other inputs.
    store : CacheDir or None
        Where other processes find what is compiled.

    Raises
    ------
    PlanError
        If the configuration does not lead to one kernel, or that kernel requires nothing of a function's group.
    InterfaceMismatchError
        If a function has another number of parameters than the interface, or the interface a type unknown to Numba.
    CompileError
        If Numba cannot compile a function for the interface's types.
    ToolchainError
        If numba-cuda is not installed.
    """
    if not functions:
        return []
    index = Index(fragments)
    places = [UserSymbols(each.where, tuple(_defined_by(each, family, fragments, index)), ()) for each in functions]
    resolution = resolve(
        index,
        configuration,
        entry_group=entry_group,
        pinned=pinned,
        supplied=[*(item.symbols for item in supplied), *places],
    )
    owners: list[Fragment | UserSymbols] = [*resolution.fragments, *(item.symbols for item in supplied)]
    needed = {symbol.name for owner in owners for symbol in owner.requires}
    return [
        _from_function(each, [s for s in place.provides if s.name in needed], family, store)
        for each, place in zip(functions, places, strict=True)
    ]


def _defined_by(
    each: PythonFunction, family: FamilyRecord, fragments: Sequence[Fragment], index: Index
) -> list[Symbol]:
    """The functions that a group defines, as the family's fragments require them, overloads nobody provides too."""
    group = family.group(each.group)
    if group is None:
        names = [g.name for g in family.groups]
        near = difflib.get_close_matches(each.group, names, 1)
        raise PlanError(
            f"takes the place of {each.group!r}, which is no group of {family.name}",
            where=each.where,
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"name the function like a group, or give group=; the groups are {', '.join(names)}",
        )
    if group.interface is None:
        raise PlanError(
            f"takes the place of {group.name}, which declares no interface header, so that its types are not known",
            where=each.where,
            hint=f"declare interface in family.toml, or {_IN_CPP}",
        )
    provided = {s.name for f in fragments if f.key.group == group.name for s in f.provides}
    like = {base_name(name) for name in provided & index.required}
    left = find_user_symbols(family, index) if group.supplied else frozenset()
    words = set(re.findall(r"\w+", dict(family.headers).get(group.interface, "")))
    left = frozenset(name for name in left if base_name(name) in words) or left
    required = {s.name: s for f in fragments for s in f.requires if s.kind is SymbolKind.FUNCTION}
    symbols = [
        symbol
        for name, symbol in sorted(required.items())
        if name in provided | left or (not index.providers.get(name) and base_name(name) in like)
    ]
    # Of several functions of a group the one called like the Python function.
    return [s for s in symbols if base_name(s.name) == each.function.__name__] or symbols


def _from_function(
    each: PythonFunction, symbols: Sequence[Symbol], family: FamilyRecord, store: CacheDir | None
) -> UserInput:
    names = sorted({base_name(symbol.name) for symbol in symbols})
    if len(names) > 1:
        raise PlanError(
            f"{each.group} has several functions, and none is called {each.function.__name__}",
            where=each.where,
            hint=f"name the Python function like the one that it defines: {', '.join(names)}",
        )
    base = inputs.base_architecture(family)
    images: list[tuple[str, LinkInput]] = []
    provides: list[Symbol] = []
    requires: list[Symbol] = []
    weak: dict[str, str] = {}
    versions: set[Version] = set()
    identities: list[str] = []
    for symbol in symbols:
        adapter, inner = _adapter(each, symbol, family, base, store)
        python = _compiled(each, inner, _signature(each, inner.name), base, store)
        module = ptx.parse_ptx(python.ptx)
        own = next((s for s in module.provides if s.name == inner.name), None)
        if own is None or not inner.is_compatible(own):
            raise InterfaceMismatchError(
                f"Numba passes {own.layout if own else 'nothing'} where {demangle(symbol.name)} passes {inner.layout}",
                where=each.where,
                hint=f"layouts are (result)(parameters) in bytes; {_IN_CPP}",
            )
        for ltoir, text in ((adapter.ltoir[base], adapter.ptx), (python.ltoir, python.ptx)):
            images.append(("lto", LinkInput(InputKind.LTOIR, ltoir, each.where)))
            images.append(("ptx", LinkInput(InputKind.PTX, text.encode(), each.where)))
        for part in (adapter.module, module):
            provides += part.provides
            requires += part.requires
        weak |= dict(adapter.weak) | dict(module.weak)
        versions |= {adapter.version} | ({python.version} if python.version else set())
        identities += [adapter.identity, python.identity]
    defined = {symbol.name for symbol in provides}
    return UserInput(
        UserSymbols(
            each.where,
            tuple(sorted(set(provides))),
            tuple(sorted({s for s in requires if s.name not in defined})),
            tuple(sorted(weak.items())),
        ),
        tuple(images),
        max(versions),
        base,
        hashlib.sha256("\0".join(identities).encode()).hexdigest(),
    )


# --- the adapter ---


def _adapter(
    each: PythonFunction, symbol: Symbol, family: FamilyRecord, base: Architecture, store: CacheDir | None
) -> tuple[nvrtc.Compiled, Symbol]:
    """The compiled adapter for a symbol, and the symbol that it calls."""
    name = "f_" + re.sub(r"\W", "_", symbol.name)
    group = family.group(each.group)
    prelude = f'#include "{group.interface if group else ""}"\n'
    text = f"{prelude}{_CROSSING.replace('@NAME@', name)}{_definition(symbol)}"
    try:
        compiled = inputs.compile_once(text.encode(), family.headers, base, family.options, store)
    except CompileError as error:
        said = re.search(r"error: (.*)", error.log)
        raise PlanError(
            f"{demangle(symbol.name)} cannot be defined beside the interface of {each.group}: "
            f"{said[1] if said else error.what}",
            where=each.where,
            hint=_IN_CPP,
        ) from error
    inner = next((s for s in compiled.module.requires if name in s.name), None)
    if inner is None or symbol.name not in {s.name for s in compiled.module.provides}:
        raise PlanError(
            f"the interface of {each.group} does not declare {demangle(symbol.name)}",
            where=each.where,
            hint=_IN_CPP,
        )
    return compiled, inner


def _definition(symbol: Symbol) -> str:
    """C++ that defines a symbol by calling the Python function."""
    types = parameter_types(symbol.name)
    if types is None:  # C linkage: the interface knows the types
        count = len(split_top_level(symbol.layout.rpartition("(")[2].rstrip(")")))
        parts = f"jitlto_python::parts<decltype({symbol.name})>"
        types = [f"{parts}::parameter<{n}>" for n in range(count)]
        result, head = f"{parts}::result", f'extern "C" __device__ {parts}::result {symbol.name}'
    else:
        whole = demangle(symbol.name)
        called = _called(whole)
        result = f"decltype({called}({', '.join(f'jitlto_python::value<{t}>()' for t in types)}))"
        head = f"{'template <> ' if called.endswith('>') else ''}__device__ {result} {called}"
    parameters = ", ".join(f"{t} a{n}" for n, t in enumerate(types))
    arguments = ", ".join(f"a{n}" for n in range(len(types)))
    return (
        f"{head}({parameters}) {{ return jitlto_python::adapt<{', '.join([result, *types])}>::call({arguments}); }}\n"
    )


def _called(declaration: str) -> str:
    """The qualified name with its template arguments, of a demangled function.

    >>> _called("float a::f<int, float (*)(int)>(int, b::c<int>)")
    'a::f<int, float (*)(int)>'
    """
    depth, end = 0, len(declaration)
    for end in range(len(declaration) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(declaration[end], 0)
        if depth == 0:
            break
    depth, start = 0, 0
    for position in range(end):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(declaration[position], 0)
        if depth == 0 and declaration[position] == " ":
            start = position + 1
    return declaration[start:end]


# --- the Python function ---


@dataclass(frozen=True, slots=True)
class _Signature:
    """Numba's names of the types of a function: ``void``, ``float32``, ``float32*``, ``void*``."""

    result: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.result}({', '.join(self.parameters)})"


@dataclass(frozen=True, slots=True)
class _Python:
    """What Numba made of a function."""

    ltoir: bytes
    ptx: str

    @property
    def version(self) -> Version | None:
        """The toolkit whose libNVVM wrote it."""
        match = _RELEASE.search(self.ptx)
        return Version.parse(match[1]) if match else None

    @property
    def identity(self) -> str:
        """SHA-256 of it."""
        return hashlib.sha256(self.ltoir + b"\0" + self.ptx.encode()).hexdigest()


def _signature(each: PythonFunction, inner: str) -> _Signature:
    """Numba's signature of the function that the adapter calls, from the template arguments that its name spells."""
    called = _called(demangle(inner))
    result, *parameters = split_top_level(called.partition("<")[2].removesuffix(">"))
    signature = _Signature(
        _numba_type(each, result, result=True), tuple(_numba_type(each, parameter) for parameter in parameters)
    )
    try:
        inspect.signature(each.function).bind(*parameters)
    except TypeError:
        raise InterfaceMismatchError(
            f"takes {inspect.signature(each.function)}, but the kernel calls it with {len(parameters)} arguments "
            f"({', '.join(parameters)})",
            where=each.where,
            hint="give it one parameter for each argument",
        ) from None
    return signature


def _numba_type(each: PythonFunction, type_name: str, *, result: bool = False) -> str:
    if result and type_name == "void":
        return "void"
    if type_name.endswith("*"):
        pointed = dtypes.find_scalar(type_name[:-1])
        known = _NUMBA_TYPES.get(pointed.typestr) if pointed else None
        return f"{known or 'void'}*"
    scalar = dtypes.find_scalar(type_name)
    if scalar is None or scalar.typestr not in _NUMBA_TYPES:
        raise InterfaceMismatchError(
            f"{'returns' if result else 'takes'} {type_name}, for which there is no type in Numba",
            where=each.where,
            hint=_IN_CPP,
        )
    if result and scalar.typestr in ("b1", "i1", "u1", "i2", "u2"):
        return "int32"  # the adapter makes it smaller
    return _NUMBA_TYPES[scalar.typestr]


def _compiled(
    each: PythonFunction, inner: Symbol, signature: _Signature, base: Architecture, store: CacheDir | None
) -> _Python:
    told = fingerprint(each.function)
    if told is None:
        return _compiled_here(each, inner.name, signature, base)
    return _compiled_once(each, json.dumps(told, sort_keys=True), inner.name, signature, base, store)


@lru_cache(maxsize=256)
def _compiled_once(
    each: PythonFunction, told: str, name: str, signature: _Signature, base: Architecture, store: CacheDir | None
) -> _Python:
    recipe = {
        "schema": _SCHEMA,
        "function": hashlib.sha256(told.encode()).hexdigest(),
        "name": name,
        "signature": str(signature),
        "architecture": str(base),
        "compiler": _compiler(),
        "environment": {n: value for n, value in os.environ.items() if n.startswith("NUMBA_")},
    }
    entry = compilation.find(store, recipe)
    found = _unpacked(entry) if entry else None
    if found is None:
        found = _numba(each, name, signature, base)
        compilation.keep(store, recipe, {"ltoir": base64.b64encode(found.ltoir).decode(), "ptx": found.ptx})
    return found


@lru_cache(maxsize=256)
def _compiled_here(each: PythonFunction, name: str, signature: _Signature, base: Architecture) -> _Python:
    """For a function of which it cannot be told whether another one is the same: in this process, for this object."""
    return _numba(each, name, signature, base)


def _unpacked(entry: Mapping[str, object]) -> _Python | None:
    try:
        found = _Python(base64.b64decode(str(entry["ltoir"]), validate=True), str(entry["ptx"]))
        ptx.parse_ptx(found.ptx)
    except (ValueError, KeyError, JitltoError):
        return None
    return found


@cache
def _compiler() -> dict[str, str]:
    """The versions of all that decides what Numba makes."""
    try:
        versions = {name: version(name) for name in _PACKAGES}
    except PackageNotFoundError as error:
        raise ToolchainError(f"{error.name} is not installed, which compiles Python functions", hint=_INSTALL) from None
    try:
        return versions | {"nvvm": toolkit.build_id("nvvm")}
    except ToolchainError as error:
        raise ToolchainError(
            f"libNVVM, with which Numba compiles, is missing: {error.what}",
            hint="install nvidia-nvvm for CUDA 13, nvidia-cuda-nvcc-cu12 for CUDA 12",
        ) from error


def _numba(each: PythonFunction, name: str, signature: _Signature, base: Architecture) -> _Python:
    _compiler()
    cuda = _module("numba.cuda")
    types: Any = cuda.types

    def of(text: str) -> Any:
        if not text.endswith("*"):
            return getattr(types, text)
        return types.voidptr if text == "void*" else types.CPointer(getattr(types, text[:-1]))

    def compile_to(output: str) -> Any:
        return cuda.compile(
            each.function,
            of(signature.result)(*map(of, signature.parameters)),
            device=True,
            debug=False,
            lineinfo=False,
            opt=True,
            abi="c",
            abi_info={"abi_name": name},
            cc=divmod(base.number, 10),
            output=output,
        )[0]

    try:
        made = _Python(bytes(compile_to("ltoir")), str(compile_to("ptx")))
        ptx.parse_ptx(made.ptx)
    except Exception as error:
        raise _compile_error(each, signature, error) from error
    return made


def _compile_error(each: PythonFunction, signature: _Signature, error: Exception) -> CompileError:
    log = str(error).strip() or repr(error)
    indented = "\n".join(f"    {line}" for line in log.splitlines() if line.strip())
    hint = "write what numba.cuda compiles in a device function"
    if type(error).__name__ == "CudaSupportError":
        hint = (
            "to compile a function that calls another compiled function, Numba asks the device: without one, "
            "write all in one function"
        )
    elif isinstance(error, AttributeError):
        hint = _INSTALL
    return CompileError(f"Numba cannot compile it as {signature}\n{indented}", where=each.where, hint=hint, log=log)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise ToolchainError(f"{name} cannot be imported: {error}", hint=_INSTALL) from error
