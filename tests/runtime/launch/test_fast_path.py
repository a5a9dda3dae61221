"""Specialised launches: what reaches the driver is what the parameters' converters make, for any argument."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.errors import ArgumentError, LaunchError
from jitlto.model.types import Parameter, scalar
from jitlto.runtime.launch.arguments import converter
from jitlto.runtime.launch.fast_path import specialise

TYPES = [
    "bool", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long",
    "unsigned long long", "float", "double", "__half", "__nv_bfloat16", "int64_t", "uint32_t",
]  # fmt: skip

VALUES = st.one_of(
    st.integers(-(1 << 65), 1 << 65),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.sampled_from([np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]).flatmap(
        lambda t: st.integers(0, 100).map(t)
    ),
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(lambda t: st.floats(width=16).map(t)),
    st.sampled_from([np.bool_(True), np.bool_(False), np.array(3), np.array([1, 2]), 1j]),
)


def parameter(type_: str) -> Parameter:
    known = scalar(type_)
    size = 8 if known is None else known.size
    return Parameter("x", type_, size, size)


class Launches:
    """A launcher's functions around a launch that only notes what it is given."""

    def __init__(self, *types: str) -> None:
        signature = [parameter(type_) for type_ in types]
        self.seen: list[tuple[Any, ...]] = []
        self.configured: list[tuple[Any, ...]] = []
        self.configs: dict[Any, Any] = {}
        self.functions = specialise(signature, [converter(p) for p in signature])
        self.functions |= {
            "launch": lambda *given: self.seen.append(given),
            "kernel": "kernel",
            "configs": self.configs,
            "configure": self.configure,
            "Stream": str,
            "as_stream": str,
            "count_error": lambda count: ArgumentError(f"{count} given"),
            "failed": lambda error, *how: LaunchError(f"{error} {how}"),
        }

    def configure(self, *key: Any) -> Any:
        self.configured.append(key)
        self.configs[key] = ("config", *key)
        return self.configs[key]

    def __call__(self, *args: Any, **more: Any) -> tuple[Any, ...]:
        self.functions["__call__"](None, "stream", 1, 32, *args, **more)
        return self.seen[-1]


def as_bytes(value: Any, type_: str) -> bytes:
    """What the kernel reads: cuda.core sends an int as 8 bytes, a float as a double, a NumPy scalar as it is."""
    known = scalar(type_)
    assert known is not None
    if type(value) is int:
        return struct.pack("<q", value)[: known.size]
    whole = struct.pack("<d", value) if type(value) is float else value.tobytes()
    assert len(whole) == known.size
    return whole


@pytest.mark.parametrize("type_", TYPES)
@given(value=VALUES)
def test_the_kernel_reads_what_the_converter_makes(type_: str, value: Any) -> None:
    launches = Launches(type_)
    try:
        expected = as_bytes(converter(parameter(type_))(value), type_)
    except ArgumentError as error:
        with pytest.raises(ArgumentError) as caught:
            launches(value)
        assert str(caught.value) == str(error)
        assert not launches.seen
        return
    *_, given_value = launches(value)
    assert as_bytes(given_value, type_) == expected


def test_arguments_keep_their_places() -> None:
    launches = Launches("int", "double", "bool", "float*", "unsigned")
    stream, config, kernel, *values = launches(-1, 2.5, True, None, 7)
    assert (stream, kernel) == ("stream", "kernel")
    assert config == ("config", 1, 32, 0, None, False, False)
    assert values == [-1, 2.5, np.bool_(True), 0, 7]


def test_a_configuration_is_made_once() -> None:
    launches = Launches("int")
    for _ in range(3):
        launches(1)
        launches(1, shared_memory=64, cooperative=True)
    assert launches.configured == [(1, 32, 0, None, False, False), (1, 32, 64, None, True, False)]


@pytest.mark.parametrize("types", [(), ("int",), ("int", "float")])
def test_a_wrong_number_of_arguments_is_an_error_before_all_else(types: tuple[str, ...]) -> None:
    launches = Launches(*types)
    for count in {0, 1, 2, 3} - {len(types)}:
        with pytest.raises(ArgumentError, match=f"{count} given"):
            launches(*[1] * count)
    assert not launches.seen
    launches(*[1] * len(types))
    assert len(launches.seen) == 1


def test_what_the_launch_raises_is_told_with_its_configuration() -> None:
    launches = Launches("int")

    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    launches.functions["launch"] = fail
    with pytest.raises(LaunchError, match=r"no \(1, 32, 5\)"):
        launches(1, shared_memory=5)
    with pytest.raises(LaunchError, match=r"no \(2, 64, 6\)"):
        launches.functions["bind"]("stream", "config", 1, 2, 64, 6)()


def test_a_bound_launch_repeats_what_it_was_bound_to() -> None:
    launches = Launches("int", "double")
    bound = launches.functions["bind"]("stream", "config", 3, 0.5, 1, 32, 0)
    bound()
    bound()
    assert launches.seen == [("stream", "config", "kernel", 3, 0.5)] * 2
