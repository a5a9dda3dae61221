"""The look-up of launchers that were asked for before gives what the first gave, and forgets what it has to."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import NoDeviceError, PlanError, UnknownParameterError, UnknownValueError
from jitlto.cuda import device
from jitlto.launch import core as core_module
from jitlto.launch.core import Answers
from jitlto.runtime.family import KernelFamily
from tests.support import launch_core
from tests.support.errors import raises

ONE = {"data_type": "float", "op_name": "twice"}
OTHER = {"data_type": "double", "op_name": "square"}


@pytest.fixture(params=["python", "compiled"])
def asked(mini: KernelFamily, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The configurations that the family planned, on a machine with devices of one architecture."""
    core = launch_core.core() if request.param == "compiled" else None
    launch_core.use(monkeypatch, core)
    monkeypatch.setattr(mini, "_quick", Answers())
    configurations: list[dict[str, Any]] = []
    stand_in = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(device, "current", lambda: stand_in)
    monkeypatch.setattr(device, "place", lambda: 0)
    monkeypatch.setattr(type(mini.session), "is_recording", True)  # so that nothing is looked up

    def planner(entry: str | None, **configuration: Any) -> SimpleNamespace:
        configurations.append({"entry": entry} | configuration)
        plan = SimpleNamespace(chosen=None, link=None)
        return SimpleNamespace(plan=lambda **how: vars(plan).update(how=how) or plan)

    monkeypatch.setattr(mini, "planner", planner)
    monkeypatch.setattr(mini, "load", lambda plan: SimpleNamespace(plan=plan))
    return configurations


def test_the_same_configuration_in_any_order_is_planned_once(mini: KernelFamily, asked: list[Any]) -> None:
    first = mini.launcher(**ONE)
    for _ in range(3):
        assert mini.launcher(**ONE) is first
    swapped = mini.launcher(op_name="twice", data_type="float")
    assert mini.launcher(op_name="twice", data_type="float") is swapped
    other = mini.launcher(**OTHER)
    assert mini.launcher(**OTHER) is other is not first
    assert mini.launcher(**ONE) is first
    assert mini.launcher(data_type=np.dtype("f4"), op_name="twice") is mini.launcher(
        data_type=np.dtype("f4"), op_name="twice"
    )


def test_entries_link_modes_and_options_are_told_apart(mini: KernelFamily, asked: list[Any]) -> None:
    for _ in range(3):
        mini.launcher(**ONE)
    hows: list[dict[str, Any]] = [
        {}, {"entry": "kern"}, {"link_mode": "ptx"}, {"link_options": {"O": 1}}, {"link_options": {"O": 2}}
    ]  # fmt: skip
    launchers = [mini.launcher(**ONE, **how) for how in hows]
    assert len(set(map(id, launchers))) == len(hows)
    assert [mini.launcher(**ONE, **how) for how in hows] == launchers
    assert [launcher.plan.how["link_options"] for launcher in launchers[3:]] == [{"O": 1}, {"O": 2}]  # type: ignore[attr-defined]


def test_a_name_that_the_family_has_not_is_left_to_planning(mini: KernelFamily, asked: list[Any]) -> None:
    for _ in range(3):
        mini.launcher(**ONE)
    mini.launcher(**ONE, nonsense=1)
    assert asked[-1] == {"entry": None, **ONE, "nonsense": 1}
    mini.launcher(data_type=["float"], op_name="twice")
    assert asked[-1] == {"entry": None, "data_type": ["float"], "op_name": "twice"}


def test_after_a_fork_both_look_ups_ask_for_the_device(
    mini: KernelFamily, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = mini.dispatcher("data_type", "op_name")
    for _ in range(3):
        mini.launcher(**ONE)
        choose(*ONE.values())
    monkeypatch.setattr(device, "place", device.raise_forked_error)
    monkeypatch.setattr(device, "current", device.raise_forked_error)
    if core := core_module.extension():
        core.forget()
    with raises(NoDeviceError, "no-device-forked"):
        mini.launcher(**ONE)
    with raises(NoDeviceError, "no-device-forked"):
        choose(*ONE.values())


def test_where_devices_differ_each_call_asks_for_the_current_one(
    mini: KernelFamily, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = mini.dispatcher("data_type", "op_name")
    found: dict[int, list[object]] = {90: [], 100: []}
    for _ in range(3):
        for kind, launchers in found.items():
            monkeypatch.setattr(device, "place", lambda kind=kind: kind)
            launchers += [mini.launcher(**ONE), choose(*ONE.values())]
    assert [len(set(map(id, launchers))) for launchers in found.values()] == [1, 1]
    assert found[90][0] is not found[100][0]


def test_many_configurations_are_all_found(mini: KernelFamily, asked: list[Any]) -> None:
    launchers = {}
    for _ in range(3):
        for number in range(2000):
            launcher = mini.launcher(data_type=str(number), op_name="twice")
            assert launchers.setdefault(number, launcher) is launcher
    assert len(asked) == 2000


def test_a_class_with_its_own_way_keeps_it(
    mini: KernelFamily, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(KernelFamily):
        def launcher(self, **how: Any) -> Any:
            return super().launcher(**how), "own"

    family = mini.again()()
    own = Own(family.name, family.database, family.session)
    monkeypatch.setattr(own, "planner", mini.planner)
    monkeypatch.setattr(own, "load", mini.load)
    for _ in range(4):
        assert own.launcher(**ONE)[1] == "own"  # type: ignore[index]


def test_a_dispatcher_refuses_what_the_family_has_not(mini: KernelFamily) -> None:
    with pytest.raises(UnknownParameterError, match="data_typ"):
        mini.dispatcher("data_typ")
    with pytest.raises(UnknownValueError, match="thrice"):
        mini.dispatcher("data_type", op_name="thrice")
    with pytest.raises(PlanError, match="twice"):
        mini.dispatcher("data_type", "data_type")
    choose = mini.dispatcher("data_type", "op_name")
    with pytest.raises(PlanError, match="1 values given for 2"):
        choose("float")
