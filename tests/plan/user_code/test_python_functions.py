"""A Python function replaces a group: compiled by numba-cuda, typed by the interface, inlined by the link."""

import json
import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import (
    AmbiguousConfigurationError,
    CompileError,
    InterfaceMismatchError,
    PlanError,
    ToolchainError,
)
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.plan.planner import Planner
from jitlto.plan.user_code import numba_compiler
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import built, calling_op


def _why_not() -> str | None:
    """Return why Numba cannot be used: it is not installed, or does not work with the installed NumPy."""
    if find_spec("numba_cuda") is None:
        return "numba-cuda is not installed"
    from numba import cuda

    def same(x: float) -> float:
        return x

    try:
        cuda.compile(same, "float32(float32)", device=True, abi="c", cc=(7, 5))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it
        return f"Numba does not work here: {error}"
    return None


_REASON = _why_not()
needs_numba = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


STANDARD = {
    "out_type": "float",
    "idx_type": "uint32_t",
    "optimized_name": "standard",
    "veclen": "8",
    "filter_name": "filter_none",
}


def manhattan(query, row):  # type: ignore[no-untyped-def]
    return abs(np.float32(query) - np.float32(row))


@pytest.fixture(scope="module")
def transform(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    """The shipped family ``transform``, built alone."""
    database = tmp_path_factory.mktemp("transform") / "transform.fragdb"
    report = build([declaration.load_family(declaration.find_family("transform"))], database)
    return KernelFamily("transform", FragmentDatabase(report.path))


def planned(
    family: KernelFamily,
    function: object,
    group: str | None = None,
    *,
    arch: str | None = "sm_90",
    mode: str = "lto",
    **configuration: object,
) -> Plan:
    return with_functions(family, [(function, group)], **configuration).plan(arch=arch, link_mode=mode)


def with_functions(
    family: KernelFamily, given: Sequence[tuple[object, str | None]], *sources: str, **configuration: object
) -> Planner:
    """Return a planner with Python functions and sources."""
    planner = family.planner(**configuration)
    for number, text in enumerate(sources):
        planner.add_source(text, f"{number}.cu")
    for function, group in given:
        planner.add_function(function, group)
    return planner


# --- the shipped families ---


@needs_numba
@pytest.mark.slow
def test_python_code_is_compiled_with_the_fast_math_of_its_plan(search: KernelFamily) -> None:
    def sine(query, row):  # type: ignore[no-untyped-def]
        return np.float32(math.sin(np.float32(query - row)))

    planner = with_functions(search, [(sine, "compute_distance")], data_type="float", **STANDARD)
    for fast in (False, True, False):
        plan = planner.plan(arch="sm_90", link_options={"fast_math": fast})
        assert ("sin.approx" in plan.link_ptx()) == fast


@needs_numba
@pytest.mark.parametrize("mode", ["lto", "ptx"])
@pytest.mark.parametrize("data_type", ["float", "double"])
def test_a_python_function_can_supply_a_group_without_fragments(
    transform: KernelFamily, data_type: str, mode: str
) -> None:
    def square(x):  # type: ignore[no-untyped-def]
        return x * x + 1

    plan = planned(transform, square, "user_transform", mode=mode, data_type=data_type)
    assert plan.link().cubin[:4] == b"\x7fELF"
    if mode == "lto":
        assert plan.calls_left() == []
    else:
        assert f"_Z14user_transform{data_type[0]}".encode() in plan.link().cubin


@needs_numba
def test_a_function_decorated_with_cuda_jit_can_be_used(transform: KernelFamily) -> None:
    from numba import cuda

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def square(x):  # type: ignore[no-untyped-def]
        return x * x

    plan = planned(transform, square, "user_transform", data_type="float")
    assert plan.digest == planned(transform, square.py_func, "user_transform", data_type="float").digest


# --- every type that crosses ---

SCALARS = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long long",
    "unsigned long long", "__half", "__nv_bfloat16", "float", "double",
)  # fmt: skip
TYPES_FAMILY = {
    "family.toml": """
[family]
name = "types"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type"]
params = ["{{data_type}}* x"]

[device.op]
supplied = true
interface = "op.cuh"
""",
    "kern.json": json.dumps({"data_type": SCALARS}),
    "op.cuh": """#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace types { template <typename T> extern __device__ T op(T a, const T* b); }
""",
    "kern.cu.jinja": """#include "op.cuh"
namespace types {
// A result whose sign was lost on the way is not less than zero.
template <typename T> __global__ void kern(T* x) {
  const T result = op(x[threadIdx.x], x);
  x[threadIdx.x] = result < T(0) ? T(1) : result;
}
template __global__ void kern<{{data_type}}>({{data_type}}*);
}
""",
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("types"), TYPES_FAMILY, "types")


