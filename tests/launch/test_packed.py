"""The bytes of an argument reach the driver through ``cuda.core`` as they are."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.core._kernel_arg_handler import ParamHolder
from hypothesis import given
from hypothesis import strategies as st

from jitlto.launch import packed
from jitlto.launch.packed import Packed, is_passed_on, to_bytes


@given(st.lists(st.binary(min_size=1, max_size=5000), min_size=1, max_size=4))
def test_cuda_core_gives_the_driver_the_address_of_the_bytes(contents: list[bytes]) -> None:
    values = [Packed.copy(bytearray(content), len(content)) for content in contents]
    holder = ParamHolder((*values, 7))
    addresses = ctypes.cast(holder.ptr, ctypes.POINTER(ctypes.c_void_p))
    found = [ctypes.string_at(addresses[n] or 0, len(content)) for n, content in enumerate(contents)]
    assert found == contents == list(map(bytes, values))


def test_later_changes_of_a_value_do_not_matter() -> None:
    value = ctypes.c_int(5)
    copy = Packed.copy(value, 4)
    value.value = 6
    assert bytes(copy) == (5).to_bytes(4, "little")
    assert memoryview(copy.storage).nbytes == 4


def test_the_installed_cuda_core_passes_structures_on() -> None:
    is_passed_on.cache_clear()
    assert is_passed_on()


def test_another_cuda_core_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed.Packed, "handle", 7)
    is_passed_on.cache_clear()
    assert not is_passed_on()
    monkeypatch.delattr(packed.Packed, "copy")
    is_passed_on.cache_clear()
    assert not is_passed_on()
    is_passed_on.cache_clear()


def test_every_converted_value_has_the_bytes_that_the_kernel_reads() -> None:
    assert to_bytes(-1, 4) == b"\xff" * 4
    assert to_bytes(np.float32(1), 4) == np.float32(1).tobytes()
    assert to_bytes(Packed.copy(b"abc", 3), 3) == b"abc"
