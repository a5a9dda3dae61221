"""Definitions are compared by what they say, wherever they stand in a module and whatever surrounds them."""

from functools import cache

import pytest

from jitlto.base.versions import Architecture
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.nvrtc_program import Step
from jitlto.cuda.bodies import Bodies
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

HELPERS = r"""
struct Base { __device__ virtual float go(float x) { return x; } };
static __device__ float numbers[3] = {1, 2, 3};
namespace { __device__ __noinline__ float inner(float x) { return x * 3; } }
template <typename T> __device__ inline T loops(T x, int n) {
  static const int steps[4] = {1, 2, 3, 4};
  for (int i = 0; i < n; ++i) {
    if (x > T(3)) { x = x * T(steps[i & 3]); continue; }
    switch (i % 6) {
      case 0: x += 1; break; case 1: x *= 7; break; case 2: x -= 3; break;
      case 3: x = 9; break; case 4: x = x * x; break; default: x = -x;
    }
  }
  return x;
}
__device__ inline float says(float x) { printf("hello %f\n", x); return x + 1; }
__device__ inline float calls(float (*f)(float), float x) { return f(x) + 1; }
__device__ inline float dispatches(Base* b, float x) { return b->go(x); }
__device__ inline float reads(int i) { return numbers[i]; }
__device__ inline float nested(float x) { return inner(x) + loops(x, 3); }
__device__ inline float stacked(int i, float x) { float a[16]; for (int k = 0; k < 16; ++k) a[k] = x * k;
  return a[i & 15]; }
__device__ __forceinline__ float forced(float x) { return x * 5; }
__device__ inline float lambda(float x) { auto f = [=](float y) { return x + y; }; return f(x) * f(2); }
"""
USE = """
__device__ float {name}(float x, int n, float (*f)(float), Base* b) {{
  return loops(x, n) + says(x) + calls(f, x) + dispatches(b, x) + reads(n) + nested(x) + stacked(n, x) + forced(x)
    + lambda(x);
}}
"""
BEFORE = r"""
static __device__ float others[3] = {4, 5, 6};
struct First { __device__ virtual int a() { return 1; } };
__device__ float other(float (*f)(float), float x, int n, First* o) {
  float a[7]; for (int i = 0; i < 7; ++i) a[i] = x + i;
  for (int i = 0; i < n; ++i) if (x > 3) x = f(x); else if (x < 1) x = others[i];
  printf("bla %d", o->a()); printf("blub");
  return x + a[n] + others[n];
}
"""
NAMES = ["loops", "says", "calls", "dispatches", "reads", "nested", "stacked", "forced", "lambda"]


@cache
def bodies(text: str) -> dict[str, str]:
    """Return the hashes of the weak definitions; unoptimised code has those that would be inlined away."""
    options = ("--std=c++17", "--device-debug")
    source = Source(f"#undef __forceinline__\n#define __forceinline__ __inline__\n{text}".encode(), {})
    module = parse_ptx(nvrtc.run_step(source, Step(ImageKind.PTX, Architecture(75), options)).data.decode())
    found = Bodies(module)
    return {symbol.name: found.hash(symbol.name) for symbol in module.provides if symbol.weak}


def named(bodies: dict[str, str], helper: str) -> str:
    (body,) = [body for name, body in bodies.items() if name.startswith(f"_Z{len(helper)}{helper}")]
    return body


@pytest.mark.slow
@pytest.mark.parametrize("helper", NAMES)
def test_one_helper_has_one_hash_whatever_surrounds_it(helper: str) -> None:
    alone = bodies(HELPERS + USE.format(name="a"))
    after_others = bodies(
        "/* moved */\n\n"
        + BEFORE
        + HELPERS
        + BEFORE.replace("others", "more").replace("other(", "again(").replace("First", "Second")
        + USE.format(name="b")
    )
    assert named(alone, helper) == named(after_others, helper)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("helper", "before", "after"),
    [
        ("loops", "x -= 3", "x -= 4"),
        ("says", "hello", "hullo"),
        ("calls", "f(x) + 1", "f(x) + 3"),
        ("dispatches", "b->go(x)", "b->go(x + 1)"),
        ("reads", "{1, 2, 3};", "{1, 2, 4};"),
        ("nested", "x * 3", "x * 2"),
        ("stacked", "x * k", "x + k"),
        ("lambda", "f(2)", "f(3)"),
    ],
)
def test_different_bodies_have_different_hashes(helper: str, before: str, after: str) -> None:
    assert HELPERS.count(before) == 1
    changed = bodies(HELPERS.replace(before, after) + USE.format(name="a"))
    assert named(changed, helper) != named(bodies(HELPERS + USE.format(name="a")), helper)


