"""``jitlto cache``: what it says is so, and what it removes is gone."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.commands import fails, jitlto

TWICE = ("data_type=float", "op_name=twice")


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """The variables of a user with an empty cache."""
    return {"JITLTO_CACHE_DIR": str(tmp_path / "cache")}


def _info(own: dict[str, str], **variables: str) -> dict[str, dict[str, object]]:
    described = json.loads(jitlto("cache", "info", "--json", **own, **variables).stdout)
    return {item["name"]: item for item in described["caches"]}


def test_databases_of_editable_installs_are_counted_and_cleared(own: dict[str, str], tmp_path: Path) -> None:
    assert f"from sources: {tmp_path}/cache/editable: empty, 0 B" in jitlto("cache", "info", **own).stdout
    kept = tmp_path / "cache" / "editable" / "ab"
    kept.mkdir(parents=True, mode=0o700)
    (tmp_path / "cache" / "editable").chmod(0o700)
    for name, data in (("fragments.fragdb", bytes(5000)), ("fragments.json", b"[]"), ("fragments.lock", b"")):
        (kept / name).write_bytes(data)
    (tmp_path / "cache" / "editable" / "link").symlink_to(tmp_path)
    (tmp_path / "mine.fragdb").touch()
    assert f"{tmp_path}/cache/editable: 1 database, 4.9 KiB\n" in jitlto("cache", "info", **own).stdout
    listed = _info(own)["editable"]
    assert (listed["entries"], listed["bytes"], listed["bound"]) == ({"databases": 1}, 5002, None)
    assert "cache/editable" not in jitlto("cache", "clear", "--only", "build", **own).stdout
    (tmp_path / "cache" / "build").mkdir(mode=0o700, exist_ok=True)
    assert "editable: removed 1 entry, 4.9 KiB; 0 B left" in jitlto("cache", "clear", **own).stdout
    assert not kept.exists()
    assert (tmp_path / "mine.fragdb").exists()
    assert "removed 0 entries" in jitlto("cache", "clear", "--only", "editable", **own).stdout


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        fails(jitlto("cache", "clear", JITLTO_CACHE_DIR=str(directory)), 1, "[jitlto-unusable-cache]")


@pytest.mark.slow
def test_shared_stores_are_listed_filled_and_searched(database: Path, own: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    there = own | {"JITLTO_STORE": url}
    done = jitlto("warm", "mini", *TWICE, "--arch", "sm_90", "--db", database, **there)
    assert (done.returncode, "shared stores: 1 kernel written\n" in done.stdout) == (0, True), done.stderr
    shutil.rmtree(tmp_path / "cache")
    found = jitlto("plan", "mini", *TWICE, "--arch", "sm_90", "--db", database, **there)
    assert "found in a shared store" in found.stdout
    assert url in jitlto("cache", "info", **there).stdout
    for setting, stores in {"on": [url], "off": []}.items():
        described = jitlto("cache", "info", "--json", **there, JITLTO_CACHE=setting)
        assert json.loads(described.stdout)["stores"] == stores


def test_kernels_that_a_shared_store_does_not_take_are_a_failure(
    database: Path, own: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    there = own | {"JITLTO_STORE": (tmp_path / "file" / "store").as_uri()}
    done = jitlto("warm", "mini", *TWICE, "--arch", "sm_90", "--db", database, **there)
    assert (done.returncode, "0 kernels written, 1 failed" in done.stdout) == (1, True), done.stdout + done.stderr
