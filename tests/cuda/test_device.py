"""The current device: where there is none, one error says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.process import ROOT

_ASK = """
import traceback
from jitlto.errors import NoDeviceError
from jitlto.cuda import device
for ask in (device.current, device.kind):
    try:
        ask()
    except NoDeviceError as error:
        print("".join(traceback.format_exception(error)).count("Traceback"))
"""


def test_without_a_device_the_error_stands_alone() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    if not done.stdout:
        pytest.skip("a device is visible whatever CUDA_VISIBLE_DEVICES says")
    assert done.stdout.split() == ["1", "1"]
