"""A tuned family for tests without a GPU: kernels are planned and not linked, launchers note what they are given."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.build.pipeline import build
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.tuning import Variant
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.tuning.best import Problem
from tests.support import launch_core
from tests.support.families import MINI, write_family
from tests.support.wisdom import H200

#: ``mini`` with two functions of which either may be used, and two blocks: 4 variants.
TUNED = MINI | {
    "family.toml": MINI["family.toml"]
    + """
[entrypoint.kern.tune]
free  = {op_name = "twice"}
block = [128, 256]
sizes = {n = "log2"}
"""
}


def build_tuned(directory: Path) -> Path:
    """Build it; returns the path of the database."""
    path = write_family(directory, TUNED)
    return build([declaration.load_family(path)], directory / "tuned.fragdb", jobs=1).path


def pretend_to_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan kernels, and pretend to link them."""

    def link(asked: Problem, variant: Variant) -> None:
        asked.family.plan(**asked.request(variant))

    monkeypatch.setattr(Problem, "link", link)


class FakeLauncher:
    """Stands for a launcher: has the digest of its plan, and notes launches."""

    def __init__(self, plan: Any) -> None:
        self.plan, self.chosen = plan, plan.chosen
        self.launches: list[tuple[Any, ...]] = []

    def wait(self) -> "FakeLauncher":
        return self

    def __call__(self, *arguments: Any, **attributes: Any) -> None:
        self.launches.append((*arguments, attributes))


class PlannedFamily(KernelFamily):
    """A family whose launchers are fakes of plans for sm_90."""

    __slots__ = ()

    def plan(self, *, arch: Any = None, **how: Any) -> Any:
        return super().plan(arch=arch or "sm_90", **how)

    def launcher(  # type: ignore[override]
        self, *, entry: str | None = None, link_mode: str = "lto", link_options: Any = None, **configuration: object
    ) -> FakeLauncher:
        plan = self.plan(entry=entry, arch="sm_90", link_options=link_options, **configuration)
        if plan.digest not in self._launchers:
            self._launchers[plan.digest] = FakeLauncher(plan)  # type: ignore[assignment]
        return self._launchers[plan.digest]  # type: ignore[return-value]


def open_tuned(path: Path, monkeypatch: pytest.MonkeyPatch, core: Any = None, **settings: str) -> PlannedFamily:
    """Open it on a pretended H200, with settings of its own and an empty wisdom."""
    from jitlto.base.config import Config

    names: Mapping[str, str] = {
        "JITLTO_CACHE_DIR": str(path.parent / "cache"), "JITLTO_WISDOM": str(path.parent / "own.wisdom"), **settings
    }  # fmt: skip
    launch_core.use(monkeypatch, core)
    monkeypatch.setattr(device, "current", lambda: SimpleNamespace(compute_capability=(9, 0), device_id=0))
    monkeypatch.setattr(device, "current_kind", lambda: H200)
    monkeypatch.setattr(device, "place", lambda: 0)
    return PlannedFamily("mini", FragmentDatabase(path), Session(Config.read(names)))
