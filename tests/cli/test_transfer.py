"""``jitlto push`` and ``pull``: what is pushed is checked, and comes back by its address."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.commands import fails, jitlto, succeeds

TWICE = ("data_type=float", "op_name=twice")


@pytest.fixture
def packed(database: Path) -> Path:
    """A database with a pack beside it."""
    succeeds("warm", "mini", *TWICE, "--arch", "sm_90", "--db", database, "-o", database.with_name("mini.sm_90.pack"))
    return database


def _objects(store_url: str) -> int:
    return int(json.loads(succeeds("store", "info", store_url, "--json"))["objects"])


def test_a_database_is_pushed_once_and_pulled_by_the_address_that_is_printed(
    database: Path, store_url: str, tmp_path: Path
) -> None:
    done = jitlto("push", database, store_url)
    digest = hashlib.sha256(database.read_bytes()).hexdigest()
    assert (done.returncode, done.stdout) == (0, f"{store_url}#sha256={digest}\n")
    again = jitlto("push", database, store_url)
    assert again.stdout == done.stdout
    assert "already there" in again.stderr
    assert _objects(store_url) == 1
    copy = tmp_path / "copy.fragdb"
    assert str(copy) in succeeds("pull", done.stdout.strip(), "-o", copy)
    assert copy.read_bytes() == database.read_bytes()


@pytest.mark.parametrize("damaged", ["mini.fragdb", "mini.sm_90.pack"])
def test_what_is_damaged_is_not_pushed(packed: Path, store_url: str, damaged: str) -> None:
    path = packed.with_name(damaged)
    path.write_bytes(path.read_bytes()[:-5000])
    fails(jitlto("push", path, store_url), 1, damaged)
    assert _objects(store_url) == 0


def test_wrong_addresses_and_files_are_one_message(database: Path, store_url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fails(jitlto("pull", store_url, "-o", out), 1, "[store-no-digest]", "jitlto push")
    fails(jitlto("pull", f"{store_url}#sha256=12", "-o", out), 1, "[store-no-digest]")
    fails(jitlto("pull", f"ftp://x#sha256={'0' * 64}", "-o", out), 1, "[store-address]")
    fails(jitlto("pull", f"{store_url}#sha256={'0' * 64}", "-o", tmp_path / "none" / "out"), 1, "unwritable-file")
    fails(jitlto("push", tmp_path / "none.fragdb", store_url), 1, "none.fragdb")
    fails(jitlto("push", database, "nowhere"), 1, "[store-address]")
    fails(jitlto("push", database, "https://mirror.example/x"), 1, "[store-address]", "only be read")
    fails(jitlto("store", "prune", "s3://bucket#read", "--size", "0"), 1, "[store-address]", "only be read")
    fails(jitlto("push", database, (tmp_path / "typo").as_uri()), 1, "[store-unreachable]", "typo")
    assert not (tmp_path / "typo").exists()
    fails(jitlto("push", store_url), 2, "FILE")
    succeeds("push", database, store_url)
    fails(jitlto("pull", f"{store_url}#sha256={'0' * 64}", "-o", out), 1, "[store-no-such-artifact]", "0" * 64)
    assert not out.exists()
