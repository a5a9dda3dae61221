"""Files: which one stands under a name, and what stands beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jitlto.files import beside, identity


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


def test_beside_a_file_stand_those_of_its_stem(tmp_path: Path) -> None:
    for name in ("x.pack", "x.b.pack", "x.pack.old", "xy.pack", "y.pack", "x.fragdb"):
        (tmp_path / name).touch()
    assert [path.name for path in beside(tmp_path / "x.fragdb", ".pack")] == ["x.b.pack", "x.pack"]
    assert beside(tmp_path / "none" / "x.fragdb", ".pack") == []
