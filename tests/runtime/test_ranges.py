"""Ranges for profilers: planning, linking and loading, if a profiler reads them; otherwise nothing is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from jitlto.base.config import Config
from jitlto.runtime.family import KernelFamily, load
from jitlto.runtime.ranges import DOMAIN
from jitlto.runtime.session import Session
from tests.support.launchers import FakeDriver

KERNEL = "mini/kern[data_type=float]"
CONFIGURATION = {"data_type": "float", "op_name": "twice"}


@dataclass
class FakeNvtx:
    """Stands in for the package: the ranges that began, and those that are open."""

    began: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @contextmanager
    def annotate(self, message: str, *, domain: str, category: str) -> Iterator[None]:
        assert domain == DOMAIN
        assert message.startswith(f"{category} ")
        self.began.append(message)
        self.open.append(message)
        try:
            yield
        finally:
            assert self.open.pop() == message


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> FakeNvtx:
    fake, module = FakeNvtx(), ModuleType("nvtx")
    module.annotate = fake.annotate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return fake


def open_family(path: Path, cache: Path, **variables: str) -> KernelFamily:
    settings = Config.read({"JITLTO_CACHE_DIR": str(cache), **variables})
    return load("mini", path, session=Session(settings))


@pytest.fixture
def _device(monkeypatch: pytest.MonkeyPatch, capability: object) -> None:
    FakeDriver(monkeypatch)


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("variable", [{"JITLTO_NVTX": "on"}, {"NVTX_INJECTION64_PATH": "/libToolsInjection64.so"}])
def test_planning_linking_and_loading_are_ranges(
    mini_path: Path, tmp_path: Path, nvtx: FakeNvtx, variable: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    family = open_family(mini_path, tmp_path, **variable)
    family.launcher(**CONFIGURATION)
    assert nvtx.began == ["plan mini", f"link {KERNEL}", f"load {KERNEL}"]
    assert not nvtx.open
    family.launcher(**CONFIGURATION)
    assert len(nvtx.began) == 3
    open_family(mini_path, tmp_path, **variable).launcher(**CONFIGURATION)
    assert nvtx.began[3:] == [f"load {KERNEL}"], "it was in the cache"


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_without_a_profiler_nothing_is_imported(
    mini_path: Path, tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.setitem(sys.modules, "nvtx", None)  # importing it is an error
    monkeypatch.delitem(sys.modules, "jitlto.runtime.ranges")
    family = open_family(mini_path, tmp_path, JITLTO_NVTX=setting)
    family.plan(arch="sm_90", **CONFIGURATION).link()
    assert "jitlto.runtime.ranges" not in sys.modules
    assert family.session.events.step_observer is None


@pytest.mark.parametrize(("setting", "warnings"), [("auto", 0), ("on", 1)])
def test_without_the_package_there_are_no_ranges_and_only_who_asked_is_warned(
    mini_path: Path,
    tmp_path: Path,
    setting: str,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/libToolsInjection64.so")
    monkeypatch.setitem(sys.modules, "nvtx", None)
    open_family(mini_path, tmp_path, JITLTO_NVTX=setting).plan(arch="sm_90", **CONFIGURATION).link()
    assert len([record for record in caplog.records if "nvtx" in record.message]) == warnings
