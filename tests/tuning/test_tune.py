"""``family.tune``: variants are linked, compared and timed, and the result is wisdom that ``family.best`` uses."""

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.base.errors import JitltoError, LaunchError, LinkError, TuningError, WisdomError
from jitlto.record.tuning import Variant
from jitlto.tuning import tune as tuning
from jitlto.tuning import wisdom_file
from jitlto.tuning.best import Best, Problem
from jitlto.tuning.tune import TuneReport
from tests.support.errors import raises
from tests.support.simulated import Simulated
from tests.support.tuned import PlannedFamily, pretend_to_link

PROBLEM = {"n": 1000, "data_type": "float"}
OUTPUT = SimpleNamespace(name="output", __cuda_array_interface__={"typestr": "<f4"})


@pytest.fixture(autouse=True)
def _not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_link(monkeypatch)


def seconds(variant: Variant) -> float:
    slow = {"twice": 2.0, "square": 1.0}[dict(variant.parameters)["op_name"]]
    return slow * (1.1 if variant.block == (256,) else 1.0)


def tune(
    family: PlannedFamily,
    device: Simulated | None = None,
    write: Callable[[Best], object] | None = None,
    **how: Any,
) -> TuneReport:
    """Tune a simulated kernel, which may write to ``OUTPUT``, and may be refused."""

    def launch(best: Best, stream: Any) -> float:
        if write is not None:
            write(best)
        return seconds(best.variant)

    results = [OUTPUT] if device is not None and device.arrays else []
    report = tuning.tune(family, PROBLEM, launch, results, measures=device or Simulated(1), **how)
    family.best.forget()
    return report


def with_output(value: bytes = b"\xff" * 4) -> Simulated:
    device = Simulated(1)
    device.arrays["output"] = value
    return device


def test_what_is_found_is_used(tuned: PlannedFamily) -> None:
    assert tuned.best(**PROBLEM).origin == "default"
    report = tune(tuned)
    assert len(report.entry.trials) == 4
    best = tuned.best(**PROBLEM)
    assert (best.origin, best.variant) == ("measured", report.entry.chosen.variant)
    assert str(best.variant) == "op_name=square block=128"
    assert report.entry.speed_up == pytest.approx(2.0, rel=0.02)
    assert len(wisdom_file.read(tuned.session.config.wisdom).entries) == 1


def test_ten_tunings_give_one_answer(tuned: PlannedFamily) -> None:
    found = {tune(tuned, device=Simulated(seed), save=False).entry.chosen.variant for seed in range(10)}
    assert len(found) == 1
    assert not tuned.session.config.wisdom.exists()


def test_wisdom_that_cannot_be_kept_is_an_error_before_anything_is_measured(tuned: PlannedFamily) -> None:
    tuned.session.config.wisdom.write_text("of another version")
    device = Simulated(1)
    with raises(WisdomError, "wisdom-damaged"):
        tune(tuned, device=device)
    assert device.now == 0


def test_a_variant_with_other_results_is_never_timed(tuned: PlannedFamily) -> None:
    device = with_output()

    def write(best: Best) -> None:
        wrong = dict(best.variant.parameters)["op_name"] == "square"
        device.arrays["output"] = struct.pack("<f", 2.0 if wrong else 1.0)

    report = tune(tuned, device, write)
    assert dict(report.entry.chosen.variant.parameters)["op_name"] == "twice"
    assert len(report.outcome.rejected) == 2
    assert all("results" in why for why in report.outcome.rejected.values())


def test_a_variant_that_writes_nothing_is_found_by_what_was_there_before(tuned: PlannedFamily) -> None:
    device = with_output()

    def write(best: Best) -> None:
        if best.block == (128,):
            device.arrays["output"] = struct.pack("<f", 1.0)

    report = tune(tuned, device, write)
    assert {variant.block for variant in report.outcome.rejected} == {(256,)}


@pytest.mark.parametrize("error", [LaunchError("too many threads"), TuningError("rows of odd length")])
def test_a_variant_that_does_not_launch_is_left_out_and_said(tuned: PlannedFamily, error: JitltoError) -> None:
    def write(best: Best) -> None:
        if best.block == (256,):
            raise error

    report = tune(tuned, write=write)
    assert [trial.variant.block for trial in report.entry.trials] == [(128,), (128,)]
    assert {variant.block: why for variant, why in report.outcome.rejected.items()} == {(256,): error.what}


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
    def launcher(self: Problem, variant: Variant) -> Any:
        if dict(variant.parameters)["op_name"] == "square":
            raise LinkError("too few registers")
        return found(self, variant)

    found = Problem.launcher
    monkeypatch.setattr(Problem, "launcher", launcher)
    report = tune(tuned)
    assert set(report.outcome.rejected.values()) == {"too few registers"}
    assert len(report.entry.trials) == 2


def test_a_budget_ends_it_with_what_was_found(tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Simulated(1)
    monkeypatch.setattr(tuning.time, "monotonic", lambda: device.now)
    report = tune(tuned, device=device, budget=7.0)
    assert {*report.outcome.rejected.values()} == {"not timed: the budget was spent"}
    assert tuned.best(**PROBLEM).origin == "measured"
