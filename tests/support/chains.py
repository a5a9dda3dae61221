"""Random chains of element-wise operations of PyTorch, and the functions that are printed for them."""

import json
import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jitlto
from jitlto import Array, Launch, Operator, Output
from jitlto.frameworks.functions import STORED
from jitlto.frameworks.parts import Seam

_UNARY = ("neg", "abs", "sign", "relu", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10",
          "log1p", "sin", "cos", "tan", "atan", "tanh", "erf", "sigmoid", "floor", "ceil", "trunc",
          "round")  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "pow")
DTYPES = ("float32", "float16", "bfloat16", "float64")
#: What printed functions need of CUDA, for the C++ compiler of the host.
SHIM = """
#include <math.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
#define asm(...)
struct float2 { float x, y; };
struct double2 { double x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
template <typename To, typename From> To bits(From x) { To y; memcpy(&y, &x, sizeof(y)); return y; }
inline float __uint_as_float(unsigned x) { return bits<float>(x); }
inline float __int_as_float(int x) { return bits<float>(x); }
inline unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return bits<double>(x); }
template <typename T> T __ldg(const T* x) { return *x; }
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
"""


def make_chain(seed: int) -> tuple[Callable[..., Any], str, str]:
    """Make a function of an element, a further input and numbers; return it, its dtype and that of its result."""
    torch, chosen = import_module("torch"), random.Random(seed)  # noqa: S311
    dtype = chosen.choice(DTYPES)
    steps = []
    for _ in range(chosen.randint(1, 5)):
        kind, unary, binary = chosen.random(), chosen.choice(_UNARY), chosen.choice(_BINARY)
        number, other = chosen.uniform(-2, 2), chosen.random() < 0.5 or binary in ("maximum", "minimum")
        steps.append((kind, getattr(torch, unary), getattr(torch, binary), number, other))
    last = chosen.choice((*DTYPES, None)) or dtype
    result, where = getattr(torch, last), torch.where

    def function(v: Any, w: Any) -> Any:
        for kind, unary, binary, number, other in steps:
            if kind < 0.45:
                v = unary(v)
            elif kind < 0.9:
                v = binary(v, w if other else number)
            else:
                v = where(v > number, v, w)
        return v.to(result)

    return function, dtype, last


def element_operator() -> Operator:
    """Declare what stands for a kernel: the functions behind it are printed, and run by themselves."""
    family: Any = lambda: None  # noqa: E731
    return Operator(
        "jitlto_chains::element", family, (Array("x", "T", "*rows n"),), (Output("y", "T", "*rows n"),),
        lambda case: {}, lambda case: Launch(1, 1), ("x", "y", "epilogue"), {"T": DTYPES},
        epilogue=Seam("group", "y", ""),
    )  # fmt: skip


def printed(element: Any, function: Callable[..., Any], v: Any, w: Any) -> str:
    """Return the function that the pass prints for a chain; nothing if it does not print all of it."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    fake = make_fx(lambda v, w: function(element(v), w), tracing_mode="fake", decomposition_table=select_decomp_table())
    graph = fake(v, w).graph
    jitlto.torch_fusion()(graph)
    calls = [node for node in graph.nodes if node.op == "call_function"]
    is_whole = len(calls) == 1 and str(calls[0].target) == "jitlto.fused.default"
    return str(json.loads(calls[0].args[0])["functions"]["epilogue"][0]) if is_whole else ""


def make_kernel(text: str, number: int, dtype: str, head: str, index: str) -> str:
    """Return a printed function under a name of its own, and a kernel that calls it for element ``i`` of ``count``.

    Args:
        text: The function.
        number: Its number.
        dtype: That of the elements.
        head: The kernel up to its body; its parameters are ``v``, ``w`` and ``output``.
        index: What declares ``i`` and ``count``.
    """
    stored, computed, _ = STORED[dtype]
    return f"""{text.replace(" store(", f" store{number}(")}
{head} {{
  {index}
  const {computed} value[1] = {{fused::to<{computed}>(static_cast<const {stored}*>(v)[i])}};
  fused::store{number}(output, 0, i, count, value, w);
}}
"""