def test_a_static_table_of_an_inline_function_counts_by_its_values() -> None:
    one, other = (
        bodies(HELPERS.replace("{1, 2, 3, 4}", values) + USE.format(name="a"))
        for values in ("{1, 2, 3, 4}", "{1, 2, 3, 5}")
    )
    assert {name for name in one if one[name] != other[name]} >= {name for name in one if name.endswith("E5steps")}
    assert any(name.endswith("E5steps") for name in one)


@pytest.mark.slow
def test_hashing_a_body_takes_no_longer_for_shared_and_deep_internal_calls() -> None:
    """Each function calls its predecessor twice: exponentially many paths, and too deep for recursion."""
    bodies = "".join(
        f".func f{n}()\n{{\n\tcall.uni f{n - 1}, ();\n\tcall.uni f{n - 1}, ();\n}}\n" for n in range(1, 500)
    )
    text = f".version 8.0\n.target sm_75\n.address_size 64\n.func f0()\n{{\n\tret;\n}}\n{bodies}"
    text += ".weak .func top()\n{\n\tcall.uni f499, ();\n}\n"
    assert len(Bodies(parse_ptx(text)).hash("top")) == 64


HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
FUNCTION = ".func {name}()\n{{\n\tst.global.u32 [%rd1], {value};\n\tbra $L__BB{n}_1;\n$L__BB{n}_1:\n\tret;\n}}\n"
ENTRY = ".visible .entry k()\n{{\n\tcall.uni {0}, ();\n\tcall.uni {1}, ();\n\tret;\n}}\n"


def module(calls: tuple[str, str], *functions: tuple[str, int]) -> str:
    texts = [FUNCTION.format(name=name, value=value, n=n) for n, (name, value) in enumerate(functions)]
    return HEAD + "".join(texts) + ENTRY.format(*calls)


def summary(text: str) -> str:
    return Bodies(parse_ptx(text)).hash("k")


def test_the_order_of_definitions_and_the_numbers_of_copies_do_not_count() -> None:
    one = module(("f", "g"), ("f", 1), ("g", 2))
    other = module(("f$3", "g$7"), ("g$7", 2), ("f$3", 1))
    assert summary(one) == summary(other)


def test_copies_that_differ_are_told_apart() -> None:
    one, other = (module(calls, ("f", 1), ("f$1", 2)) for calls in (("f", "f$1"), ("f$1", "f")))
    assert summary(one) != summary(other)


def test_places_in_a_frame_count_unless_they_depend_on_the_order() -> None:
    def framed(size: int, *places: str) -> str:
        first, second = places
        return (
            f"{HEAD}.visible .entry k()\n{{\n\t.local .align 16 .b8 \t__local_depot0[{size}];\n"
            "\tmov.u64 \t%SPL, __local_depot0;\n\tcvta.local.u64 \t%SP, %SPL;\n"
            f"\tst.f32 \t[%SP{first}], %f1;\n\tadd.u64 \t%rd1, %SP, {second};\n\tret;\n}}\n"
        )

    one, other = parse_ptx(framed(32, "+16", "4")), parse_ptx(framed(16, "", "8"))
    assert Bodies(one).hash("k") != Bodies(other).hash("k")
    assert Bodies(one, frames=False).hash("k") == Bodies(other, frames=False).hash("k")
    changed = parse_ptx(framed(16, "", "8").replace("%f1", "%f2"))
    assert Bodies(other, frames=False).hash("k") != Bodies(changed, frames=False).hash("k")
