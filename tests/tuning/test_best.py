"""``family.best``: what wisdom says is used, for the kernel, the device and the problem that it was measured for."""

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.base.errors import PlanError
from jitlto.build.pipeline import build
from jitlto.cuda import device
from jitlto.families import declaration
from jitlto.record.tuning import Variant
from jitlto.tuning import wisdom_file
from jitlto.tuning.best import Problem
from jitlto.tuning.wisdom import Entry, Trial, Wisdom
from tests.support import launch_core
from tests.support.errors import raises
from tests.support.families import write_family
from tests.support.tuned import TUNED, PlannedFamily, open_tuned
from tests.support.wisdom import A100, H200, make_entry

FLOAT = {"data_type": "float"}


@pytest.fixture
def exact(tuned_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedFamily:
    """The same, with a size of which each value is a bucket of its own."""
    toml = TUNED["family.toml"].replace('{n = "log2"}', '{n = "log2", dim = "exact"}')
    path = write_family(tmp_path / "exact", TUNED | {"family.toml": toml})
    build([declaration.load_family(path)], tuned_copy, jobs=1)
    return open_tuned(tuned_copy, monkeypatch)


def measured(
    family: PlannedFamily,
    times: dict[int, float],
    *,
    n: int = 1024,
    device: str = H200,
    data_type: str = "float",
    **sizes: int,
) -> Entry:
    """Wisdom about a problem: seconds by the number of the variant; the first is the default."""
    asked = Problem.read(family, {"n": n, "data_type": data_type, **sizes})
    variants = list(asked.variants())
    trials = [Trial(variants[number], seconds, 10) for number, seconds in times.items()]
    return make_entry("mini", "kern", asked.configuration, asked.bucket, device, trials)


def own(family: PlannedFamily, *entries: Entry) -> None:
    wisdom_file.write(family.session.config.wisdom, Wisdom(entries))
    family.best.forget()


def shipped(family: PlannedFamily, *entries: Entry) -> None:
    wisdom_file.write(family.location.with_suffix(".wisdom"), Wisdom(entries))
    family.best.forget()


def variants(family: PlannedFamily) -> list[Variant]:
    return list(Problem.read(family, {"n": 1024, **FLOAT}).variants())


def test_without_wisdom_the_default_is_used(tuned: PlannedFamily) -> None:
    best = tuned.best(n=1000, **FLOAT)
    assert (best.origin, best.variant) == ("default", variants(tuned)[0])
    assert best.block == (128,)
    assert best.launcher.plan.request.configuration == {"op_name": "twice", "data_type": "float"}


def test_what_was_measured_is_used_for_all_sizes_of_its_bucket(tuned: PlannedFamily) -> None:
    own(tuned, measured(tuned, {0: 2.0, 3: 1.0}))
    for n in (1024, 1500, 2047):
        best = tuned.best(n=n, data_type="float")
        assert (best.origin, best.variant) == ("measured", variants(tuned)[3])
        assert best.block == (256,)
    assert best.launcher.plan.request.configuration == {"op_name": "square", "data_type": "float"}


def test_what_was_measured_for_another_value_of_a_size_that_counts_exactly_is_no_guess(exact: PlannedFamily) -> None:
    own(exact, measured(exact, {0: 2.0, 3: 1.0}, dim=64))
    assert exact.best(n=1024, dim=64, **FLOAT).origin == "measured"
    assert exact.best(n=1 << 18, dim=64, **FLOAT).origin == "guess"
    assert exact.best(n=1024, dim=65, **FLOAT).origin == "default"


def test_what_was_measured_for_another_size_is_a_guess(tuned: PlannedFamily) -> None:
    own(tuned, measured(tuned, {0: 2.0, 3: 1.0}, n=1 << 18), measured(tuned, {0: 2.0, 1: 1.0}, n=1 << 30))
    best = tuned.best(n=1024, **FLOAT)
    assert (best.origin, best.variant) == ("guess", variants(tuned)[3])
    assert "guess" in repr(best)


@pytest.mark.parametrize("how", [{"device": A100}, {"data_type": "double"}])
def test_what_was_measured_on_another_kind_of_device_or_for_another_configuration_answers_nothing(
    tuned: PlannedFamily, how: dict[str, Any]
) -> None:
    own(tuned, measured(tuned, {0: 2.0, 3: 1.0}, **how))
    assert tuned.best(n=1024, **FLOAT).origin == "default"


def test_the_users_own_goes_before_what_is_shipped_and_what_is_measured_before_guesses(tuned: PlannedFamily) -> None:
    shipped(tuned, measured(tuned, {0: 2.0, 1: 1.0}), measured(tuned, {0: 2.0, 2: 1.0}, n=8192))
    assert tuned.best(n=1024, **FLOAT).variant == variants(tuned)[1]
    own(tuned, measured(tuned, {0: 2.0, 3: 1.0}))
    assert tuned.best(n=1024, **FLOAT).variant == variants(tuned)[3]
    assert (tuned.best(n=8192, **FLOAT).variant, tuned.best(n=8192, **FLOAT).origin) == (variants(tuned)[2], "measured")


def test_a_variant_that_is_not_declared_is_never_used(tuned: PlannedFamily) -> None:
    made = measured(tuned, {0: 2.0, 1: 1.0})
    foreign = Variant((("op_name", "cube"),), (128,))
    block = Variant(made.trials[1].variant.parameters, (64,))
    for variant in (foreign, block, Variant()):
        trials = (made.trials[0], Trial(variant, 1.0, 10))
        own(tuned, make_entry("mini", "kern", FLOAT, made.bucket, H200, trials))
        assert tuned.best(n=1024, **FLOAT).origin == "default"


def test_what_was_measured_of_others_counts_when_variants_leave_the_declaration(tuned: PlannedFamily) -> None:
    made = measured(tuned, {0: 2.0, 1: 1.0, 3: 1.2})
    gone = Variant(made.trials[1].variant.parameters, (64,))
    for trials in (
        [made.trials[0], Trial(gone, 0.5, 10), *made.trials[1:]],  # the fastest
        [Trial(gone, 3.0, 10), *made.trials[1:]],  # the default
    ):
        own(tuned, make_entry("mini", "kern", FLOAT, made.bucket, H200, trials))
        best = tuned.best(n=1024, **FLOAT)
        assert (best.origin, best.variant) == ("measured", variants(tuned)[1])


def test_what_was_measured_of_others_counts_when_a_kernel_is_gone(
    tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tuned, measured(tuned, {0: 2.0, 1: 1.2, 3: 1.0}))
    fastest, launcher = variants(tuned)[3], Problem.launcher

    def without_fastest(asked: Problem, variant: Variant) -> Any:
        if variant.parameters == fastest.parameters:
            raise PlanError("no such kernel")
        return launcher(asked, variant)

    monkeypatch.setattr(Problem, "launcher", without_fastest)
    best = tuned.best(n=1024, **FLOAT)
    assert (best.origin, best.variant) == ("measured", variants(tuned)[1])


@pytest.mark.parametrize("which", ["own", "shipped"])
def test_a_file_that_cannot_be_used_is_a_warning(
    tuned: PlannedFamily, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tuned.session.config.wisdom if which == "own" else tuned.location.with_suffix(".wisdom")
    path.write_text('{"jitlto_wisdom": 1, "entries": [')
    assert tuned.best(n=1024, **FLOAT).origin == "default"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(path) in caplog.text


def test_two_processes_choose_the_same_whatever_they_asked_before(
    tuned_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_tuned(tuned_copy, monkeypatch)
    own(first, *(measured(first, {0: 2.0, number: 1.0}, n=1 << 3 * number) for number in range(1, 4)))
    sizes = [7**power for power in range(7)]
    shuffled = random.Random(1).sample(sizes, len(sizes))  # noqa: S311 - no secret
    second = open_tuned(tuned_copy, monkeypatch)
    answers = [{n: repr(family.best(n=n, **FLOAT)) for n in order}
               for family, order in ((first, sizes), (second, shuffled))]  # fmt: skip
    assert answers[0] == answers[1]


def test_what_is_no_problem(tuned: PlannedFamily, mini: Any) -> None:
    with raises(PlanError, "plan-problem", "n", hint="sizes n"):
        tuned.best(**FLOAT)
    with raises(PlanError, "plan-problem", "op_name"):
        tuned.best(n=1, op_name="twice", **FLOAT)
    with raises(PlanError, "plan-not-tuned", "kernel"):
        tuned.best(n=1, entry="kernel", **FLOAT)
    with raises(PlanError, "plan-not-tuned", hint="tune"):
        Problem.read(mini, {"n": 1})
    with raises(PlanError, "plan-problem"):
        tuned.best(n=[1], **FLOAT)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_problem_that_was_asked_for_before_is_looked_up(
    tuned_copy: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    family = open_tuned(tuned_copy, monkeypatch, launch_core.core() if compiled else None)
    first = family.best(n=1000, **FLOAT)
    monkeypatch.setattr(Problem, "read", lambda *_: pytest.fail("it chooses again"))
    assert family.best(n=1000, **FLOAT) is first
    assert family.best(n=1000, data_type="float") is first


def test_where_devices_differ_each_has_its_own_answers(tuned: PlannedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tuned, measured(tuned, {0: 2.0, 3: 1.0}), measured(tuned, {0: 2.0, 1: 1.0}, device=A100))
    found = []
    for number, kind in ((0, H200), (1, A100), (0, H200)):
        current = SimpleNamespace(device_id=number, compute_capability=(9, 0))
        monkeypatch.setattr(device, "current", lambda current=current: current)
        monkeypatch.setattr(device, "current_kind", lambda kind=kind: kind)
        monkeypatch.setattr(device, "place", lambda number=number: number + 1)
        found.append(variants(tuned).index(tuned.best(n=1024, **FLOAT).variant))
    assert found == [3, 1, 3]


@pytest.mark.slow
def test_a_hit_costs_less_than_a_third_of_a_microsecond(tuned_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = open_tuned(tuned_copy, monkeypatch, launch_core.core())
    family.best(n=1000, data_type="float")

    def cost(call: Any) -> float:
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(2000):
                call()
            times.append((time.perf_counter() - begin) / 2000)
        return min(times)

    nothing = cost(lambda: None)
    assert cost(lambda: family.best(n=1000, data_type="float")) - nothing < 0.3e-6
