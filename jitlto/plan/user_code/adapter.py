"""Adapters in CUDA C++ between a family's interface and a caller's Python function.

An adapter defines the symbol that the kernel requires, and calls the Python function by a name of its own. It includes
the family's interface headers, so that the compiler determines the types that cross.
"""

import re

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import CompileError, PlanError
from jitlto.base.mangling import demangle, parameter_types, qualified_name, split_top_level
from jitlto.base.versions import Architecture
from jitlto.plan.user_code.compilation import UserCode, compile_once
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Symbol
from jitlto.record.headers import interfaces_first

#: The remedy if a Python function cannot define a C++ function.
USE_CPP = "write the function in CUDA C++ and pass it to planner.add_source(text)"
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


def compile_adapter(
    symbol: Symbol, group: str, where: str, family: FamilyRecord, base: Architecture, store: CacheDir | None
) -> tuple[UserCode, Symbol]:
    """Compile the adapter for a symbol of a group; return it and the symbol that the Python function must define.

    Raises:
        PlanError: If the group's interface does not declare the symbol, or conflicts with its definition.
    """
    name = "f_" + re.sub(r"\W", "_", symbol.name)
    text = f"{interfaces_first(family.interfaces)}{_CROSSING.replace('@NAME@', name)}{_definition(symbol)}"
    try:
        compiled = compile_once(text.encode(), family.headers, base, family.options, store)
    except CompileError as error:
        reason = re.search(r"error: (.*)", error.log)
        conflict = f"a definition of {demangle(symbol.name)} conflicts with the interface of {group}"
        what = f"{conflict}: {reason[1] if reason else error.what}"
        raise PlanError(what, code="plan-python-interface", where=where, hint=USE_CPP) from error
    inner = next((s for s in compiled.module.requires if name in s.name), None)
    if inner is None or symbol.name not in {s.name for s in compiled.module.provides}:
        what = f"the interface of {group} does not declare {demangle(symbol.name)}"
        raise PlanError(what, code="plan-python-interface", where=where, hint=USE_CPP)
    return compiled, inner


def _definition(symbol: Symbol) -> str:
    """Return C++ that defines a symbol by calling the Python function."""
    types = parameter_types(symbol.name)
    if types is None:  # C linkage: the interface declares the types
        count = len(split_top_level(symbol.layout.rpartition("(")[2].rstrip(")")))
        parts = f"jitlto_python::parts<decltype({symbol.name})>"
        types = [f"{parts}::parameter<{n}>" for n in range(count)]
        result, head = f"{parts}::result", f'extern "C" __device__ {parts}::result {symbol.name}'
    else:
        called = qualified_name(symbol.name)
        result = f"decltype({called}({', '.join(f'jitlto_python::value<{t}>()' for t in types)}))"
        head = f"{'template <> ' if called.endswith('>') else ''}__device__ {result} {called}"
    parameters = ", ".join(f"{t} a{n}" for n, t in enumerate(types))
    arguments = ", ".join(f"a{n}" for n in range(len(types)))
    return (
        f"{head}({parameters}) {{ return jitlto_python::adapt<{', '.join([result, *types])}>::call({arguments}); }}\n"
    )
