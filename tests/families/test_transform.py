"""The family ``transform``: the caller's own function, supplied as CUDA C++ at run time."""

import re
import struct

import pytest

from jitlto.base.errors import InterfaceMismatchError, MissingProviderError
from jitlto.cuda.ptx import parse_ptx
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises

TYPES = ("float", "double")
SYMBOLS = {"float": "_Z14user_transformf", "double": "_Z14user_transformd"}
SHT_SYMTAB, SHT_STRTAB, STT_FUNC = 2, 3, 2


def source(data_type: str) -> str:
    return f"__device__ {data_type} user_transform({data_type} x) {{ return x * x + 1; }}"


def functions(cubin: bytes) -> set[str]:
    """The names of the functions in a cubin's symbol table (ELF-64, little endian)."""
    (section_offset,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count = struct.unpack_from("<HH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, section_offset + n * entry_size) for n in range(count)]
    names: set[str] = set()
    for _, kind, _, _, offset, size, link, _, _, each in sections:
        if kind != SHT_SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, each):
            name, info = struct.unpack_from("<IB", cubin, at)
            if info & 0xF == STT_FUNC:
                begin = strings + name
                names.add(cubin[begin : cubin.index(b"\0", begin)].decode())
    return names


def planned(transform: KernelFamily, text: str, data_type: str = "float", mode: str = "lto") -> Plan:
    return transform.planner(data_type=data_type).add_source(text).plan(arch="sm_90", link_mode=mode)


def test_there_are_two_kernels_and_a_function_that_callers_supply(transform: KernelFamily) -> None:
    assert transform.parameters == {"data_type": ("double", "float")}
    supplied = transform.record.group("user_transform")
    assert supplied is not None
    assert supplied.supplied
    assert supplied.interface == "user_transform.cuh"


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
@pytest.mark.parametrize("data_type", TYPES)
def test_lto_leaves_no_call_to_the_users_function(transform: KernelFamily, data_type: str, arch: str) -> None:
    plan = planned(transform, source(data_type), data_type).for_arch(arch)
    text = plan.link_ptx()
    assert "user_transform" not in text
    assert re.search(r"\bcall\b", text) is None
    assert parse_ptx(text).requires == ()
    assert plan.calls_left() == []
    assert functions(plan.link().cubin) == {plan.entry.entry}


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
@pytest.mark.parametrize("data_type", TYPES)
def test_a_ptx_link_keeps_the_users_function(transform: KernelFamily, data_type: str, arch: str) -> None:
    plan = planned(transform, source(data_type), data_type, "ptx").for_arch(arch)
    assert functions(plan.link().cubin) == {plan.entry.entry, SYMBOLS[data_type]}


def test_the_users_arithmetic_is_in_the_kernel(transform: KernelFamily) -> None:
    text = planned(transform, source("float")).link_ptx()
    assert "fma.rn.f32" in text
    assert "0f3F800000" in text  # 1.0f


def test_a_function_of_other_types_is_told_whose_it_is(transform: KernelFamily) -> None:
    names = "user_transform(int)", "user_transform(float)", "group user_transform (user_transform.cuh)"
    with raises(InterfaceMismatchError, None, *names, where="user.cu"):
        planned(transform, "__device__ float user_transform(int x) { return x; }")


def test_without_a_function_the_error_says_what_to_supply(transform: KernelFamily) -> None:
    names = "user_transform(float)", "group user_transform (user_transform.cuh)"
    with raises(MissingProviderError, None, *names, hint="as user_transform.cuh declares it"):
        transform.plan(data_type="float", arch="sm_90")
