"""Families, plans, launchers and dispatchers are copied, and sent to other processes, by name and content."""

import copy
import pickle
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import jitlto
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError, RegistryError
from jitlto.base.files import digest_of
from jitlto.frameworks.parts import REQUIRED
from jitlto.launch.dispatcher import Dispatcher
from jitlto.launch.sequence import LaunchSequence
from jitlto.runtime import session as sessions
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support import launch_core
from tests.support.distributions import install
from tests.support.errors import raises
from tests.support.launchers import FakeDriver
from tests.support.process import output_of, python

FLOAT = {"data_type": "float", "op_name": "twice"}
SOURCE = '#include "op.cuh"\ntemplate <> __device__ float mini::op<float>(float a) { return a + 3; }'
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
#: Reads what was sent, and prints what it says of itself.
RECEIVE = """
import pickle, sys
thing = pickle.load(open(sys.argv[1], "rb"))
print(repr(thing))
"""


@pytest.fixture(autouse=True)
def _nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions.default, "families", {})
    monkeypatch.setattr(sessions.default, "loaded", weakref.WeakValueDictionary())


def send(thing: object, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(thing, protocol))  # noqa: S301 - our own bytes


@pytest.fixture
def family(mini_path: Path, tmp_path: Path) -> KernelFamily:
    """The family ``mini``, of a database that tests can move."""
    return jitlto.load("mini", shutil.copy(mini_path, tmp_path / "mini.fragdb"))


def sent_to(directory: Path, thing: object) -> Path:
    path = directory / "sent"
    path.write_bytes(pickle.dumps(thing))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_sent_within_a_process_is_found_again(family: KernelFamily, protocol: int) -> None:
    assert send(family, protocol) is family
    plan = family.plan(arch="sm_90", **FLOAT)
    assert send(plan, protocol) == plan
    assert send(plan, protocol).digest == plan.digest
    planner = family.planner(**FLOAT)
    assert send(planner, protocol).plan(arch="sm_90") == plan
    dispatcher = send(family.dispatcher("data_type", link_mode="ptx", op_name="twice"), protocol)
    assert isinstance(dispatcher, Dispatcher)
    assert dispatcher._family is family
    assert (dispatcher.names, dispatcher._fixed) == (("data_type",), {"op_name": "twice"})
    assert dispatcher._how == {"link_mode": "ptx"}


def test_a_plan_keeps_all_that_was_asked_for(family: KernelFamily) -> None:
    planner = family.planner("kern", data_type="float").add("mini/op[data_type=float,op_name=square]")
    plan = planner.plan(arch="sm_90a", link_options={"max_registers": 64})
    assert send(plan) == plan
    own = family.planner(data_type="float").add_source(SOURCE, name="own.cu")
    assert send(own.plan(arch="sm_90")) == own.plan(arch="sm_90") == send(own).plan(arch="sm_90")
    assert send(family.plan(**FLOAT)).arch is None


def test_copies_of_what_does_not_change_are_the_thing_itself(family: KernelFamily) -> None:
    things: tuple[object, ...] = (
        family,
        family.plan(arch="sm_90", **FLOAT),
        family.dispatcher("data_type"),
        family.best,
        family.session,
    )
    for thing in things:
        holder = {"kernel": [thing]}
        assert copy.deepcopy(holder)["kernel"][0] is copy.copy(thing) is thing


# --- other processes ---


def test_another_process_finds_a_database_at_its_path(family: KernelFamily, tmp_path: Path) -> None:
    for thing in (family, family.plan(arch="sm_90", **FLOAT)):
        assert output_of(RECEIVE, sent_to(tmp_path, thing)).strip() == repr(thing)


def test_another_process_finds_a_database_that_lies_elsewhere(
    family: KernelFamily, mini_path: Path, tmp_path: Path
) -> None:
    sent = sent_to(tmp_path, family.plan(arch="sm_90", **FLOAT))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(family.location, elsewhere / "kernels.fragdb")
    on_path = output_of(RECEIVE, sent, JITLTO_DATABASE_PATH=str(elsewhere))
    site = tmp_path / "site"
    install(site, "kernels", families={"mini": "kernels.fragments"}, databases={"kernels.fragments": mini_path})
    add = f"import sys; sys.path.append({str(site)!r})"
    in_package = output_of(f"{add}\n{RECEIVE}", sent)
    loaded = f"import jitlto; kept = jitlto.load('mini', {str(elsewhere / 'kernels.fragdb')!r})"
    assert on_path == in_package == output_of(f"{loaded}\n{RECEIVE}", sent)
    done = python("-c", RECEIVE, sent)
    assert done.returncode
    assert "[registry-not-found-again]" in done.stderr


def test_a_family_whose_file_has_moved_is_found_where_it_was_loaded_again(family: KernelFamily, tmp_path: Path) -> None:
    sent = pickle.dumps(family)
    again = jitlto.load("mini", shutil.move(family.location, tmp_path / "moved.fragdb"))
    assert pickle.loads(sent) is again  # noqa: S301 - our own bytes


