"""Files: which one stands under a name, and what stands beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jitlto.files import beside, identity, is_settled


def test_every_change_makes_another_identity(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"one")
    other.write_bytes(b"one")
    seen = [identity(path.stat()), identity(other.stat())]
    assert identity(path.stat()) == seen[0]
    time.sleep(0.02)
    path.write_bytes(b"two")
    seen.append(identity(path.stat()))
    os.utime(path, ns=(seen[0][3], seen[0][3]))  # whoever sets the time back changes the file
    seen.append(identity(path.stat()))
    os.replace(other, path)  # noqa: PTH105
    seen.append(identity(path.stat()))
    assert len(set(seen)) == len(seen)


def test_a_file_is_settled_two_seconds_after_its_last_change(tmp_path: Path) -> None:
    now = time.time_ns()
    for ago, settled in ((0, False), (1.9e9, False), (2.5e9, True), (-1e12, False)):
        then = int(now - ago)
        assert is_settled((1, 2, 3, 0, then)) is settled
        assert is_settled((1, 2, 3, then, 1)) is settled


def test_times_in_whole_seconds_do_not_tell_files_apart() -> None:
    assert not is_settled((1, 2, 3, 10**9, 10**9))
    assert is_settled((1, 2, 3, 10**9, 10**9 + 1))  # the last write as an archive had it, and when it was unpacked


def test_beside_a_file_stand_those_of_its_stem(tmp_path: Path) -> None:
    for name in ("x.pack", "x.b.pack", "x.pack.old", "xy.pack", "y.pack", "x.fragdb"):
        (tmp_path / name).touch()
    assert [path.name for path in beside(tmp_path / "x.fragdb", ".pack")] == ["x.b.pack", "x.pack"]
    assert beside(tmp_path / "none" / "x.fragdb", ".pack") == []
