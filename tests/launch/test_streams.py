"""Streams of any library become what cuda.core takes; here with handles that no driver has made."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.cuda import device
from jitlto.launch import streams
from jitlto.launch.streams import as_stream

DEFAULT = object()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The handles from which cuda.core's streams were made."""
    handles: list[int] = []

    def from_handle(handle: int) -> tuple[str, int]:
        handles.append(handle)
        return ("stream", handle)

    monkeypatch.setattr(streams, "Stream", SimpleNamespace(from_handle=from_handle))
    monkeypatch.setattr(streams, "streams_by_handle", {})
    monkeypatch.setattr(streams, "thread", threading.local())
    monkeypatch.setattr(device, "current", lambda: SimpleNamespace(default_stream=DEFAULT))
    return handles


class Foreign:
    """A stream of a library, with some attribute for its handle."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Protocol:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


@pytest.mark.parametrize("stream", [None, 0, Foreign(ptr=0), Protocol(0)])
def test_none_and_handle_zero_are_the_devices_default_stream(made: list[int], stream: object) -> None:
    assert as_stream(stream) is DEFAULT
    assert made == []


@pytest.mark.parametrize(
    "stream",
    [77, Protocol(77), Foreign(ptr=77), Foreign(cuda_stream=77), Foreign(handle=77), Foreign(handle=Foreign(value=77))],
)
def test_a_handle_becomes_a_stream_under_any_attribute_name(made: list[int], stream: object) -> None:
    assert as_stream(stream) == ("stream", 77)


def test_a_handle_is_converted_once_and_the_object_that_bore_it_is_not_kept_alive(made: list[int]) -> None:
    stream = Protocol(77)
    converted = as_stream(stream)
    gone = weakref.ref(stream)
    del stream
    gc.collect()
    assert gone() is None
    for other in (77, Foreign(ptr=77), Protocol(77)):
        assert as_stream(other) is converted
    assert made == [77]


def test_a_stream_that_will_be_asked_for_its_device_is_made_each_time(made: list[int]) -> None:
    for stream in (77, Protocol(77)):
        as_stream(stream)
        as_stream(stream, reusable=False)
    assert made == [77, 77, 77]


def test_each_thread_asks_for_the_default_stream_once(monkeypatch: pytest.MonkeyPatch, made: list[int]) -> None:
    threads: list[int] = []
    current = SimpleNamespace(default_stream=DEFAULT)
    monkeypatch.setattr(device, "current", lambda: [threads.append(threading.get_ident()), current][1])

    def work() -> None:
        for stream in (None, 0, Protocol(0)):
            assert as_stream(stream) is DEFAULT

    work()
    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert len(threads) == len(set(threads)) == 2


def test_other_objects_and_streams_of_cuda_core_are_passed_on(made: list[int]) -> None:
    own = type("GraphBuilder", (Protocol,), {"__module__": "cuda.core._graph"})(5)
    for stream in ("text", object(), own):
        assert as_stream(stream) is stream
    assert made == []
