"""``jitlto wisdom``: files are shown and merged."""

import shutil
from pathlib import Path

from jitlto.tuning import wisdom_file
from jitlto.tuning.wisdom import Wisdom
from tests.support.commands import fails, jitlto, succeeds
from tests.support.wisdom import A100, entry, trial

ONE = entry(trial(2.0), trial(1.0, veclen="4"), trial(3.0, veclen="8"), trial(4.0, veclen="16"))
OTHER = entry(trial(1.0), device=A100, family="other")


def written(path: Path, *entries: object) -> Path:
    wisdom_file.write(path, Wisdom(entries))  # type: ignore[arg-type]
    return path


def test_show_says_what_is_chosen_for_what_and_how_much_faster_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "a.wisdom", ONE)
    text = succeeds("wisdom", path)
    for word in ("mini/kern", "rows=1024", "NVIDIA H200", "veclen=4", "2.00 times"):
        assert word in text
    assert "4 variants" in text


def test_show_reads_the_users_own_by_default(tmp_path: Path) -> None:
    path = written(tmp_path / "own", OTHER)
    assert "other/kern" in succeeds("wisdom", JITLTO_WISDOM=str(path))
    fails(jitlto("wisdom", JITLTO_WISDOM=str(tmp_path / "none")), 1, "wisdom-unreadable", "none")


def test_merge_writes_all_entries_in_any_order(tmp_path: Path) -> None:
    one, other = written(tmp_path / "1", ONE), written(tmp_path / "2", OTHER)
    for number, order in enumerate(((one, other), (other, one, one))):
        succeeds("wisdom", *order, "-o", tmp_path / f"out{number}")
    assert (tmp_path / "out0").read_bytes() == (tmp_path / "out1").read_bytes()
    assert len(wisdom_file.read(tmp_path / "out0").entries) == 2
    succeeds("wisdom", one, other, "-o", one)
    assert len(wisdom_file.read(one).entries) == 2


def test_a_file_that_is_none_is_one_error_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{}")
    fails(jitlto("wisdom", tmp_path / "bad", "-o", tmp_path / "out"), 1, "wisdom-damaged", "bad")
    assert not (tmp_path / "out").exists()


def test_a_database_is_not_overwritten(tmp_path: Path, mini_path: Path) -> None:
    path = Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))
    fails(jitlto("wisdom", written(tmp_path / "a", ONE), "-o", path), 1, "database-not-overwritten", "mini.fragdb")
    assert path.read_bytes() == mini_path.read_bytes()
