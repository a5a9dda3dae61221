"""Structures by value: every form of a value gives the bytes of the structure in C, or an error."""

import ctypes
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter
from jitlto.launch.arguments import make_converter
from tests.support.errors import raises


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


@pytest.mark.parametrize(
    "argument", [ROW, {"tag": 97}, [ROW], np.array(3, np.int32)], ids=["tuple", "dict", "list", "number"]
)
def test_values_of_fields_are_no_structure(argument: Any) -> None:
    refused("type", argument, "NumPy structured scalar")


def test_fields_need_no_padding_of_their_own() -> None:
    """Nor does a dtype need ``align=True``, where its fields lie as in C++."""
    plain = np.dtype(
        {
            "names": OUTER.names,
            "formats": [OUTER[name] for name in OUTER.names or ()],
            "offsets": [OUTER.fields[name][1] for name in OUTER.names or ()],
            "itemsize": OUTER.itemsize,
        }
    )  # type: ignore[index]
    assert not plain.isalignedstruct
    assert convert(np.zeros((), plain)) == bytes(len(BYTES))
