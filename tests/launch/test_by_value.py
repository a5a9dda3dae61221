"""Arguments that are no scalars of NumPy: enums, 128-bit integers, vector types, descriptors; the rest is refused."""

import contextlib
import ctypes
import enum
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError
from jitlto.base.types import UNKNOWN_TYPE, Parameter
from jitlto.launch.arguments import make_converter
from tests.support.errors import raises


def convert(type_: str, size: int, argument: Any, alignment: int | None = None) -> Any:
    return make_converter(Parameter("p", type_, size, alignment or size))(argument)


def refused(case: str, type_: str, size: int, argument: Any, *words: str) -> None:
    with raises(ArgumentError, f"launch-argument-{case}", *words, where=f"parameter 'p' ({type_})"):
        convert(type_, size, argument)


class Color(enum.Enum):
    RED = 3


class Level(enum.IntEnum):
    HIGH = 200


# --- enums ---


@settings(max_examples=30)
@given(st.sampled_from([1, 2, 4, 8]), st.data())
def test_an_enumerator_is_as_wide_as_its_enum(size: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(1 << 8 * size - 1), (1 << 8 * size) - 1))
    converted = convert("enum mine::color", size, value)
    assert converted == (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def test_enumerators_of_python_are_their_values() -> None:
    assert convert("enum color", 1, Color.RED) == b"\3"
    assert convert("enum color", 1, Level.HIGH) == b"\xc8"
    assert convert("enum color", 4, np.int8(-1)) == b"\xff" * 4


def test_what_an_enum_cannot_hold_is_refused() -> None:
    for value in (256, -129):
        refused("range", "enum color", 1, value, str(value))
    for argument in ("red", 1.0, None, b"\1", enum.Enum("Word", {"A": "a"}).A):  # type: ignore[attr-defined]
        refused("type", "enum color", 1, argument)


def test_of_an_unknown_type_bytes_are_passed() -> None:
    assert convert(UNKNOWN_TYPE, 4, b"\3\0\0\0") == b"\3\0\0\0"
    refused("type", UNKNOWN_TYPE, 4, 3)
    refused("layout", UNKNOWN_TYPE, 4, b"\3")


# --- 128-bit integers ---


@given(st.integers(-(1 << 129), 1 << 129))
def test_integers_of_128_bits_are_checked_against_their_range(value: int) -> None:
    for type_, low, high in (("__int128", -(1 << 127), 1 << 127), ("unsigned __int128", 0, 1 << 128)):
        if low <= value < high:
            assert bytes(convert(type_, 16, value)) == (value % (1 << 128)).to_bytes(16, "little")
        else:
            refused("range", type_, 16, value)


def test_what_is_no_integer_is_no_integer_of_128_bits() -> None:
    refused("type", "__int128", 16, 1.0, "float")


# --- vector types ---


@pytest.mark.parametrize(
    ("type_", "dtype", "count", "size"),
    [
        ("float4", "f4", 4, 16), ("float3", "f4", 3, 12), ("float1", "f4", 1, 4), ("int2", "i4", 2, 8),
        ("uchar4", "u1", 4, 4), ("short3", "i2", 3, 6), ("ulonglong2", "u8", 2, 16), ("double4", "f8", 4, 32),
        ("double4_16a", "f8", 4, 32), ("dim3", "u4", 3, 12), ("__half2", "f2", 2, 4),
    ],
)  # fmt: skip
def test_a_vector_takes_its_values_in_every_form(type_: str, dtype: str, count: int, size: int) -> None:
    values = np.arange(1, count + 1).astype(dtype)
    expected, names = values.tobytes(), "xyzw"[:count]
    structured = np.zeros((), [(name, dtype) for name in names])
    for name, value in zip(names, values, strict=True):
        structured[name] = value
    for argument in (values, np.repeat(values, 2)[::2], structured, structured[()], expected):
        assert bytes(convert(type_, size, argument)) == expected


def test_what_is_no_vector_is_refused() -> None:
    refused("layout", "uint4", 16, np.zeros(3, np.uint32), "got 12")
    refused("layout", "uint4", 16, np.zeros(4, np.int32), "unsigned int", "int32")
    refused("layout", "float4", 16, np.zeros(2), "float64")
    refused("layout", "float4", 16, np.zeros(4, ">f4"))
    refused("layout", "float4", 16, np.zeros((), [("x", "f4", 3)]), "12 bytes")
    for argument in ("1234", 1.0, None, (1, 2, 3, 4), [1, 2, 3, 4], {"x": 1}, np.zeros((2, 2), np.float32)):
        refused("type", "float4", 16, argument, "NumPy array")


def test_a_type_of_the_same_name_but_another_size_is_no_vector() -> None:
    refused("type", "float4", 8, np.zeros(4, np.float32))
    assert bytes(convert("float4", 8, bytes(8))) == bytes(8)


# --- descriptors ---


def test_a_tensor_map_is_taken_as_it_is() -> None:
    descriptor = driver.CUtensorMap()
    ctypes.memmove(descriptor.getPtr(), bytes(range(128)), 128)
    for argument in (descriptor, bytes(range(128)), (ctypes.c_uint64 * 16).from_buffer_copy(bytes(range(128)))):
        assert bytes(convert("CUtensorMap_st", 128, argument)) == bytes(range(128))
    refused("layout", "CUtensorMap_st", 128, bytes(64), "64")
    for argument in (5, None, object(), driver.CUtexObject(1)):
        refused("type", "CUtensorMap_st", 128, argument)


# --- the rest ---


@pytest.mark.parametrize("type_", ["void (*)(int)", "int mine::s::*", "long double", "wchar_t", "decltype(nullptr)"])
def test_what_no_value_of_python_means_is_refused(type_: str) -> None:
    for argument in (1, None, bytes(8)):
        refused("unsupported", type_, 8, argument, type(argument).__name__)


def test_function_types_among_template_arguments_are_no_hindrance() -> None:
    assert bytes(convert("apply<void (*)(int), int mine::s::*>", 4, bytes(4))) == bytes(4)


WORDS = (
    "enum ", "struct ", "float", "float4", "__int128", "mine::s", "<", ">", "[", "]", "3", "99999999999", "*", "&", "(",
    ")", "::", "{", "}", ";", " ", "const", "alignas(", "x", ",", "std::",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map("".join)


@pytest.mark.slow
@given(TEXTS, st.integers(0, 1 << 62), st.integers(0, 64))
def test_whatever_a_database_says_of_a_type_an_argument_is_taken_or_refused(
    type_: str, size: int, alignment: int
) -> None:
    for parameter in (Parameter("p", type_, size, alignment), Parameter("p", type_, size % 40, alignment)):
        converter = make_converter(parameter)
        for argument in (0, np.zeros(4, np.float32), bytes(size % 40), None):
            with contextlib.suppress(ArgumentError):
                assert converter(argument) is not None