@needs_numba
@pytest.mark.slow
@pytest.mark.parametrize("data_type", SCALARS)
def test_every_scalar_type_crosses(typed: KernelFamily, data_type: str) -> None:
    def op(a, b):  # type: ignore[no-untyped-def]
        return a

    plan = planned(typed, op, data_type=data_type)
    assert plan.calls_left() == []
    assert planned(typed, op, mode="ptx", data_type=data_type).link().cubin[:4] == b"\x7fELF"


INTERFACE_FAMILY = calling_op("plain", "@DECLARATION@", "__global__ void kern(float* x) { @CALL@; }")


def plain(build_family: BuildFamily, declaration: str, call: str) -> KernelFamily:
    files = {n: t.replace("@DECLARATION@", declaration).replace("@CALL@", call) for n, t in INTERFACE_FAMILY.items()}
    return KernelFamily("plain", FragmentDatabase(build_family(files).path))


@needs_numba
@pytest.mark.slow
@pytest.mark.parametrize(
    ("declaration", "call"),
    [
        ('extern "C" __device__ float op(float a, const int* b);', "*x = op(*x, (int*)x)"),
        ('extern "C" __device__ float op();', "*x = op()"),
        ("__device__ void op(float* a);", "op(x)"),
        ("namespace a { namespace b { __device__ bool op(char a); } }", "*x = a::b::op(1)"),
        ("namespace a { template <int N, typename T> extern __device__ T* op(T* a); }", "*x = *a::op<3>(x)"),
        ("template <typename T> extern __device__ double op(T a, T b); __device__ int op(int);", "*x = op(*x, *x)"),
    ],
)
def test_functions_of_every_form_can_be_python(build_family: BuildFamily, declaration: str, call: str) -> None:
    count = call.count(",") + (0 if call.endswith("()") else 1)
    names = ["a", "b", "c"][: 0 if "op()" in declaration else count]
    body = "a[0] = 1.0" if "void op" in declaration else "return a" if "T*" in declaration else "return 1"
    scope: dict[str, Any] = {}
    exec(f"def op({', '.join(names)}):\n    {body}\n", scope)  # noqa: S102 - our own words
    family = plain(build_family, declaration, call)
    plan = planned(family, scope["op"])
    assert plan.link().cubin[:4] == b"\x7fELF"
    assert plan.calls_left() == []
    assert planned(family, scope["op"], mode="ptx").link().cubin[:4] == b"\x7fELF"


@needs_numba
def test_the_name_selects_among_several_functions_of_a_group(build_family: BuildFamily) -> None:
    declaration = "__device__ float first(float a); __device__ float second(float a);"
    family = plain(build_family, declaration, "*x = first(second(*x))")

    def first(a):  # type: ignore[no-untyped-def]
        return a

    second = "__device__ float second(float a) { return a; }"
    plan = with_functions(family, [(first, "op")], second).plan(arch="sm_90")
    assert plan.calls_left() == []
    plan = with_functions(family, [(first, "op"), (renamed(first, "second"), "op")]).plan(arch="sm_90")
    assert plan.calls_left() == []
    with raises(PlanError, "plan-python-name", "op", "<lambda>", hint="first, second"):
        planned(family, lambda a: a, "op")


@needs_numba
def test_two_groups_that_callers_supply_get_their_own_functions(build_family: BuildFamily) -> None:
    files = INTERFACE_FAMILY | {
        "family.toml": INTERFACE_FAMILY["family.toml"] + '\n[device.other]\nsupplied = true\ninterface = "other.cuh"\n',
        "op.cuh": "#pragma once\n__device__ float op(float a);\n",
        "other.cuh": "#pragma once\n__device__ float other(float a, float b);\n",
        "kern.cu.jinja": '#include "op.cuh"\n#include "other.cuh"\n'
        "__global__ void kern(float* x) { *x = op(other(*x, *x)); }\n",
    }
    family = KernelFamily("plain", FragmentDatabase(build_family(files).path))
    functions = [(lambda a: a, "op"), (lambda a, b: a - b, "other")]
    assert with_functions(family, functions).plan(arch="sm_90").calls_left() == []


