"""Ranges for profilers: planning, linking and loading, if a profiler reads them; otherwise nothing is imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from jitlto.base.config import Config
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.source.load import load
from tests.support.launchers import FakeDriver

KERNEL = "mini/kern[data_type=float]"
CONFIGURATION = {"data_type": "float", "op_name": "twice"}


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ranges that a stand-in for the package made, each when it ended."""
    ended: list[str] = []

    @contextmanager
    def annotate(message: str, *, domain: str, category: str) -> Iterator[None]:
        yield
        ended.append(f"{domain}: {message}")
        assert message.startswith(f"{category} ")

    module = ModuleType("nvtx")
    module.annotate = annotate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return ended


def open_family(path: Path, cache: Path) -> KernelFamily:
    return load("mini", path, session=Session(Config.read({"JITLTO_CACHE_DIR": str(cache)})))


def test_planning_linking_and_loading_are_ranges(
    mini_path: Path, tmp_path: Path, ranges: list[str], capability: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeDriver(monkeypatch)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/libToolsInjection64.so")
    family = open_family(mini_path, tmp_path)
    family.launcher(**CONFIGURATION)
    assert ranges == ["jitlto: plan mini", f"jitlto: link {KERNEL}", f"jitlto: load {KERNEL}"]
    family.launcher(**CONFIGURATION)
    assert len(ranges) == 3
    open_family(mini_path, tmp_path).launcher(**CONFIGURATION)
    assert ranges[-1] == f"jitlto: load {KERNEL}"
    assert f"jitlto: link {KERNEL}" not in ranges[3:], "it was in the cache"


@pytest.mark.parametrize("is_profiled", [False, True])
def test_without_a_profiler_or_the_package_there_are_none(
    mini_path: Path, tmp_path: Path, is_profiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    if is_profiled:
        monkeypatch.setenv("NVTX_INJECTION64_PATH", "/libToolsInjection64.so")
    monkeypatch.setitem(sys.modules, "nvtx", None)  # importing it is an error
    family = open_family(mini_path, tmp_path)
    family.plan(arch="sm_90", **CONFIGURATION).link()
    assert family.session.events.step_observer is None
