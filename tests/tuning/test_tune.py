"""``family.tune``: variants are linked, compared and timed, and the result is wisdom that ``family.best`` uses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.base.errors import LinkError
from jitlto.record.tuning import Variant
from jitlto.tuning import tune as tuning
from jitlto.tuning import wisdom_file
from jitlto.tuning.best import Best, Problem
from jitlto.tuning.tune import TuneReport, Workload
from tests.support.simulated import Simulated
from tests.support.tuned import PlannedFamily, pretend_to_link

PROBLEM = {"n": 1000, "data_type": "float"}
OUTPUT = SimpleNamespace(name="output", __cuda_array_interface__={"typestr": "<f4"})


@pytest.fixture(autouse=True)
def _not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_link(monkeypatch)


def seconds(variant: Variant) -> float:
    slow = {"twice": 2.0, "square": 1.0}[dict(variant.parameters)["op_name"]]
    return slow * (1.1 if dict(variant.launch)["block"] == "256" else 1.0) * (1.2 if variant.link else 1.0)


def workload(write: Callable[[Best, Simulated], object] = lambda *_: None, device: Simulated | None = None) -> Workload:
    """A simulated kernel, which may write to ``OUTPUT``."""

    def launch(best: Best, stream: Any) -> float:
        if device is not None:
            write(best, device)
        return seconds(best.variant)

    return Workload(results=(OUTPUT,) if device is not None else (), launch=launch)


def tune(
    family: PlannedFamily, load: Workload | None = None, device: Simulated | None = None, **how: Any
) -> TuneReport:
    report = tuning.tune(family, PROBLEM, load or workload(), measures=device or Simulated(1), **how)
    family.best.forget()
    return report


def test_what_is_found_is_used(tuned: PlannedFamily) -> None:
    assert tuned.best(**PROBLEM).origin == "default"
    report = tune(tuned)
    assert report.variants == 8 == len(report.entry.trials)
    best = tuned.best(**PROBLEM)
    assert (best.origin, best.variant) == ("measured", report.entry.chosen.variant)
    assert str(best.variant).startswith("op_name=square block=128")
    assert best.variant.link == ()
    assert report.entry.speed_up == pytest.approx(2.0, rel=0.02)
    assert len(wisdom_file.read(tuned.session.config.wisdom)) == 1


def test_ten_tunings_give_one_answer(tuned: PlannedFamily) -> None:
    found = {tune(tuned, device=Simulated(seed), save=False).entry.chosen.variant for seed in range(10)}
    assert len(found) == 1
    assert not tuned.session.config.wisdom.exists()


def test_a_variant_with_other_results_is_never_timed(tuned: PlannedFamily) -> None:
    device = Simulated(1)
    device.arrays["output"] = b"\xff" * 4

    def write(best: Best, where: Simulated) -> None:
        wrong = dict(best.variant.parameters)["op_name"] == "square"
        where.arrays["output"] = struct.pack("<f", 2.0 if wrong else 1.0)

    report = tune(tuned, workload(write, device), device)
    assert dict(report.entry.chosen.variant.parameters)["op_name"] == "twice"
    assert len(report.outcome.rejected) == 4
    assert all("results" in why for why in report.outcome.rejected.values())


def test_a_variant_that_writes_nothing_is_found_by_what_was_there_before(tuned: PlannedFamily) -> None:
    device = Simulated(1)
    device.arrays["output"] = b"\xff" * 4

    def write(best: Best, where: Simulated) -> None:
        if not best.variant.link:
            where.arrays["output"] = struct.pack("<f", 1.0)

    report = tune(tuned, workload(write, device), device)
    assert {variant.link for variant in report.outcome.rejected} == {(("max_registers", 64),)}


@pytest.mark.parametrize(
    ("kind", "one", "other", "tolerance", "expected"),
    [
        ("<f4", struct.pack("<f", 1.0), struct.pack("<f", 1.0001), 1e-3, True),
        ("<f4", struct.pack("<f", 1.0), struct.pack("<f", 1.01), 1e-3, False),
        ("<f4", struct.pack("<f", float("nan")), struct.pack("<f", float("nan")), 1e-3, True),
        ("<f4", struct.pack("<f", float("inf")), struct.pack("<f", float("inf")), 1e-3, True),
        ("<f4", struct.pack("<f", float("nan")), struct.pack("<f", 1.0), 1e-3, False),
        ("<f8", struct.pack("<d", -1.0), struct.pack("<d", 1.0), 0.5, False),
        ("<i4", struct.pack("<i", 1000), struct.pack("<i", 1001), 0.5, False),
        ("<f4", struct.pack("<f", 0.0), struct.pack("<f", -0.0), 0.0, False),
        ("<c8", struct.pack("<ff", 1.0, 1.0), struct.pack("<ff", 1.0, 1.0001), 1e-3, True),
    ],
)
def test_results_agree_to_the_tolerance(kind: str, one: bytes, other: bytes, tolerance: float, expected: bool) -> None:
    array = SimpleNamespace(__cuda_array_interface__={"typestr": kind})
    assert tuning._agree(array, one, other, tolerance) is expected


def test_a_variant_that_does_not_link_is_left_out(tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(self: Problem, variant: Variant) -> Any:
        if variant.link:
            raise LinkError("too few registers")
        return linked(self, variant)

    linked = Problem.link
    monkeypatch.setattr(Problem, "link", link)
    report = tune(tuned)
    assert set(report.outcome.rejected.values()) == {"too few registers"}
    assert len(report.entry.trials) == 4


def test_variants_with_the_same_code_and_launch_are_timed_once(
    tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = SimpleNamespace(cubin=b"an option that changes nothing")
    monkeypatch.setattr(Problem, "link", lambda self, variant: same)
    report = tune(tuned)
    assert report.variants == 2 == len(report.entry.trials)  # two blocks
    assert all(not trial.variant.link for trial in report.entry.trials)
    assert report.entry.default.variant in {trial.variant for trial in report.entry.trials}


def test_a_budget_ends_it_with_what_was_found(tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Simulated(1)
    monkeypatch.setattr(tuning.time, "monotonic", lambda: device.now)
    report = tune(tuned, device=device, budget=25.0)
    assert report.outcome.untried > 0
    assert not report.outcome.is_complete
    assert tuned.best(**PROBLEM).origin == "measured"


def test_arguments_may_depend_on_the_variant(tuned: PlannedFamily) -> None:
    best = tuned.best(**PROBLEM)
    Workload(lambda chosen: ["x", chosen.launch.block]).bind(best, "stream")()
    Workload(["x"]).bind(best, "stream")()
    assert [launch[3:-1] for launch in best.launcher.launches] == [("x", (128,)), ("x",)]  # type: ignore[attr-defined]
