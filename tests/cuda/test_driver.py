"""The driver at hand: what its files say, and what its refusal of a kernel is told as."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base.errors import NoDeviceError
from jitlto.cuda import device, driver
from jitlto.cuda.driver import Driver, Forward

OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (OPEN, "580.65.06"),
        (PROPRIETARY, "535.129.03"),
        ("570.86\n", "570.86"),
        ("", None),
        ("GCC version:  gcc version 13.3.0\n", None),
    ],
)
def test_the_kernel_modules_release_is_read_in_each_form(tmp_path: Path, text: str, release: str | None) -> None:
    file = tmp_path / "version"
    file.write_text(text)
    assert driver.read_module_release([tmp_path / "none", file]) == release


def test_the_first_file_that_gives_a_release_counts(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "proc").write_text(PROPRIETARY)
    (tmp_path / "sys").write_text("580.65.06\n")
    assert driver.read_module_release([tmp_path / "empty", tmp_path / "proc", tmp_path / "sys"]) == "535.129.03"
    assert driver.read_module_release([]) is None


def test_the_library_is_the_one_that_is_mapped(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f5e0000-7f5e2000 r-xp 00000000 fe:00 12      /usr/lib/libcudart.so.13\n"
        "7f5e2000-7f5e4000 r-xp 00000000 fe:00 13      /nowhere/with a space/libcuda.so.580.65.06\n"
        "7f5e4000-7f5e6000 r-xp 00000000 fe:00 14      /usr/lib/libcudadebugger.so.1\n"
    )
    assert driver.find_loaded_library(maps) == Path("/nowhere/with a space/libcuda.so.580.65.06")
    maps.write_text("7f5e0000-7f5e2000 r-xp 00000000 fe:00 12      /usr/lib/libcudart.so.13\n")
    assert driver.find_loaded_library(maps) is None
    assert driver.find_loaded_library(tmp_path / "none") is None


def test_releases_are_compared_by_number() -> None:
    library = Path("/usr/lib/libcuda.so.1000.1")
    assert Driver(None, library, "999.99.99").forward is Forward.ACTIVE
    assert Driver(None, Path("/usr/lib/libcuda.so.580.65.06"), "580.100.01").forward is Forward.MISMATCH


def test_a_library_without_a_release_in_its_name_tells_nothing_against_the_module() -> None:
    assert Driver(None, Path("/usr/lib/wsl/lib/libcuda.so.1.1"), "580.65.06").forward is Forward.NONE
    assert Driver(None, None, None).forward is Forward.NONE


def test_without_a_driver_nothing_is_found_and_its_refusal_is_told_without_versions() -> None:
    try:
        device.current()
    except NoDeviceError as error:
        if "not found" not in error.what:
            pytest.skip("there is a driver")
    else:
        pytest.skip("there is a driver")
    assert driver.cuda_version() is None
    assert driver.find_driver() is None
    what, hint = driver.explain_load_failure("sm_90", b"\x7fELF", RuntimeError("no"))
    assert what == "the driver cannot load the kernel: no"
    assert "linked for sm_90" in hint
