"""Layouts of Python's types for structures are those that their bytes have."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.layouts import Layout, find_difference, parse_fields, parse_type
from jitlto.launch.by_value import UnknownLayoutError, layout_of
from tests.support.layouts import CTYPES, Declared, as_ctypes, as_dataclass, as_dtype, structures, without_alignments


@pytest.mark.slow
@settings(deadline=None)
@given(structures(types=tuple(CTYPES)))
def test_every_python_type_of_a_structure_has_its_layout(declared: Declared) -> None:
    declared = without_alignments(declared)
    expected = declared.layout()
    for made in (as_ctypes(declared), as_dtype(declared), as_dataclass(declared)):
        layout = layout_of(made)
        assert (layout.size, layout.alignment) == (expected.size, expected.alignment)
        assert find_difference(expected, layout) is None


def test_arrays_and_structures_may_be_nested_in_each_kind() -> None:
    inner = Declared("inner", ("char a", "double b[2]"), 1, ())
    declared = Declared("s", ("inner one", "inner two[2][3]", "float* p", "bool q"), 1, (inner,))
    for made in (as_ctypes(declared), as_dtype(declared), as_dataclass(declared)):
        assert find_difference(declared.layout(), layout_of(made)) is None


def test_a_dtype_that_is_not_aligned_has_no_alignment() -> None:
    layout = layout_of(np.dtype([("a", "i1"), ("b", "f8")]))
    assert (layout.size, layout.alignment) == (9, 1)
    difference = find_difference(parse_fields("s", ["char a", "double b"]), layout)
    assert difference is not None
    assert "9 bytes" in difference


def test_offsets_that_are_stated_are_kept_in_whatever_order() -> None:
    dtype = np.dtype({"names": ["b", "a"], "formats": ["f8", "i4"], "offsets": [8, 0], "itemsize": 16})
    layout = layout_of(dtype)
    assert [(field.name, field.offset) for field in layout.fields] == [("a", 0), ("b", 8)]
    assert find_difference(parse_fields("s", ["int a", "double b"]), layout) is None


def test_text_stands_for_characters_and_blanks_for_padding() -> None:
    expected = parse_fields("s", ["char name[5]", "int a", "double b"])
    dtype = np.dtype([("name", "S5"), ("pad", "V3"), ("a", "i4"), ("more", "V4"), ("b", "f8")])
    layout = layout_of(dtype)
    assert (layout.size, layout.alignment) == (24, 8)
    assert find_difference(expected, layout) is None
    wrong = layout_of(np.dtype([("name", "S5"), ("pad", "V3"), ("more", "V3"), ("c", "i1"), ("a", "i4"), ("b", "f8")]))
    assert find_difference(expected, wrong) is not None


def test_complex_numbers_are_two_numbers() -> None:
    assert find_difference(parse_fields("s", ["float2 a"]), layout_of(np.dtype([("a", "c8")]))) is None


def test_annotations_name_types_of_c_numpy_and_ctypes() -> None:
    @dataclasses.dataclass
    class Value:
        a: "np.int8"  # noqa: UP037
        b: ctypes.c_double
        c: np.dtype("f2")  # type: ignore[valid-type]
        d: Annotated[int, "cuda::std::uint16_t"]
        e: Annotated[list[float], "float4[2]"]
        f: Annotated[list[float], np.float32, 3]
        g: ctypes.POINTER(ctypes.c_int)  # type: ignore[valid-type]

    expected = parse_fields(
        "s", ["char a", "double b", "__half c", "unsigned short d", "float4 e[2]", "float f[3]", "int* g"]
    )
    layout = layout_of(Value)
    assert find_difference(expected, layout) is None
    assert layout.alignment == 16


@pytest.mark.parametrize(
    "hint", [int, float, Any, "float", Annotated[int, "mine::s"], Annotated[int, "int", 0], list[int]]
)
def test_annotations_of_no_fixed_size_are_refused_with_the_field(hint: Any) -> None:
    with pytest.raises(UnknownLayoutError, match=r"Value\.field|Value cannot"):
        layout_of(dataclasses.make_dataclass("Value", [("field", hint)]))


@given(
    st.sampled_from(
        [np.dtype(">i4"), np.dtype("O"), np.dtype([("a", ">f8")]), ctypes.c_int.__ctype_be__, ctypes.py_object]
    )
)  # type: ignore[attr-defined]
def test_what_the_device_cannot_read_is_refused(type_: Any) -> None:
    with pytest.raises(UnknownLayoutError):
        layout_of(type_)


def test_of_unions_and_bit_fields_only_the_size_is_known() -> None:
    class Bits(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int, 3)]

    class Union(ctypes.Union):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]

    assert layout_of(Bits) == Layout("Bits", 4, 4, "bytes")
    assert layout_of(Union) == Layout("Union", 8, 8, "bytes")
    assert parse_type("Union") is None
