"""Families at run time: from a configuration to a plan, and what a caller may add to it."""

from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jitlto
from jitlto.base.errors import (
    AmbiguousConfigurationError,
    NoDeviceError,
    PlanError,
    UnknownParameterError,
    UnknownValueError,
)
from jitlto.base.types import cpp_name
from jitlto.database import FragmentDatabase
from jitlto.launch.core import Answers
from jitlto.record.fragment import FragmentKey, Role
from jitlto.runtime import family as family_module
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support import launch_core
from tests.support.errors import raises
from tests.support.families import MINI

TWICE = "mini/op[data_type=float,op_name=twice]"
OTHER_KERNEL = """#include "op.cuh"
namespace mini {
template <typename T> __global__ void other(T* x) { x[threadIdx.x] = op<T>(x[0]); }
template __global__ void other<{{data_type}}>({{data_type}}*);
}
"""


def keys(plan: jitlto.Plan) -> list[str]:
    return [str(fragment.key) for fragment in plan.fragments]


def test_a_family_says_its_parameters_and_their_values(mini: KernelFamily) -> None:
    assert mini.parameters == {"data_type": ("double", "float"), "op_name": ("square", "twice")}


def test_values_may_be_text_dtypes_or_aliases(mini: KernelFamily) -> None:
    plans = [mini.plan(arch="sm_90", data_type=t, op_name="twice") for t in ("float", np.float32, "float32")]
    assert {plan.digest for plan in plans} == {plans[0].digest}


def test_an_unknown_parameter_and_an_unknown_value_name_the_nearest(mini: KernelFamily) -> None:
    with raises(UnknownParameterError, None, "op_nam", hint="did you mean 'op_name'"):
        mini.plan(data_type="float", op_nam="twice")
    with raises(UnknownValueError, None, "twices", hint="did you mean 'twice'"):
        mini.plan(data_type="float", op_name="twices")
    with raises(UnknownParameterError, None, "op_nam", hint="did you mean 'op_name'"):
        mini.planner(op_nam="twice")


def test_a_missing_choice_names_the_parameters_that_would_decide(mini: KernelFamily) -> None:
    with raises(AmbiguousConfigurationError, None, "op_name"):
        mini.plan(data_type="float")
    with raises(AmbiguousConfigurationError, None, "data_type"):
        mini.plan()


@pytest.mark.parametrize("key", [TWICE, FragmentKey.parse(TWICE)])
def test_a_fragment_may_be_added_by_key(mini: KernelFamily, key: str | FragmentKey) -> None:
    plan = mini.planner(data_type="float").add(key).plan()
    assert keys(plan) == ["mini/kern[data_type=float]", TWICE]


def test_an_entrypoint_may_be_added_by_key(mini: KernelFamily) -> None:
    plan = mini.planner(op_name="twice").add("mini/kern[data_type=double]").plan()
    assert keys(plan) == ["mini/kern[data_type=double]", "mini/op[data_type=double,op_name=twice]"]


@pytest.mark.parametrize(
    "key",
    [
        "mini/op[data_type=float,op_name=thrice]",
        "mini/nothing[]",
        "mini/op[]",
        "maxi/op[data_type=float,op_name=twice]",
    ],
)
def test_an_unknown_key_is_a_plan_error(mini: KernelFamily, key: str) -> None:
    with raises(PlanError, "plan-unknown-fragment", key, where="mini.fragdb"):
        mini.planner(data_type="float").add(key)


@pytest.mark.slow
def test_a_family_with_several_entrypoints_wants_to_know_which(build_family: BuildFamily) -> None:
    files = MINI | {
        "family.toml": MINI["family.toml"].replace(
            "[device.op]",
            '[entrypoint.other]\nmatrix = "kern.json"\ntemplate = "other.cu.jinja"\nkey = ["data_type"]\n\n[device.op]',
        ),
        "other.cu.jinja": OTHER_KERNEL,
    }
    family = KernelFamily("mini", FragmentDatabase(build_family(files).path))
    with raises(AmbiguousConfigurationError, "plan-ambiguous-entrypoint", "kern, other"):
        family.plan(data_type="float", op_name="twice")
    plan = family.plan(entry="other", data_type="float", op_name="twice")
    assert keys(plan)[0] == "mini/other[data_type=float]"
    assert [str(p) for p in plan.entry.signature] == ["float* x"]
    assert family.planner("kern", data_type="float", op_name="twice").plan().entry.key.group == "kern"
    with raises(PlanError, "plan-unknown-entrypoint", "'third'"):
        family.plan(entry="third", data_type="float", op_name="twice")


