"""Structures by value: every form of a value gives the bytes of the structure in C, or an error."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter
from jitlto.launch.arguments import make_converter
from tests.support.errors import raises
from tests.support.layouts import (
    CTYPES,
    Declared,
    as_ctypes,
    is_field,
    random_row,
    structures,
    without_alignments,
)


class Inner(ctypes.Structure):
    _fields_ = [("x", ctypes.c_short), ("y", ctypes.c_float * 2)]


class Outer(ctypes.Structure):
    """As ``struct outer { char tag; double scale; inner parts[2]; const float* data; bool on; };`` in C++."""

    _fields_ = [
        ("tag", ctypes.c_char),
        ("scale", ctypes.c_double),
        ("parts", Inner * 2),
        ("data", ctypes.c_void_p),
        ("on", ctypes.c_bool),
    ]


INNER = np.dtype([("x", "i2"), ("y", "f4", 2)], align=True)
OUTER = np.dtype([("tag", "i1"), ("scale", "f8"), ("parts", INNER, 2), ("data", "u8"), ("on", "?")], align=True)


VALUE = Outer(b"a", 1.5, (Inner * 2)(Inner(1, (2.0, 3.0)), Inner(-4, (5.0, 6.0))), None, True)
BYTES = bytes(VALUE)
ROW = (97, 1.5, [(1, (2.0, 3.0)), (-4, (5.0, 6.0))], 0, True)


def convert(argument: Any, size: int = len(BYTES), alignment: int = 8) -> bytes:
    return bytes(make_converter(Parameter("p", "mine::outer", size, alignment))(argument))


def refused(case: str, argument: Any, *words: str, size: int = len(BYTES), alignment: int = 8) -> None:
    with raises(ArgumentError, f"launch-argument-{case}", *words, where="parameter 'p' (mine::outer)"):
        convert(argument, size, alignment)


def read(data: bytes) -> Any:
    """The values of the fields: padding does not matter."""
    return np.frombuffer(data, OUTER)[0].item()


@pytest.mark.parametrize(
    "argument",
    [
        VALUE,
        BYTES,
        bytearray(BYTES),
        memoryview(BYTES),
        memoryview(bytes(sum(zip(BYTES, BYTES, strict=True), ())))[::2],
        np.void(BYTES),
        np.array(ROW, OUTER),
        np.array(ROW, OUTER)[()],
        np.array([ROW], OUTER).view(np.recarray)[0],
        (ctypes.c_uint64 * (len(BYTES) // 8)).from_buffer_copy(BYTES),
        np.array([ROW], OUTER),
    ],
    ids=[
        "ctypes",
        "bytes",
        "bytearray",
        "memoryview",
        "strided",
        "void",
        "array",
        "scalar",
        "record",
        "words",
        "one",
    ],
)
def test_every_form_of_a_structure_gives_its_bytes(argument: Any) -> None:
    for _ in range(2):
        assert str(read(convert(argument))) == str(read(BYTES))


def test_another_size_is_refused_with_both() -> None:
    for argument in (VALUE, BYTES, np.array(ROW, OUTER), np.void(BYTES)):
        refused("layout", argument, str(len(BYTES)), "64", size=64)


def test_another_alignment_is_refused_where_python_could_have_it() -> None:
    for argument in (VALUE, np.array(ROW, OUTER)):
        refused("layout", argument, "8", "4", alignment=4)
        assert convert(argument, alignment=16)
    ints = np.zeros(len(BYTES) // 4, "i4").view([("f", "i4", len(BYTES) // 4)])[0]
    refused("layout", ints, "4", "8")
    packed = np.dtype([("a", "i1"), ("b", "f8"), ("c", "V47")])
    refused("layout", np.zeros((), packed), "1", "8")
    assert convert(bytes(np.zeros((), packed))) == bytes(56)


def test_bytes_that_no_kernel_can_read_are_refused() -> None:
    class Swapped(ctypes.BigEndianStructure):
        _fields_ = [("a", ctypes.c_int64 * 7)]

    class Objects(ctypes.Structure):
        _fields_ = [("a", ctypes.py_object * 7)]

    for argument in (
        Swapped(),
        Objects(),
        np.zeros((), [("a", ">i8", 7)]),
        np.zeros((), [("a", "O", 7)]),
    ):
        refused("layout", argument)


@pytest.mark.parametrize(
    "argument", [1, 1.0, None, "text", (1, 2), {"a": 1}, object(), np.float64(1), np.zeros(2, OUTER)]
)
def test_what_is_no_structure_is_refused(argument: Any) -> None:
    refused("type", argument, type(argument).__name__)


@pytest.mark.slow
@settings(deadline=None)
@given(structures(types=tuple(CTYPES)), st.integers(0, 1 << 31))
def test_random_structures_have_the_same_bytes_in_every_form(declared: Declared, seed: int) -> None:
    declared = without_alignments(declared)
    layout, mask = declared.layout(), is_field(declared)
    row = random_row(declared, seed, 0)
    for form in (row, row[()], row.tobytes(), as_ctypes(declared).from_buffer_copy(row.tobytes())):
        converted = convert(form, layout.size, layout.alignment)
        assert (
            np.frombuffer(converted, np.uint8)[mask].tobytes() == np.frombuffer(row.tobytes(), np.uint8)[mask].tobytes()
        )


# --- structures whose fields the family declares ---

DEFINITION = (
    "struct mine::inner { short x; float y[2]; }; "
    "struct mine::outer { char tag; double scale; mine::inner parts[2]; float const* data; bool on; };"
)


def convert_declared(argument: Any, definition: str = DEFINITION, size: int = len(BYTES)) -> bytes:
    return bytes(make_converter(Parameter("p", "mine::outer", size, 8, definition))(argument))


def test_declared_fields_are_compared() -> None:
    def with_field(place: int, *field: Any) -> np.dtype[Any]:
        fields = [(name, *OUTER.fields[name][:1]) for name in OUTER.names]  # type: ignore[index,union-attr]
        return np.dtype([*fields[:place], field, *fields[place + 1 :]], align=True)

    assert convert_declared(np.zeros((), with_field(3, "data", "i8"))) == bytes(len(BYTES))
    for words, dtype in (
        (("weight", "scale"), with_field(1, "weight", "f8")),
        (("scale", "long long"), with_field(1, "scale", "i8")),
        (("parts", "y"), with_field(2, "parts", np.dtype([("x", "i2"), ("y", "i4", 2)], align=True), 2)),
        (("data", "double"), with_field(3, "data", "f8")),
    ):
        with raises(ArgumentError, "launch-argument-layout", *words, where="parameter 'p' (mine::outer)"):
            convert_declared(np.zeros((), dtype))


def test_values_of_declared_fields_are_a_structure() -> None:
    for argument in (VALUE, BYTES, np.array(ROW, OUTER)):
        assert str(read(convert_declared(argument))) == str(read(BYTES))
    for argument in (ROW, {"tag": 97}, {}, [ROW]):
        with raises(ArgumentError, "launch-argument-type", "NumPy structured scalar", where="'p' (mine::outer)"):
            convert_declared(argument)


@pytest.mark.parametrize("definition", ["nonsense", "struct a { b c; };", "struct a { char c[100000]; };"])
def test_a_definition_that_is_not_understood_is_as_none(definition: str) -> None:
    assert convert_declared(BYTES, definition) == BYTES
    with raises(ArgumentError, "launch-argument-type"):
        convert_declared((1,), definition)


def test_an_array_of_one_number_is_no_structure() -> None:
    for size, definition in ((4, ""), (4, "struct s { int x; };")):
        with raises(ArgumentError, "launch-argument-type"):
            make_converter(Parameter("p", "s", size, 4, definition))(np.array(3, np.int32))