def renamed(function: Any, name: str) -> Any:
    return FunctionType(function.__code__, function.__globals__, name)


# --- what is refused ---


def here(function: Any) -> str:
    return f"{function.__qualname__} ({__file__}:{function.__code__.co_firstlineno})"


def square(x):  # type: ignore[no-untyped-def]
    return x * x


@pytest.mark.parametrize("wrong", [1, "text", print, PlanError], ids=str)
def test_an_object_that_is_not_a_function_is_refused(transform: KernelFamily, wrong: object) -> None:
    with raises(PlanError, "plan-invalid-input", type(wrong).__name__):
        planned(transform, wrong, "user_transform", data_type="float")


def test_what_a_function_is_not_for_is_an_error_that_says_so(transform: KernelFamily) -> None:
    with raises(PlanError, "plan-unknown-group", "'user_transfrom'", where=here(square), hint="'user_transform'"):
        planned(transform, square, "user_transfrom", data_type="float")
    with raises(AmbiguousConfigurationError, None, "data_type"):
        planned(transform, square, "user_transform")


@pytest.mark.slow
def test_an_interface_that_a_function_cannot_serve_is_an_error(build_family: BuildFamily) -> None:
    with raises(PlanError, "plan-unused-input", where=here(square)):
        planned(plain(build_family, "__device__ float op(float a);", "*x = 1"), square, "op")
    family = plain(build_family, "struct pair { int a, b; }; __device__ float op(pair a);", "*x = op({1, 2})")
    with raises(InterfaceMismatchError, "plan-interface-mismatch-type", "takes pair"):
        planned(family, square, "op")


@pytest.mark.slow
def test_a_group_without_an_interface_is_refused(build_family: BuildFamily) -> None:
    files = INTERFACE_FAMILY | {
        "family.toml": INTERFACE_FAMILY["family.toml"].replace(
            'supplied = true\ninterface = "op.cuh"', 'matrix = "kern.json"\ntemplate = "op.cu.jinja"\ninterface = false'
        ),
        "op.cu.jinja": "__device__ float op(float a) { return a; }\n",
        "op.cuh": "__device__ float op(float a);\n",
        "kern.cu.jinja": INTERFACE_FAMILY["kern.cu.jinja"].replace("@CALL@", "*x = op(*x)"),
    }
    family = KernelFamily("plain", FragmentDatabase(build_family(files).path))
    with raises(PlanError, "plan-python-interface", "group op"):
        planned(family, square, "op")


@needs_numba
def test_an_error_of_numba_is_shown_in_its_words(transform: KernelFamily) -> None:
    def wrong(x):  # type: ignore[no-untyped-def]
        return x.missing

    with raises(CompileError, "compile-python", "float32(float32)", where=here(wrong)) as caught:
        planned(transform, wrong, "user_transform", data_type="float")
    assert "Unknown attribute 'missing'" in caught.value.log  # type: ignore[attr-defined]
    with raises(CompileError, "compile-python", "1 argument types given, but function takes 2", where=here(manhattan)):
        planned(transform, manhattan, "user_transform", data_type="float")
    with raises(CompileError, "compile-python", "No conversion from", "to float32"):
        planned(transform, lambda x: "text", "user_transform", data_type="float")


NOTHING = None


def _through_a_variable_outside(nothing: object) -> Callable[[float], object]:
    return lambda x: x if x > 0 else nothing


def _none_in_a_function_within(x):  # type: ignore[no-untyped-def]
    def inner(y):  # type: ignore[no-untyped-def]
        return y if y > 0 else None

    return inner(x)


def _none_on_one_path(x):  # type: ignore[no-untyped-def]
    if x > 0:
        return x
    return None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x > 0 else None,
        lambda x: x if x > 0 else NOTHING,
        _through_a_variable_outside(None),
        _none_in_a_function_within,
        _none_on_one_path,
    ],
)
def test_a_function_that_may_be_none_where_a_value_is_needed_is_refused(
    transform: KernelFamily, function: FunctionType
) -> None:
    with raises(CompileError, "compile-python-none", "float32", where=here(function)):
        planned(transform, function, "user_transform", data_type="float")


