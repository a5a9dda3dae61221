"""What the tests of the run side share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitlto import database
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.launch import dispatcher, torch_interface
from tests.support.arrays import TORCH, TorchLibrary


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A device of compute capability 9.0, as far as choosing a kernel asks for one."""
    stand_in = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(device, "current", lambda: stand_in)
    for module in (device, dispatcher):
        monkeypatch.setattr(module, "kind", lambda: stand_in.compute_capability)
    return stand_in


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The databases that were opened, one after the other."""
    paths: list[Path] = []

    class Told(FragmentDatabase):
        def __init__(self, path: str | os.PathLike[str]) -> None:
            paths.append(Path(path))
            super().__init__(path)

    monkeypatch.setattr(database, "FragmentDatabase", Told)
    return paths


@pytest.fixture
def torch_stand_in(monkeypatch: pytest.MonkeyPatch) -> TorchLibrary:
    """Have the dtypes and the library of the stand-in for PyTorch found."""
    library = TorchLibrary()
    monkeypatch.setitem(sys.modules, "torch", TORCH)
    monkeypatch.setattr(torch_interface, "library", lambda: library)
    return library
