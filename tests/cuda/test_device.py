"""The current device: where there is none, one error says so."""

import pytest

from tests.support.process import output_of

_ASK = """
import traceback
from jitlto.base.errors import NoDeviceError
from jitlto.cuda import device
for ask in (device.current, device.place):
    try:
        ask()
    except NoDeviceError as error:
        print("".join(traceback.format_exception(error)).count("Traceback"))
"""


@pytest.mark.slow
def test_without_a_device_the_error_stands_alone() -> None:
    printed = output_of(_ASK, CUDA_VISIBLE_DEVICES="")
    if not printed:
        pytest.skip("a device is visible whatever CUDA_VISIBLE_DEVICES says")
    assert printed.split() == ["1", "1"]
