"""Reading the ELF files of nvJitLink: sections and what is not defined, on machine code that can still be linked."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.cuda.elf import PROGBITS, read_sections, read_symbols
from tests.plan.user_code.test_inputs import relocatable_cubin

TEXT = """
struct pair { float x, y; };
extern __device__ pair far(double x, pair p);
template <class T> __device__ __noinline__ T weak(T x) { return x; }
__device__ int table[3];
extern __constant__ float far_table[5];
__device__ float own(float x, pair p) { return weak(x) + far(x, p).y + table[1] + far_table[2]; }
__global__ void kern(float* x) { extern __shared__ float s[]; *x = own(s[0], pair()); }
"""


def test_what_is_not_defined() -> None:
    _, undefined = read_symbols(relocatable_cubin(TEXT))
    found = {each.name for each in undefined if not each.name.startswith(("__", "."))}  # not ptxas's own
    assert found == {"_Z3fard4pair", "far_table"}  # the launch's shared memory is none


def test_sections() -> None:
    code = [each for each in read_sections(relocatable_cubin(TEXT)) if each.kind == PROGBITS and each.data]
    assert ".text._Z4kernPf" in {each.name for each in code}


@pytest.mark.slow
@given(st.integers(0, 10_000), st.binary(max_size=8))
def test_a_damaged_file_is_a_value_error_or_read(place: int, written: bytes) -> None:
    data = bytearray(_cubin())
    at = place % len(data)
    data[at : at + len(written)] = written
    for damaged in (bytes(data), bytes(data[:at])):
        with contextlib.suppress(ValueError):
            assert len(read_symbols(damaged)) == 2


def _cubin(made: list[bytes] = []) -> bytes:  # noqa: B006 - made once
    if not made:
        made.append(relocatable_cubin("__device__ int f(int x) { return x; }"))
    return made[0]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"x" * 100])
def test_what_is_no_elf_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        read_sections(data)
