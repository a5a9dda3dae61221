"""The driver at hand: what its refusal of a kernel is told as."""

import pytest

from jitlto.base.versions import Version
from jitlto.cuda import driver, nvjitlink


def test_without_a_driver_its_refusal_is_told_without_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda_version", lambda: None)
    what, hint = driver.explain_load_failure("sm_90", RuntimeError("no"))
    assert what == "the driver cannot load the kernel: no"
    assert "linked for sm_90" in hint


def test_a_refusal_that_versions_explain_is_told_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda_version", lambda: Version(11, 8))
    what, hint = driver.explain_load_failure("sm_90", RuntimeError("no"))
    assert f"no: a driver for CUDA 11.8 does not load a cubin made by nvJitLink {nvjitlink.version()}" in what
    assert "install a driver for CUDA" in hint
