"""Streams of any library become their handles; here with handles that no driver has made."""

from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.base.errors import LaunchError
from jitlto.cuda import device
from jitlto.cuda.device import stream_handle
from tests.support.errors import raises

DEFAULT = 3


class Foreign:
    """A stream of a library, with some attribute for its handle."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Protocol:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "current", lambda: SimpleNamespace(default_stream=Protocol(DEFAULT)))


@pytest.mark.parametrize("stream", [None, 0, Foreign(ptr=0), Foreign(handle=Foreign(value=None)), Protocol(0)])
def test_none_and_handle_zero_are_the_devices_default_stream(stream: object) -> None:
    assert stream_handle(stream) == DEFAULT


@pytest.mark.parametrize(
    "stream",
    [77, Protocol(77), Foreign(ptr=77), Foreign(cuda_stream=77), Foreign(handle=77), Foreign(handle=Foreign(value=77))],
)
def test_a_handle_is_found_under_any_attribute_name(stream: object) -> None:
    assert stream_handle(stream) == 77


@pytest.mark.parametrize("stream", ["text", object(), 1.0, True])
def test_what_is_no_stream_is_refused(stream: object) -> None:
    with raises(LaunchError, "launch-failed", type(stream).__name__):
        stream_handle(stream)


def test_a_stream_of_cuda_core_that_was_closed_is_refused() -> None:
    own: Any = type("Stream", (Protocol,), {"__module__": "cuda.core._stream", "is_closed": False})
    assert stream_handle(own(5)) == 5
    own.is_closed = True
    with raises(LaunchError, "launch-failed", "closed"):
        stream_handle(own(5))
