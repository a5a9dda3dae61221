"""Tables of inputs, in the memory of the host: how many there are, and which stay."""

import ctypes
import struct
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.frameworks import tables


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []

    def allocate(size: int) -> tuple[int, int]:
        made.append(ctypes.create_string_buffer(size))
        return 0, ctypes.addressof(made[-1])

    def copy(address: int, data: Any, size: int, stream: Any) -> tuple[int]:
        ctypes.memmove(address, data, size)
        return (0,)

    driver = SimpleNamespace(
        CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1), cuStreamCreate=lambda flags: (0, 1),
        cuMemAlloc=allocate, cuMemcpyHtoDAsync=copy, cuStreamSynchronize=lambda stream: (0,),
        cuCtxSynchronize=lambda: (0,),
    )  # fmt: skip
    monkeypatch.setattr(tables, "driver", driver)
    monkeypatch.setattr(tables, "allowed_in_captures", nullcontext)
    monkeypatch.setattr(tables, "_MOST_TABLES", 8)
    return made


def table(*words: int) -> bytes:
    return struct.pack("=2Q", *words)


def read(address: int) -> tuple[int, int]:
    first, second = (ctypes.c_uint64 * 2).from_address(address)
    return first, second


def test_tables_that_vary_take_bounded_memory_and_recent_ones_stay(memory: list[Any]) -> None:
    some = tables.Tables()
    for number in range(100):
        assert read(some.find(table(number, 7), is_captured=False)) == (number, 7)
        assert read(some.find(table(1000, 7), is_captured=False)) == (1000, 7)  # in every call
    assert len(memory) == 8


def test_what_a_captured_graph_was_given_stays(memory: list[Any]) -> None:
    some = tables.Tables()
    some.find(table(1, 2), is_captured=False)
    kept = [some.find(table(number, 2), is_captured=True) for number in (1, 2, 3)]
    for number in range(10, 100):
        some.find(table(number, 7), is_captured=False)
    assert [read(address) for address in kept] == [(1, 2), (2, 2), (3, 2)]
    assert [some.find(table(number, 2), is_captured=False) for number in (1, 2, 3)] == kept
