"""How far it is from a family to nvJitLink."""

from pathlib import Path

import pytest

from tests.support.frames import launcher_frames


@pytest.mark.usefixtures("empty_cache")
def test_a_launcher_is_six_functions_from_nvjitlink(tmp_path: Path) -> None:
    frames = launcher_frames(tmp_path)
    assert "runtime.family: KernelFamily.launcher" in frames[:2]  # behind the table, where there is no core
    assert frames[-1] == "cuda.nvjitlink: link"
    assert len(frames) <= 6, frames
