"""Launchers without a GPU: the driver's part is played by objects that note what they are given."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.core import LaunchConfig

from jitlto.cuda import device
from jitlto.model.types import Parameter, find_scalar
from jitlto.runtime.discovery.lookup_cache import Chosen
from jitlto.runtime.launch import launcher as launcher_module
from jitlto.runtime.launch import streams
from jitlto.runtime.launch.launcher import Launcher
from jitlto.runtime.linking.kernel_cache import LinkedKernel


class Stream:
    """A stream that needs no conversion."""


class FakeDriver:
    """Stands for the driver below launchers.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Puts it in place.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = Stream()
        #: What reached ``cuda.core.launch``: stream, configuration, kernel and values.
        self.launches: list[tuple[Any, ...]] = []
        #: Raised by the next launches.
        self.error: Exception | None = None
        self.kernel = SimpleNamespace(attributes={0: SimpleNamespace(shared_size_bytes=0)}, handle=0)
        code = SimpleNamespace(get_kernel=lambda _: self.kernel)
        from_code = staticmethod(lambda _, name: code)
        current = SimpleNamespace(device_id=0, default_stream=self.stream, compute_capability=(9, 0))
        monkeypatch.setattr(device, "current", lambda: current)
        monkeypatch.setattr(launcher_module, "ObjectCode", SimpleNamespace(from_cubin=from_code, from_ptx=from_code))
        monkeypatch.setattr(launcher_module, "_allowed_in_captures", contextlib.nullcontext)
        monkeypatch.setattr(launcher_module, "Stream", Stream)
        monkeypatch.setattr(launcher_module, "launch", self.launch)
        monkeypatch.setattr(streams, "_thread", threading.local())

    def launch(self, stream: Any, config: LaunchConfig, kernel: Any, *values: Any) -> None:
        """Take the place of ``cuda.core.launch``."""
        assert kernel is self.kernel
        if self.error is not None:
            raise self.error
        self.launches.append((stream, config, *values))

    def launcher(self, *types: str) -> Launcher:
        """The first launcher of a kernel with parameters of some types, called ``a0``, ``a1`` and so on."""
        launcher_module._signature_class.cache_clear()
        return make_launcher([parameter(type_, f"a{number}") for number, type_ in enumerate(types)])


def make_launcher(signature: Sequence[Parameter]) -> Launcher:
    """A launcher of a kernel ``test/kern`` with a signature."""
    linked = LinkedKernel(b"\x7fELF", "kern", "sm_90", "", 0.0)
    return Launcher(Chosen("test/kern", "0" * 64, tuple(signature)), linked, lambda: pytest.fail("no plan needed"))


def parameter(type_: str, name: str = "x") -> Parameter:
    """A parameter of a type."""
    known = find_scalar(type_)
    size = 8 if known is None else known.size
    return Parameter(name, type_, size, size)