def test_a_family_whose_file_has_moved_is_found_elsewhere_once(
    family: KernelFamily, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickle.dumps(family)
    family.location.unlink()
    install(tmp_path, "kernels", families={"mini": "kernels.fragments"}, databases={"kernels.fragments": mini_path})
    monkeypatch.syspath_prepend(tmp_path)
    found = pickle.loads(sent)  # noqa: S301 - our own bytes
    assert found is not family
    assert pickle.loads(sent) is found  # noqa: S301 - our own bytes


def test_another_database_at_the_path_is_an_error_that_names_both(
    family: KernelFamily, tuned_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, digest = pickle.dumps(family), family.contents.digest
    shutil.copy(tuned_path, family.location)
    other = digest_of(tuned_path)
    assert other is not None
    with raises(
        RegistryError, "registry-not-found-again", "mini", digest[:12], other[:12], where=str(family.location)
    ) as caught:
        pickle.loads(sent)  # noqa: S301 - our own bytes
    assert caught.value.hint


# --- launchers ---


@pytest.fixture(params=["python", "compiled"])
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return FakeDriver(monkeypatch, launch_core.core() if request.param == "compiled" else None)


def test_a_launcher_is_loaded_again_for_the_device_there(
    family: KernelFamily, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = family.load(family.plan(**FLOAT))
    assert send(launcher) is launcher
    assert copy.deepcopy(launcher) is copy.copy(launcher) is launcher
    by_name, older = family.load(family.plan(arch="sm_90", **FLOAT)), family.load(family.plan(arch="sm_80", **FLOAT))
    assert send(by_name) is launcher
    assert send(older) is older
    sent = pickle.dumps([launcher, older])
    there = SimpleNamespace(device_id=0, default_stream=fake.stream, compute_capability=(10, 0))
    monkeypatch.setattr("jitlto.cuda.device.current", lambda: there)
    found = pickle.loads(sent)  # noqa: S301 - our own bytes
    assert [each.linked.architecture.number for each in found] == [100, 80]


def test_steps_are_sent_and_sequences_are_not(family: KernelFamily, fake: FakeDriver) -> None:
    launcher = family.load(family.plan(**FLOAT))
    step = launcher.step(1, 32, None, 5)
    assert send(step).launcher is copy.deepcopy(step).launcher is launcher
    assert send(step).args == (None, 5)
    sequence = LaunchSequence.__new__(LaunchSequence)
    sequence.steps, sequence._places = (step,), {}
    uses: tuple[Callable[[Any], object], ...] = (copy.copy, copy.deepcopy, pickle.dumps)
    for thing in (sequence, [sequence], {"run": sequence}):
        for use in uses if not isinstance(thing, list | dict) else uses[1:]:
            with raises(JitltoError, "jitlto-not-portable"):
                use(thing)


# --- what cannot be sent ---


def test_a_family_of_another_session_is_an_error(mini_path: Path, tmp_path: Path) -> None:
    own = Session(Config.read({"JITLTO_CACHE_DIR": str(tmp_path)}))
    family = jitlto.load("mini", mini_path, session=own)
    things = (family, family.plan(arch="sm_90", **FLOAT), family.planner(**FLOAT), family.dispatcher("data_type"), own)
    for thing in things:
        with raises(JitltoError, "jitlto-not-portable", hint="session="):
            pickle.dumps(thing)
        copy.deepcopy(thing)
    assert send(sessions.default) is sessions.default


def test_python_functions_are_not_sent(family: KernelFamily) -> None:
    def op(a: Any) -> Any:
        return a

    planner = family.planner(data_type="float").add_function(op)
    with raises(JitltoError, "jitlto-not-portable", "op", __file__):
        pickle.dumps(planner)
    copy.deepcopy(planner).add_function(op, group="other")
    assert len(planner._functions) == 1
    planned = family.plan(arch="sm_90", **FLOAT)
    with raises(JitltoError, "jitlto-not-portable", "mini/kern", hint="add_source"):
        pickle.dumps(msgspec.structs.replace(planned, request=None))  # as with a function, which takes Numba to compile
    assert copy.deepcopy(planned) is planned


# --- operators ---


def choose(case: Any) -> Mapping[str, object]:
    return {"data_type": "float", "op_name": "twice"}


def launch(case: Any) -> jitlto.Launch:
    return jitlto.Launch(1, 32)


def make_operator(family: Any) -> jitlto.Operator:
    return jitlto.Operator(
        "sending::op",
        family,
        arguments=[jitlto.Array("x", "float32", "n"), jitlto.Scalar("factor", "float")],
        outputs=[jitlto.Output("y", "float32", "n")],
        configuration=choose,
        launch=launch,
        parameters=["y", "n"],
    )


def test_operators_are_declared_again(family: KernelFamily) -> None:
    operator = make_operator(family)
    made = send(operator)
    assert (made.qualname, made.arguments, made.loaded) == (operator.qualname, operator.arguments, family)
    assert made.arguments[1].default is REQUIRED
    assert copy.deepcopy(operator) is operator
    assert copy.deepcopy(operator.arguments)[1].default is REQUIRED


@pytest.mark.gpu
def test_another_process_launches_what_it_receives(family: KernelFamily, tmp_path: Path) -> None:
    kernels = {"launcher": family.launcher(**FLOAT), "choose": family.dispatcher("data_type", op_name="twice")}
    launches = """
import cupy as cp
for kernel in (thing["launcher"], thing["choose"]("float")):
    x = cp.arange(4, dtype="float32")
    kernel(None, 1, 32, x, 4)
    print(x.tolist())
print(thing["choose"]("float") is thing["launcher"])
"""
    printed = output_of(RECEIVE + launches, sent_to(tmp_path, kernels)).splitlines()
    assert printed[1:] == ["[0.0, 2.0, 4.0, 6.0]"] * 2 + ["True"]
