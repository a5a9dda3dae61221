"""The handler for XLA, called as XLA calls it, with functions that stand for XLA's and the driver's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support import launch_core
from tests.support.launchers import NativeConfig

pytestmark = pytest.mark.slow  # it is compiled

_LENIENT = ("-Wno-missing-field-initializers",)
_DIGEST = bytes(range(32))
_CONTEXT, _STREAM, _KERNEL = 0x10, 0x20, 0x30
_METADATA, _EXECUTE, _INT64 = 1, 3, 5
_VALUE = 8 << 8  # the source of an argument: a value of 8 bytes
_WORD = ctypes.c_size_t

_Launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(NativeConfig), _WORD, ctypes.POINTER(_WORD), _WORD)
_OutOfStream = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, ctypes.POINTER(_WORD))
_Push, _Pop = ctypes.CFUNCTYPE(ctypes.c_int, _WORD), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_WORD))
_Handler = ctypes.CFUNCTYPE(_WORD, _WORD)
_OfArguments = ctypes.CFUNCTYPE(_WORD, ctypes.POINTER(_WORD))


class Xla:
    """XLA, and the driver below the handler. All structures are arrays of words, as on 64-bit machines they are."""

    def __init__(self, core: ModuleType) -> None:
        self.statuses: list[int] = []  # of the next launches
        self.launches: list[tuple[tuple[int, ...], int, int, list[int]]] = []
        self.contexts: list[int] = []
        self.errors: list[tuple[str, int]] = []
        self._kept: list[Any] = [
            _Launch(self._launch), _OutOfStream(self._get_context), _Push(self._push), _Pop(self._pop)
        ]  # fmt: skip
        self._api = [_OfArguments(self._create_error), _OfArguments(self._get_stream)]
        addresses = tuple(ctypes.cast(each, ctypes.c_void_p).value for each in self._kept)
        core.add_xla_kernel(_DIGEST, _KERNEL)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        self.handler = _Handler(get(core.make_xla_handler(addresses, 0, 7), b"xla._CUSTOM_CALL_TARGET"))

    def _launch(self, config: Any, kernel: int, parameters: Any, _: int) -> int:
        status = self.statuses.pop(0) if self.statuses else 0
        values = [_WORD.from_address(parameters[number]).value for number in range(3)]
        extents = (*config[0].grid, *config[0].block, config[0].shared_memory, config[0].attribute_count)
        self.launches.append((extents, config[0].stream or 0, kernel, values))
        return status

    def _get_context(self, stream: int, context: Any) -> int:
        assert stream == _STREAM
        context[0] = _CONTEXT
        return 0

    def _push(self, context: int) -> int:
        self.contexts.append(context)
        return 0

    def _pop(self, context: Any) -> int:
        self.contexts.append(-_CONTEXT)
        return 0

    def _create_error(self, arguments: Any) -> int:
        self.errors.append((ctypes.string_at(arguments[2]).decode(), arguments[3] & 0xFFFFFFFF))
        return len(self.errors)

    def _get_stream(self, arguments: Any) -> int:
        arguments[3] = _STREAM
        return 0

    def words(self, *values: int) -> int:
        """The address of words that are kept."""
        self._kept.append((_WORD * len(values))(*(value & (1 << 64) - 1 for value in values)))
        return ctypes.addressof(self._kept[-1])

    def bytes(self, data: Any) -> int:
        """The address of data that is kept."""
        self._kept.append(np.frombuffer(bytes(data), np.uint8).copy())
        return int(self._kept[-1].ctypes.data)

    def call(self, call: Any, attributes: int = 1, stage: int = _EXECUTE) -> str:
        """Call the handler with two arrays and one result; return its error."""
        ints, buffer = self.words(1 | 1 << 32, 1), lambda data: self.words(0, 0, 11, data, 0, 0)
        array = self.words(_INT64, len(call), self.bytes(np.asarray(call, np.int64).tobytes() + b" "))
        given = (attributes, ints, 0, self.words(array))
        api = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._api]
        table = self.words(0, 0, 0, 0, 0, 0, api[0], 0, 0, 0, api[1])
        arguments = (0, 0, 2, ints, self.words(buffer(0x100), buffer(0x200)))
        results = (0, 0, 1, ints, self.words(buffer(0x300)))
        error = self.handler(self.words(0, 0, table, 0, stage, *arguments, *results, 0, 0, *given))
        return self.errors[error - 1][0] if error else ""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled core, loaded once more, for XLA itself may use the other."""
    path = launch_core.build(tmp_path_factory.mktemp("core"), "-O1", "-Wall", "-Wextra", "-Werror", *_LENIENT)
    spec = spec_from_file_location(launch_core.NAME, path, loader=ExtensionFileLoader(launch_core.NAME, str(path)))
    assert spec is not None
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def xla(core: ModuleType) -> Xla:
    return Xla(core)


