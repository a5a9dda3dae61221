"""Whatever may be a source is found, by every path that leads to it, and nothing goes on for ever."""

import os
from pathlib import Path

from jitlto.compile import source_files


def walk(folder: Path, *, thorough: bool = True) -> list[str]:
    found = source_files.walk([folder], thorough=thorough)
    return [os.path.relpath(path, folder) for path, is_folder in found if not is_folder]


def create(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def test_files_below_a_directory_in_order(tmp_path: Path) -> None:
    create(tmp_path, "b.cuh", "a/z.cuh", "a/b/c.cuh")
    assert walk(tmp_path) == ["a/b/c.cuh", "a/z.cuh", "b.cuh"]
    assert walk(tmp_path / "nothing") == []


def test_hidden_ones_count_or_not(tmp_path: Path) -> None:
    create(tmp_path, ".a/b.cuh", ".c.cuh", "d.cuh")
    assert walk(tmp_path) == [".a/b.cuh", ".c.cuh", "d.cuh"]
    assert walk(tmp_path, thorough=False) == ["d.cuh"]


def test_what_tools_leave_does_not(tmp_path: Path) -> None:
    create(
        tmp_path, ".git/HEAD", "__pycache__/x.pyc", ".mypy_cache/x", "v/pyvenv.cfg", "v/lib/x", ".x.swp", "x~", ".#x"
    )
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to("nothing")
    assert walk(tmp_path) == []


def test_links_are_followed_by_every_path_and_in_no_circle(tmp_path: Path) -> None:
    create(tmp_path, "family/real/x.cuh", "outside/y.cuh")
    family = tmp_path / "family"
    (family / "again").symlink_to("real")
    (family / "out").symlink_to("../outside")
    (family / "round").symlink_to(".")
    (family / "up").symlink_to("..")
    (family / "file.cuh").symlink_to("../outside/y.cuh")
    (tmp_path / "outside" / "back").symlink_to("../family")
    found = walk(family)
    assert {"again/x.cuh", "real/x.cuh", "out/y.cuh", "file.cuh"} <= set(found)
    assert len(found) == len(set(found)) < 50
    assert walk(family, thorough=False) == ["file.cuh", "real/x.cuh"]
