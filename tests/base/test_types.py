"""Scalar types: one table for C++ names, NumPy's names and sizes."""

from itertools import combinations

import numpy as np
import pytest

from jitlto.base.types import cpp_name, find_scalar, from_numpy_name, is_same_value

#: Names of one type each.
ALIASES = [
    ("int64_t", "std::int64_t", "cuda::std::int64_t", "::std::int64_t", "long long", "long", "long int", "ptrdiff_t"),
    ("uint64_t", "unsigned long long", "unsigned long", "size_t", "std::size_t"),
    ("int32_t", "int", "signed int"),
    ("uint32_t", "unsigned", "unsigned int", "cuda::std::uint32_t"),
    ("int16_t", "short", "short int"),
    ("uint16_t", "unsigned short"),
    ("int8_t", "char", "signed char"),
    ("uint8_t", "unsigned char"),
    ("__half", "half"),
    ("__nv_bfloat16", "nv_bfloat16"),
    ("float2", "cuda::std::complex<float>", "cuFloatComplex"),
    ("double2", "cuda::std::complex<double>"),
    ("float",),
    ("double",),
    ("bool",),
]
SIZES = {"int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4, "int16_t": 2, "uint16_t": 2, "int8_t": 1,
         "uint8_t": 1,
         "__half": 2, "__nv_bfloat16": 2, "float2": 8, "double2": 16, "float": 4, "double": 8, "bool": 1}  # fmt: skip

NUMPY = {
    np.int8: "char", np.int16: "short", np.int32: "int", np.int64: "long long",
    np.uint8: "unsigned char", np.uint16: "unsigned short", np.uint32: "unsigned int", np.uint64: "unsigned long long",
    np.float16: "__half", np.float32: "float", np.float64: "double", np.complex64: "float2",
    np.complex128: "double2", np.bool_: "bool",
}  # fmt: skip


@pytest.mark.parametrize("group", ALIASES)
def test_aliases_are_one_type_and_one_value(group: tuple[str, ...]) -> None:
    first = find_scalar(group[0])
    assert first is not None
    assert first.size == SIZES[group[0]]
    for alias in group:
        assert find_scalar(alias) is first
        assert find_scalar(f"const {alias}") is first
        assert is_same_value(alias, group[0])


def test_other_types_are_other_types() -> None:
    for left, right in combinations(ALIASES, 2):
        assert not is_same_value(left[0], right[0])


@pytest.mark.parametrize(
    "name", ["", "float*", "T", "my_int", "int int", "constint", "std::vector<int>", "unsigned float"]
)
def test_what_is_no_scalar(name: str) -> None:
    assert find_scalar(name) is None


@pytest.mark.parametrize("numpy_type", NUMPY)
def test_numpy_dtypes_and_scalar_classes_by_their_cpp_names(numpy_type: type) -> None:
    name = NUMPY[numpy_type]
    assert cpp_name(numpy_type) == cpp_name(np.dtype(numpy_type)) == name
    known = find_scalar(name)
    assert known is not None
    assert known.size == np.dtype(numpy_type).itemsize
    assert from_numpy_name(np.dtype(numpy_type).name) == name


class Dtype:
    """Prints like the dtypes of PyTorch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.float16", "__half"), ("torch.bool", "bool"),
        ("torch.float8_e4m3fn", "__nv_fp8_e4m3"),
        ("float4_e2m1fn", "__nv_fp4_e2m1"),
    ],
)  # fmt: skip
def test_dtypes_that_only_print_their_name(name: str, expected: str) -> None:
    assert cpp_name(Dtype(name)) == expected


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e4m3", "float8_e4m3b11fnuz"])
def test_eight_bit_formats_that_cuda_lacks_are_not_taken_for_one_that_it_has(name: str) -> None:
    assert from_numpy_name(name) is None


def test_booleans_are_the_words_of_cpp() -> None:
    assert (cpp_name(True), cpp_name(False)) == ("true", "false")
    assert (cpp_name(np.True_), cpp_name(np.False_)) == ("true", "false")


@pytest.mark.parametrize(
    "value",
    [None, [], {}, object(), b"float", 1j, list, np.zeros(3), np.dtype("S4"), np.dtype("M8[s]"),
     np.dtype([("a", "f4")]), np.dtype(">f4"), "float".split],
)  # fmt: skip
def test_anything_else_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="invalid parameter value"):
        cpp_name(value)
