"""Launch arguments: each converted by its parameter's declared type, or refused with the parameter's name."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError, LaunchError
from jitlto.base.types import Parameter, find_scalar
from jitlto.launch import arguments
from jitlto.launch.arguments import make_converter
from tests.support.errors import raises

INTEGERS = {
    "signed char": np.int8,
    "unsigned char": np.uint8,
    "short": np.int16,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "long": np.int64,
    "unsigned long long": np.uint64,
    "unsigned long": np.uint64,
}
FLOATS = {"float": np.float32, "double": np.float64, "__half": np.float16}
# Every finite bfloat16 that is not negative, in order; exact as doubles.
BFLOAT16 = (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)


class DeviceArray:
    """What an array library shows of an array in device memory (the CUDA array interface, version 3)."""

    def __init__(
        self,
        typestr: str = "<f4",
        shape: tuple[int, ...] = (4, 8),
        strides: tuple[int, ...] | None = None,
        *,
        pointer: int = 0x7F00_0000_1000,
        readonly: bool = False,
    ) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, readonly),
            "strides": strides,
            "version": 3,
        }


def convert(type_: str, argument: Any) -> Any:
    """What the kernel reads: a number, an address, or bytes."""
    return read(type_, make_converter(Parameter("p", type_, 8, 8))(argument))


def read(type_: str, data: bytes) -> Any:
    known = find_scalar(type_)
    if known is not None:
        assert len(data) == known.size
        return np.frombuffer(data, "u2" if known.typestr == "bfloat16" else known.typestr)[0]
    return int.from_bytes(data, "little") if type_.rstrip(" const").endswith("*") else data


def refused(case: str, type_: str, argument: Any) -> str:
    """The message of the error, which is of a case, names the parameter and its type and is a TypeError too."""
    with raises(ArgumentError, f"launch-argument-{case}", where=f"parameter 'p' ({type_})") as caught:
        convert(type_, argument)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, LaunchError)
    assert caught.value.hint
    return str(caught.value)


# --- pointers ---


@pytest.mark.parametrize(
    ("type_", "typestr"),
    [
        ("float*", "<f4"),
        ("float const*", "<f4"),
        ("double*", "<f8"),
        ("__half*", "<f2"),
        ("half const*", "<f2"),
        ("int*", "<i4"),
        ("unsigned int*", "<u4"),
        ("uint32_t const*", "<u4"),
        ("long long*", "<i8"),
        ("long*", "<i8"),
        ("unsigned char*", "|u1"),
        ("char*", "|i1"),
        ("bool*", "|b1"),
        ("float2*", "<c8"),
        ("double2 const*", "<c16"),
        ("float* const", "<f4"),
    ],
)
def test_an_array_of_the_declared_dtype_becomes_its_address(type_: str, typestr: str) -> None:
    address = convert(type_, DeviceArray(typestr))
    assert address == 0x7F00_0000_1000
    assert type(address) is int


@pytest.mark.parametrize("typestr", ["<f8", "<f2", "<i4", "<u4", "<c8", ">f4", "|u1"])
def test_an_array_of_another_dtype_is_refused_with_both_dtypes(typestr: str) -> None:
    message = refused("dtype", "float const*", DeviceArray(typestr))
    assert str(np.dtype(typestr)) in message
    assert "float32" in message


def test_a_pointer_to_void_or_to_a_structure_takes_any_dtype() -> None:
    for type_ in ("void const*", "void*", "mine::point*"):
        assert convert(type_, DeviceArray("<f8")) == 0x7F00_0000_1000


def test_a_read_only_array_may_only_go_where_the_kernel_cannot_write() -> None:
    assert convert("float const*", DeviceArray(readonly=True)) == 0x7F00_0000_1000
    assert convert("void const*", DeviceArray(readonly=True)) == 0x7F00_0000_1000
    refused("read-only", "float*", DeviceArray(readonly=True))
    refused("read-only", "float* const", DeviceArray(readonly=True))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 8), (4, 16)), ((4, 8), (64, 4)), ((8,), (8,)), ((8,), (-4,)), ((8,), (0,)), ((4, 8), (32, 8))],
)
def test_an_array_that_is_not_c_contiguous_is_refused(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    refused("not-contiguous", "float*", DeviceArray(shape=shape, strides=strides))


def test_strides_of_extents_of_one_or_none_do_not_count() -> None:
    assert convert("float*", DeviceArray(shape=(1, 8), strides=(999, 4))) == 0x7F00_0000_1000
    assert convert("float*", DeviceArray(shape=(0, 8), strides=(999, 999), pointer=0)) == 0


def test_none_and_zero_are_the_null_pointer() -> None:
    assert convert("float*", None) == 0
    assert convert("void const*", 0) == 0


@pytest.mark.parametrize("address", [-1, 1 << 64])
def test_what_is_no_address_is_refused(address: int) -> None:
    assert f"{address:#x}" in refused("range", "float*", address)


def test_an_array_in_host_memory_is_refused_with_what_to_do() -> None:
    for array in (np.zeros(4, np.float32), np.zeros((), np.float32), np.float32(1)):
        assert "cupy.asarray" in refused("host-memory", "float*", array)


def test_an_array_of_a_dtype_that_numpy_has_not_is_for_pointers_to_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("jax.numpy")
    monkeypatch.setattr(arguments, "_CUDA_DEVICES", {1: "the host"})
    array = numpy.zeros(4, numpy.float8_e4m3fn)
    assert convert("void const*", array) != 0
    refused("export", "float const*", array)


def test_a_tensor_on_a_device_that_dlpack_has_no_name_for_is_refused() -> None:
    class MetaTensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("Unknown device type meta for Dlpack")

    assert "Unknown device type meta" in refused("export", "float*", MetaTensor())


@pytest.mark.parametrize(
    "changed",
    [
        {"typestr": None}, {"typestr": "no dtype"}, {"data": None}, {"data": (1.5, False)}, {"data": (1 << 64, False)},
        {"shape": None, "data": (0, False)}, {"strides": (4,)}, {"strides": 4}, {"mask": object()},
    ],
)  # fmt: skip
def test_a_malformed_interface_or_one_with_a_mask_is_an_error_of_the_argument(changed: dict[str, Any]) -> None:
    array = DeviceArray()
    shown = array.__cuda_array_interface__ | changed
    array.__cuda_array_interface__ = {name: value for name, value in shown.items() if value is not None}
    assert "__cuda_array_interface__" in refused("export", "float*", array)


def test_a_pinned_tensor_that_is_not_what_its_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arguments, "_CUDA_DEVICES", {1: "the host"})
    tensor = torch.tensor([1 + 2j])
    assert convert("float2*", tensor) == tensor.data_ptr()
    assert "resolve_conj" in refused("conjugate", "float2*", tensor.conj())
    assert "resolve_neg" in refused("conjugate", "float*", tensor.conj().imag)
    assert "detach" in refused("export", "float*", torch.ones(4, requires_grad=True))


@pytest.mark.parametrize(
    ("type_", "arguments"),
    [
        ("float*", ["text", b"bytes", 1.5, [1.0, 2.0], (1,), {}, object(), True]),
        ("int", [1.0, np.float32(1), "1", b"1", None, 1j, [1], np.array([1, 2]), object()]),
        ("bool", [2, -1, 1.0, "True", None, [True], object()]),
        ("float2", ["1j", None, object(), DeviceArray(), {1}]),
    ],
)
def test_a_value_of_no_use_is_refused_by_the_name_of_its_type(type_: str, arguments: list[object]) -> None:
    for argument in arguments:
        assert type(argument).__name__ in refused("type", type_, argument)


# --- integers ---


@pytest.mark.slow
@pytest.mark.parametrize("type_", INTEGERS)
@given(value=st.integers(-(2**65), 2**65))
def test_an_integer_is_converted_if_its_type_holds_it_and_refused_otherwise(type_: str, value: int) -> None:
    limits = np.iinfo(INTEGERS[type_])
    if limits.min <= value <= limits.max:
        converted = convert(type_, value)
        assert type(converted) is INTEGERS[type_]
        assert int(converted) == value
    else:
        message = refused("range", type_, value)
        assert str(value) in message
        assert f"{limits.min} to {limits.max}" in message


@pytest.mark.parametrize("argument", [np.int8(5), np.uint64(5), np.array(5), True])
def test_integers_may_be_of_any_integer_type(argument: Any) -> None:
    converted = convert("unsigned int", argument)
    assert type(converted) is np.uint32
    assert int(converted) == int(argument)


# --- floating point ---


@pytest.mark.slow
@pytest.mark.parametrize("type_", FLOATS)
@given(value=st.floats())
def test_a_number_is_rounded_to_its_type_if_that_holds_it(type_: str, value: float) -> None:
    make = FLOATS[type_]
    high = float(np.finfo(make).max)
    if math.isfinite(value) and abs(value) > high:
        assert f"-{high} to {high}" in refused("range", type_, value)
    else:
        converted = convert(type_, value)
        assert type(converted) is make
        assert converted == make(value) or (math.isnan(value) and math.isnan(converted))


def test_numbers_of_other_kinds_are_floating_point_arguments_too() -> None:
    for argument in (2, np.int32(2), np.float64(2), np.float16(2), Fraction(2), np.array(2.0), True):
        converted = convert("float", argument)
        assert type(converted) is np.float32
        assert converted == float(argument)


@pytest.mark.parametrize("argument", ["1.5", b"1", 1j, np.complex64(1), None, [1.0], object(), 10**400])
def test_what_is_no_real_number_is_refused(argument: object) -> None:
    for type_ in ("float", "double", "__half", "__nv_bfloat16"):
        refused("type" if type(argument) is not int else "range", type_, argument)


def test_an_array_for_a_number_is_refused_even_if_it_has_one_element() -> None:
    for argument in (np.array([1.0]), np.array([[1.0]]), DeviceArray()):
        refused("type", "float", argument)


def nearest_bfloat16(value: float) -> int:
    """The bits of the bfloat16 nearest to a finite number in range; of two equally near the even one."""
    magnitude = Fraction(abs(value))
    above = int(np.searchsorted(BFLOAT16, abs(value)))
    candidates = [n for n in (above - 1, above) if 0 <= n < len(BFLOAT16)]
    best = min(candidates, key=lambda n: (abs(Fraction(float(BFLOAT16[n])) - magnitude), n & 1))
    return best | (0x8000 if math.copysign(1, value) < 0 else 0)


@pytest.mark.slow
@settings(deadline=None)  # the first value makes the converter
@given(
    st.floats(-float(BFLOAT16[-1]), float(BFLOAT16[-1]))
    # What lies half way between two, or next to that, is where rounding goes wrong.
    | st.tuples(st.integers(0, len(BFLOAT16) - 2), st.sampled_from([-1, 0, 1]), st.sampled_from([-1.0, 1.0])).map(
        lambda t: (
            t[2] * math.nextafter((BFLOAT16[t[0]] + BFLOAT16[t[0] + 1]) / 2, math.copysign(math.inf, t[1]))
            if t[1]
            else t[2] * float((BFLOAT16[t[0]] + BFLOAT16[t[0] + 1]) / 2)
        )
    )
)
def test_a_bfloat16_is_the_nearest_and_of_two_the_even(value: float) -> None:
    converted = convert("__nv_bfloat16", value)
    assert type(converted) is np.uint16
    assert int(converted) == nearest_bfloat16(value)


def test_bfloat16_keeps_what_is_not_finite_and_refuses_what_it_cannot_hold() -> None:
    assert int(convert("__nv_bfloat16", math.inf)) == 0x7F80
    assert int(convert("__nv_bfloat16", -math.inf)) == 0xFF80
    nan = int(convert("__nv_bfloat16", math.nan))
    assert nan & 0x7F80 == 0x7F80
    assert nan & 0x7F
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1e39, -1e39, 3.4e38, 1e300):
            refused("range", "__nv_bfloat16", value)


# --- booleans, complex numbers ---


@pytest.mark.parametrize(
    ("argument", "expected"), [(True, True), (False, False), (1, True), (0, False), (np.True_, True)]
)
def test_booleans_are_booleans_or_zero_and_one(argument: object, expected: bool) -> None:
    converted = convert("bool", argument)
    assert type(converted) is np.bool_
    assert bool(converted) is expected


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "make"), [("float2", np.complex64), ("double2", np.complex128)])
@given(value=st.complex_numbers(max_magnitude=1e30) | st.integers(-1000, 1000) | st.floats(-1e30, 1e30))
def test_complex_numbers_may_be_real(type_: str, make: type, value: complex) -> None:
    converted = convert(type_, value)
    assert type(converted) is make
    assert converted == make(value)


def test_a_complex_number_that_its_type_cannot_hold_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused("range", "float2", 1e300)
        refused("range", "float2", complex(0, -1e39))
        refused("range", "double2", 10**400)
        assert convert("double2", 1e300) == 1e300


def test_float2_and_double2_may_be_two_numbers() -> None:
    assert convert("float2", np.float32([1.5, -0.0])).tobytes() == np.array([1.5, -0.0], np.float32).tobytes()
    converted = make_converter(Parameter("p", "double2", 16, 16))(np.array([1.0, 2.0]))
    assert converted == np.array([1.0, 2.0]).tobytes()


# --- textures and surfaces ---


@pytest.mark.parametrize("class_", ["CUtexObject", "CUsurfObject"])
def test_texture_and_surface_objects_are_handles(class_: str) -> None:
    converted = convert("unsigned long long", getattr(driver, class_)(2**63 + 1))
    assert type(converted) is np.uint64
    assert int(converted) == 2**63 + 1


def test_objects_of_array_libraries_are_handles_too() -> None:
    cupy = type("TextureObject", (), {"__module__": "cupy.cuda.texture", "ptr": 5})
    core = type("SurfaceObject", (), {"__module__": "cuda.core.texture", "handle": driver.CUsurfObject(6)})
    assert [int(convert("cudaTextureObject_t", class_())) for class_ in (cupy, core)] == [5, 6]
    refused("type", "unsigned int", cupy())
    refused("type", "unsigned long long", type("TextureObject", (), {"ptr": 5})())
