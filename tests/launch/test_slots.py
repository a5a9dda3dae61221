"""What a sequence's call replaces reaches the parameter's memory as the parameter's converter would have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError
from jitlto.launch.arguments import make_converter
from jitlto.launch.packed import to_bytes
from jitlto.launch.slots import make_place
from tests.support.launchers import parameter

NUMBERS = st.one_of(
    st.integers(-(1 << 65), 1 << 65),
    st.floats(),
    st.floats(width=32),
    st.booleans(),
    st.sampled_from([np.int8(-3), np.uint32(7), np.float16(0.5), np.float32(0.1), np.float64(1e300), 1j, None, "1"]),
)


@pytest.mark.parametrize(
    "type_", ["bool", "signed char", "unsigned short", "int", "unsigned", "long long", "unsigned long long", "float",
              "double", "__half", "__nv_bfloat16", "float2", "float4", "__int128", "float*"],
)  # fmt: skip
@settings(max_examples=60)
@given(value=NUMBERS)
def test_a_replaced_number_is_what_the_parameters_converter_makes_of_it(type_: str, value: Any) -> None:
    if type_ == "float*" and isinstance(value, int | np.integer):
        value = 0  # other addresses are for the driver to know
    known, memory = parameter(type_), memoryview(bytearray(16))[: parameter(type_).size]
    convert = make_converter(known)
    place = make_place(0, known, convert, memory)
    try:
        expected = to_bytes(convert(value), known.size)
    except ArgumentError as error:
        with pytest.raises(ArgumentError) as caught:
            place.convert(value)
        assert str(caught.value) == str(error)
    else:
        place.cell.value = place.convert(value)
        assert memory.tobytes() == expected
