"""Launchers where there is no device: an error that says so, again and again, and never a hang."""

from pathlib import Path

import pytest

import jitlto
from jitlto.base.errors import NoDeviceError
from jitlto.cuda import device
from tests.support.process import output_of

# cuda.core answers the first load without a driver with a misleading error and blocks at the second.
TWICE = """
import sys
import jitlto
family = jitlto.load("mini", sys.argv[1])
configuration = {"data_type": "float", "op_name": "twice"}
for attempt in range(2):
    try:
        CALL
    except jitlto.JitltoError as error:
        print(type(error).__name__, error.what, "|", error.hint)
"""
CALLS = {
    "KernelFamily.launcher": "family.launcher(**configuration)",
    "Planner.launcher": "family.planner(**configuration).launcher()",
    "KernelFamily.load": "family.load(family.plan(**configuration))",
    "KernelFamily.load of a plan with an architecture": 'family.load(family.plan(arch="sm_90", **configuration))',
    "Launcher": (
        "from jitlto import Launcher; plan = family.plan(arch='sm_90', **configuration); "
        "Launcher(plan.chosen, plan.link(), lambda: plan)"
    ),
    "Plan.link without an architecture": "family.plan(**configuration).link()",
    "Plan.digest without an architecture": "family.plan(**configuration).digest",
    "in several threads": (
        "from concurrent.futures import ThreadPoolExecutor as Pool; "
        "list(Pool(4).map(lambda _: family.launcher(**configuration), range(8)))"
    ),
}


@pytest.fixture(autouse=True)
def _no_device() -> None:
    try:
        device.current()
    except NoDeviceError:
        return
    pytest.skip("there is a CUDA device: these tests are about having none")


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_without_a_device_every_attempt_is_the_same_error_at_once(mini_path: Path, call: str) -> None:
    lines = output_of(TWICE.replace("CALL", CALLS[call]), mini_path, seconds=30).splitlines()
    assert len(lines) == 2, lines
    for line in lines:
        assert line.startswith("NoDeviceError no usable CUDA device: "), line
        assert "arch='sm_90'" in line


@pytest.mark.slow
def test_after_the_error_planning_and_linking_still_work(mini_path: Path) -> None:
    code = TWICE.replace("CALL", CALLS["KernelFamily.launcher"])
    code += "print(family.plan(arch='sm_90', **configuration).link().cubin[:4])\n"
    assert output_of(code, mini_path, seconds=30).splitlines()[-1] == "b'\\x7fELF'"


def test_a_wrong_configuration_is_named_even_without_a_device(mini_path: Path) -> None:
    # What is wrong with the call comes before what is wrong with the machine.
    family = jitlto.load("mini", mini_path)
    with pytest.raises(jitlto.JitltoError, match="did you mean 'twice'"):
        family.planner(data_type="float", op_name="twices").launcher()
