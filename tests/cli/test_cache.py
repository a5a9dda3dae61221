"""``jitlto cache``: what it says is so, and what it removes is gone."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.commands import fails, jitlto, succeeds
from tests.support.families import MINI, write_family

TWICE = ("data_type=float", "op_name=twice")


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """The variables of a user with an empty cache."""
    return {"JITLTO_CACHE_DIR": str(tmp_path / "cache")}


def test_caches_are_counted_and_cleared(own: dict[str, str], tmp_path: Path) -> None:
    write_family(tmp_path / "mini", MINI)
    assert f"build cache: {tmp_path}/cache/build: empty, 0 B" in jitlto("cache", "info", **own).stdout
    succeeds("build", tmp_path / "mini", "-o", tmp_path / "mini.fragdb", **own)
    described = json.loads(jitlto("cache", "info", "--json", **own).stdout)["caches"]
    (build,) = (each for each in described if each["name"] == "build")
    assert build["entries"]["compiled"] == 6
    assert 0 < build["bytes"] < build["bound"]
    assert "cache/build" not in jitlto("cache", "clear", "--only", "cubins", **own).stdout
    assert "cache/build: removed" in jitlto("cache", "clear", **own).stdout
    assert f"{tmp_path}/cache/build: empty, 0 B" in jitlto("cache", "info", **own).stdout


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