def _raises(x):  # type: ignore[no-untyped-def]
    if x < 0:
        raise ValueError("negative")
    return x


def _computed_by_an_exception(x):  # type: ignore[no-untyped-def]
    several = (1.0, 2.0, 3.0)
    return several[int(x)]


@needs_numba
@pytest.mark.parametrize("function", [_raises, _computed_by_an_exception])
def test_what_numba_makes_an_exception_of_is_an_error_that_says_so(
    transform: KernelFamily, function: FunctionType
) -> None:
    with raises(CompileError, "compile-python", where=here(function), hint="exception"):
        planned(transform, function, "user_transform", data_type="float")


def _compares_with_none(x):  # type: ignore[no-untyped-def]
    """None is not used as a value."""
    known = x is not None
    if NOTHING is None and known:
        return x * 2
    return x


@needs_numba
def test_functions_that_have_a_value_on_every_path_are_compiled(transform: KernelFamily) -> None:
    for function in (_compares_with_none, lambda x: x if x > 0 else 0, _through_a_variable_outside(2.0)):
        assert planned(transform, function, "user_transform", data_type="float").link().cubin


def test_a_missing_numba_is_an_error_that_names_the_extra(
    transform: KernelFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(numba_compiler, "import_module", missing)
    with raises(ToolchainError, "toolchain-missing", "No module named 'numba.cuda'", hint=",numba]"):
        planned(transform, lambda x: x, "user_transform", data_type="float")


# --- what it refers to ---


@needs_numba
def test_a_changed_global_makes_a_different_function(transform: KernelFamily) -> None:
    scope: dict[str, Any] = {"FACTOR": 2.5}
    exec("def scaled(x): return x * FACTOR", scope)  # noqa: S102 - our own words
    one = planned(transform, scope["scaled"], "user_transform", data_type="double")
    scope["FACTOR"] = 3.5
    other = planned(transform, scope["scaled"], "user_transform", data_type="double")
    assert one.digest != other.digest
    assert f"0d{np.float64(3.5).view('u8'):016X}" in other.link_ptx()


# --- on a device ---


@needs_numba
@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["lto", "ptx"])
@pytest.mark.parametrize("data_type", ["float", "__half"])
def test_a_python_distance_agrees_with_numpy(search: KernelFamily, data_type: str, mode: str) -> None:
    import cupy as cp

    plan = planned(search, manhattan, "compute_distance", arch=None, mode=mode, data_type=data_type, **STANDARD)
    rng = np.random.default_rng(7)
    dtype = {"float": "f4", "__half": "f2"}[data_type]
    dataset, queries = (rng.standard_normal((rows, 40)).astype(dtype) for rows in (513, 17))
    indices, distances = cp.full(17, 12345, "u4"), cp.full(17, np.nan, "f4")
    bits = None
    launcher = search.load(plan)
    launcher(None, 1, 128, cp.asarray(dataset), cp.asarray(queries), indices, distances, 513, 17, 40, bits)
    exact = np.abs(queries[:, None].astype("f8") - dataset[None].astype("f8")).sum(2)
    np.testing.assert_allclose(distances.get(), exact.min(1), rtol=1e-4)
    np.testing.assert_array_equal(indices.get(), exact.argmin(1))


@needs_numba
@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["lto", "ptx"])
@pytest.mark.parametrize("data_type", [t for t in SCALARS if t != "__nv_bfloat16"])
def test_values_of_every_type_cross_unharmed(typed: KernelFamily, data_type: str, mode: str) -> None:
    import cupy as cp

    dtype = np.dtype({"bool": "?", "__half": "f2"}.get(data_type) or numpy_name(data_type))
    low, high = (0, 1) if dtype.kind == "b" else (-100, 100) if dtype.kind == "f" else limits(dtype)
    values = np.array([high, low, 0, 1], dtype)
    array = cp.asarray(values)
    plan = planned(typed, lambda a, b: a, "op", arch=None, mode=mode, data_type=data_type)
    typed.load(plan)(None, 1, values.size, array)
    np.testing.assert_array_equal(array.get(), np.where(values < np.zeros(1, dtype), np.ones(1, dtype), values))


def numpy_name(data_type: str) -> str:
    from jitlto.base.types import find_scalar

    found = find_scalar(data_type)
    assert found is not None
    return found.typestr


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