@pytest.mark.parametrize("odd", [["float"], {"a": 1}, None, object()])
def test_a_launcher_for_an_odd_value_is_one_of_our_errors(mini: KernelFamily, odd: object) -> None:
    # The look-up hashes the values; what cannot be hashed must still be named, not raise a bare TypeError.
    with pytest.raises((PlanError, NoDeviceError)):
        mini.launcher(data_type=odd, op_name="twice")


def test_link_options_that_cannot_be_hashed_are_accepted_by_a_launcher(mini: KernelFamily) -> None:
    with pytest.raises((PlanError, NoDeviceError)):
        mini.launcher(data_type="float", op_name="twice", link_options={"ptxas": ["-v"], "nonsense": 1})


class Counted(IntEnum):
    ONE = 1


class Renamed(str):
    """Text that prints, hashes and compares as something else."""

    def __str__(self) -> str:
        return "float"

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("float")


NUMBERS = [0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5, 0.1, 1e30, float("inf"), float("nan"), True, False]
VALUES = [
    *NUMBERS,
    *map(str, NUMBERS),
    *(make(number) for make in (np.float64, np.float32, np.asarray) for number in NUMBERS),
    *(np.int64(1), np.uint8(1), np.bool_(True), np.str_("1")),
    *("float", "float32", "double", "true", Renamed("double"), Renamed("1")),
    *(np.float32, np.float64, np.dtype("f4"), np.dtype("f8"), np.dtype("c8"), Role.DEVICE, Counted.ONE),
]


@pytest.fixture(params=["one architecture", "one, compiled", "several"])
def by_name(mini: KernelFamily, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> KernelFamily:
    """A family whose launchers are the C++ names of the values that they were planned for."""
    device = SimpleNamespace(compute_capability=(9, 0))
    core = launch_core.core() if "compiled" in request.param else None
    launch_core.use(monkeypatch, core)
    monkeypatch.setattr(mini, "_quick", Answers())
    monkeypatch.setattr(family_module.device, "place", lambda: 90 if request.param == "several" else 0)
    monkeypatch.setattr(family_module.device, "current", lambda: device)
    monkeypatch.setattr(type(mini.session), "is_recording", True)  # so that nothing is looked up

    def planner(entry: str | None, **configuration: object) -> SimpleNamespace:
        names = tuple(cpp_name(configuration[name]) for name in sorted(configuration))
        return SimpleNamespace(plan=lambda **_: SimpleNamespace(names=names, chosen=None, link=None))

    monkeypatch.setattr(mini, "planner", planner)
    monkeypatch.setattr(mini, "load", lambda plan: plan.names)
    names = sorted({cpp_name(value) for value in VALUES})
    monkeypatch.setattr(type(mini), "parameters", {"bias": names, "data_type": names})
    return mini


def test_requests_by_names_that_are_made_anew_fill_no_table(by_name: KernelFamily) -> None:
    by_name.launcher(bias="float", data_type="float")
    known = list(by_name._quick)
    for _ in known:
        by_name.launcher(**{"".join(["bi", "as"]): "float", "_".join(["data", "type"]): "float"})
    assert list(by_name._quick) == known


def test_names_of_subclasses_of_str_are_names(by_name: KernelFamily) -> None:
    names = np.array(["bias", "data_type"])
    values = dict.fromkeys(names, "float")
    assert {type(name) for name in values} == {np.str_}
    assert by_name.launcher(**values) == by_name.launcher(bias="float", data_type="float")


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(requests=st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)), min_size=2, max_size=8))
def test_values_of_different_names_never_share_a_launcher(
    by_name: KernelFamily, requests: list[tuple[object, object]]
) -> None:
    choose = by_name.dispatcher("bias", "data_type")
    for bias, data_type in requests * 2:
        names = (cpp_name(bias), cpp_name(data_type))
        assert by_name.launcher(bias=bias, data_type=data_type) == names
        assert by_name.launcher(data_type=data_type, bias=bias) == names
        assert choose(bias, data_type) == names


def test_a_value_that_changes_in_place_is_read_anew(by_name: KernelFamily) -> None:
    value = np.asarray(1)
    choose = by_name.dispatcher("bias")
    assert (by_name.launcher(bias=value), choose(value)) == (("1",), ("1",))
    value += 1
    assert (by_name.launcher(bias=value), choose(value)) == (("2",), ("2",))


def test_a_database_is_where_it_was_wherever_the_process_goes(
    mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mini_path.parent)
    database = FragmentDatabase(mini_path.name)
    monkeypatch.chdir(tmp_path)
    assert database.location == mini_path
    assert database.path == Path(mini_path.name)
