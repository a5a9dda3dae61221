"""How far it is from a family to nvJitLink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.frames import launcher_frames


@pytest.mark.usefixtures("empty_cache")
def test_a_launcher_is_six_functions_from_nvjitlink(tmp_path: Path) -> None:
    frames = launcher_frames(tmp_path)
    assert (frames[0], frames[-1]) == ("runtime.family: KernelFamily.launcher", "cuda.nvjitlink: link")
    assert len(frames) <= 6, frames
