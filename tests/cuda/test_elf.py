"""Reading the ELF files of nvJitLink: sections and what is not defined, on machine code that can still be linked."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.versions import Architecture
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.elf import PROGBITS, hash_code, read_sections, read_undefined
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from tests.plan.user_code.test_inputs import relocatable_cubin
from tests.support.compiled import BASE, compiled

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
    found = {
        name for name in read_undefined(relocatable_cubin(TEXT)) if not name.startswith(("__", "."))
    }  # not ptxas's own
    assert found == {"_Z3fard4pair", "far_table", "s"}  # the last is the launch's shared memory


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
            assert isinstance(read_undefined(damaged), set)


def _cubin(made: list[bytes] = []) -> bytes:  # noqa: B006 - made once
    if not made:
        made.append(relocatable_cubin("__device__ int f(int x) { return x; }"))
    return made[0]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"x" * 100])
def test_what_is_no_elf_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        read_sections(data)


def test_kernels_that_an_option_does_not_change_have_the_same_hash() -> None:
    def link(text: str, *options: str) -> bytes:
        fatbin = nvfatbin.wrap_ltoir(compiled(text).ltoir[BASE], BASE)
        item = LinkInput(InputKind.FATBIN, fatbin, "kernel")
        return nvjitlink.link([item], Architecture(90), ("-lto", *options)).data

    text = 'extern "C" __global__ void __launch_bounds__(64, 1) kern(int* x) { x[threadIdx.x] += 1; }'
    plain, limited = link(text), link(text, "-maxrregcount=128")  # CUDA 13 notes the option
    assert hash_code(plain) == hash_code(limited) != hash_code(link(text.replace("1;", "2;")))
    assert hash_code(b".version 8.0") != hash_code(b".version 8.1")