def call(*sources: int, cluster: int = 0, digest: bytes = _DIGEST, count: int = 3, cooperative: int = 0) -> list[int]:
    """A call of a grid of 4 blocks of 32 threads; the last word is a value."""
    head = np.frombuffer(digest, np.int64).tolist()
    words = [*head, 4, 1, 1, 32, 1, 1, 64, cluster, cluster, cluster, cooperative, count]
    return [*words, *(sources or (1, 1, 2, 0, _VALUE, 22)), 77]


def test_the_handler_says_its_version_and_that_it_may_be_in_command_buffers(xla: Xla) -> None:
    metadata = (_WORD * 8)()
    extension = xla.words(0, _METADATA, 0, ctypes.addressof(metadata))
    assert xla.handler(xla.words(0, extension, *[0] * 20)) == 0
    assert (metadata[3], metadata[4]) == (0 | 7 << 32, 1)
    assert not xla.launches


def test_a_launch_takes_arrays_results_and_values_in_the_stream(xla: Xla) -> None:
    assert xla.call(call()) == ""
    assert xla.launches == [((4, 1, 1, 32, 1, 1, 64, 0), _STREAM, _KERNEL, [0x200, 0x300, 77])]
    assert xla.contexts == []
    assert xla.call(call(cluster=2, cooperative=1)) == ""
    assert xla.launches[1][0][-1] == 2


def test_a_value_may_lie_anywhere_and_end_with_the_call(xla: Xla) -> None:
    assert xla.call([*call(1, 1, 2, 0, 24 << 8, 22), 78, 79]) == ""
    assert xla.call(call(1, 1, 2, 0, 16 << 8, 21)) == ""
    assert [launched[3][2] for launched in xla.launches] == [77, 21]


def test_before_the_execution_nothing_happens(xla: Xla) -> None:
    for stage in range(_EXECUTE):
        assert xla.call(call(), stage=stage) == ""
    assert not xla.launches


def test_a_launch_that_fails_is_tried_in_the_context_of_the_stream(xla: Xla) -> None:
    xla.statuses = [201]
    assert xla.call(call()) == ""
    assert xla.contexts == [_CONTEXT, -_CONTEXT]
    xla.statuses = [1, 719]
    assert "719" in xla.call(call())
    assert len(xla.launches) == 4
    assert len(xla.contexts) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: call(count=-1), lambda: call(count=4), lambda: call(count=129), lambda: call()[:15], list,
        lambda: call(1, 2, 2, 0, _VALUE, 22), lambda: call(1, -1, 2, 0, _VALUE, 22),
        lambda: call(1, 1, 2, 1, _VALUE, 22), lambda: call(1, 1, 2, 0, _VALUE, 23),
        lambda: call(1, 1, 2, 0, _VALUE, -1), lambda: call(1, 1, 2, 0, _VALUE, 0),
        # A value whose end is not in the call, that has no bytes, and that has more than there can be.
        lambda: call(1, 1, 2, 0, 9 << 8, 22), lambda: call(1, 1, 2, 0, 17 << 8, 21), lambda: call(1, 1, 2, 0, 0, 22),
        lambda: call(1, 1, 2, 0, -1 << 8, 22), lambda: call(1, 1, 2, 0, (1 << 55) - 1 << 8, 22),
        # An array has no bytes, and there is no other kind.
        lambda: call(1 | 8 << 8, 1, 2, 0, _VALUE, 22), lambda: call(1, 1, 3, 0, _VALUE, 22),
    ],
)  # fmt: skip
def test_a_malformed_call_launches_nothing(xla: Xla, wrong: Callable[[], list[int]]) -> None:
    assert "malformed" in xla.call(wrong())
    assert not xla.launches


def test_more_attributes_or_an_unknown_kernel_launches_nothing(xla: Xla) -> None:
    assert "malformed" in xla.call(call(), attributes=2)
    assert "not loaded" in xla.call(call(digest=bytes(32)))
    assert not xla.launches


def test_a_kernel_that_was_loaded_again_is_found(xla: Xla, core: ModuleType) -> None:
    core.add_xla_kernel(_DIGEST, 0x40)
    xla.call(call())
    assert xla.launches[0][2] == 0x40


def test_in_a_forked_process_nothing_is_launched(core: ModuleType) -> None:
    xla = Xla(core)
    core.forget()
    assert "forked" in xla.call(call())
    with pytest.raises(ValueError, match="32 bytes"):
        core.add_xla_kernel(b"short", 1)
