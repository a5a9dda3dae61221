"""``jitlto store`` and ``jitlto lock``: what a deployment needs stays, and what is removed is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jitlto.runtime import session
from jitlto.runtime.family import load
from jitlto.stores.artifact_address import parse_store
from jitlto.stores.artifacts import open_store
from jitlto.stores.entry import encode, object_name
from jitlto.stores.keys import SigningKey
from jitlto.stores.lock_file import LockFile
from tests.support.commands import fails, jitlto, succeeds

TWICE = ("data_type=float", "op_name=twice")


@pytest.fixture
def database(mini_path: Path, tmp_path: Path) -> Path:
    """A database of the family ``mini`` with no pack beside it."""
    return Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))


def _digest(*settings: str, arch: str, database: Path) -> str:
    plan = succeeds("plan", "mini", *settings, "--arch", arch, "--db", database, "--dump", "json")
    return str(json.loads(plan)["digest"])


def test_a_store_is_shown_and_pruned_except_for_what_is_locked(database: Path, store_url: str, tmp_path: Path) -> None:
    address = succeeds("push", database, store_url).strip()
    (tmp_path / "other").write_bytes(b"another file")
    succeeds("push", tmp_path / "other", store_url)
    succeeds("lock", database, "--name", "production", "--store", store_url)
    shown = json.loads(succeeds("store", "info", store_url, "--json"))
    assert shown["locks"] == [{"name": "production", "artifacts": 1, "kernels": 0}]
    assert (shown["kinds"]["artifacts"]["objects"], shown["kinds"]["locks"]["objects"]) == (2, 1)
    text = succeeds("store", "info", store_url)
    assert "artifacts" in text
    assert "production" in text
    planned = succeeds("store", "prune", store_url, "--size", "0", "--dry-run")
    assert "would remove 1 object" in planned
    assert "(1 artifact)" in planned
    done = json.loads(succeeds("store", "prune", store_url, "--size", "0", "--json"))
    assert (done["removed"], done["left"], done["locked"]) == ({"artifacts": 1}, 1, 1)
    assert "unlock" in succeeds("store", "prune", store_url, "--size", "0")
    succeeds("pull", address, "-o", tmp_path / "copy.fragdb")
    succeeds("store", "unlock", store_url, "production")
    fails(jitlto("store", "unlock", store_url, "production"), 1, "[store-no-such-lock]")
    succeeds("store", "prune", store_url, "--older-than", "30d")
    assert json.loads(succeeds("store", "prune", store_url, "--size", "0", "--json"))["left"] == 0


def test_a_lock_file_on_disk_keeps_what_it_names_too(database: Path, store_url: str, tmp_path: Path) -> None:
    succeeds("push", database, store_url)
    succeeds("lock", database, "-o", tmp_path / "jitlto.lock")
    prune = ("store", "prune", store_url, "--size", "0", "--json")
    assert json.loads(succeeds(*prune, "--lock", tmp_path / "jitlto.lock"))["left"] == 1
    fails(jitlto(*prune, "--lock", tmp_path / "none.lock"), 1, "[store-lock-unreadable]")
    assert json.loads(succeeds(*prune))["left"] == 0


def test_usage_errors_come_before_any_request() -> None:
    url = "s3://bucket"
    fails(jitlto("store", "prune", url), 2, "--older-than")
    fails(jitlto("store", "prune", url, "--older-than", "soon"), 2, "30d")
    fails(jitlto("store", "prune", url, "--size", "much"), 2, "much")
    fails(jitlto("store", "info", "nowhere"), 1, "[store-address]")
    fails(jitlto("store", "info", "file:///no/such/directory"), 1, "file:///no/such/directory")
    fails(jitlto("store", "info", "https://mirror.example/x"), 1, "[store-unsupported]", "https://mirror.example/x")
    fails(jitlto("store", "info"), 2, "URL")


def test_verify_finds_what_is_damaged_or_not_signed_and_removes_it(store_url: str, tmp_path: Path) -> None:
    private, formats = Ed25519PrivateKey.generate(), serialization
    public = private.public_key().public_bytes(formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH)
    (signers := tmp_path / "signers").write_bytes(b"ci@example.org " + public + b"\n")
    backend, good, unsigned, damaged = open_store(parse_store(store_url, writes=True)), "0" * 64, "1" * 64, "2" * 64
    backend.put(object_name("kernels", good), encode("kernels", good, b"code", SigningKey(private)))
    backend.put(object_name("kernels", unsigned), encode("kernels", unsigned, b"code", None))
    assert "all right" in succeeds("store", "verify", store_url)
    backend.put(object_name("kernels", damaged), b"?")
    fails(jitlto("store", "verify", store_url), 1, object_name("kernels", damaged), "signatures not checked")
    found = jitlto("store", "verify", store_url, "--signers", signers, "--json")
    assert found.returncode == 1
    names = {each["name"] for each in json.loads(found.stdout)["damaged"]}
    assert names == {object_name("kernels", key) for key in (unsigned, damaged)}
    settings = {"JITLTO_STORE_SIGNERS": str(signers), "JITLTO_STORE_TRUST": "checksum"}
    assert len(json.loads(jitlto("store", "verify", store_url, "--json", **settings).stdout)["damaged"]) == 1
    settings["JITLTO_STORE_TRUST"] = "signed"
    fails(jitlto("store", "verify", store_url, "--delete", **settings), 1, "(removed)", "--delete-untrusted")
    untrusted = ("store", "verify", store_url, "--delete-untrusted")
    fails(jitlto(*untrusted, "--dry-run", **settings), 1, "(would be removed)")
    fails(jitlto(*untrusted), 2, "--signers")
    fails(jitlto(*untrusted, **settings), 1, "(removed)")
    assert "1 object, all right" in succeeds("store", "verify", store_url, "--signers", signers)
    fails(jitlto("store", "verify", store_url, "--signers", tmp_path / "none"), 1, "none")


def test_a_lock_file_names_databases_packs_and_the_kernels_in_them(database: Path, tmp_path: Path) -> None:
    pack, lock = database.with_name("mini.sm_90.pack"), tmp_path / "jitlto.lock"
    succeeds("warm", "mini", *TWICE, "--arch", "sm_90", "--db", database, "-o", pack)
    done = json.loads(succeeds("lock", database, "-o", lock, "--json"))
    made = LockFile.read(lock)
    assert (done["name"], done["artifacts"], done["kernels"]) == (made.name, 3, 1)
    assert set(made.artifacts.values()) == {"mini.fragdb", "mini.sm_90.pack", "mini.fragdb and its packs"}
    assert set(made.kernels) == {_digest(*TWICE, arch="sm_90", database=database)}
    assert "op_name=twice for sm_90" in next(iter(made.kernels.values()))
    again = tmp_path / "again.lock"
    succeeds("lock", database, "-o", again)
    assert again.read_bytes() == lock.read_bytes()
    succeeds("lock", pack, "--arch", "sm_100", "-o", lock)
    assert LockFile.read(lock).kernels == {}


def test_architectures_add_all_kernels_of_a_database(database: Path, tmp_path: Path) -> None:
    lock = tmp_path / "jitlto.lock"
    succeeds("lock", database, "--arch", "sm_90,sm_100", "-o", lock)
    kernels = LockFile.read(lock).kernels
    assert len(kernels) == 8
    assert {_digest(*TWICE, arch=arch, database=database) for arch in ("sm_90", "sm_100")} <= set(kernels)


def test_recorded_plans_become_the_kernels_that_a_program_used(database: Path, tmp_path: Path) -> None:
    recorded, lock = tmp_path / "used.jsonl", tmp_path / "jitlto.lock"
    with session.recording(recorded):
        load("mini", database).plan(arch="sm_90", data_type="float", op_name="twice").link()
    succeeds("lock", database, recorded, "-o", lock)
    assert set(LockFile.read(lock).kernels) == {_digest(*TWICE, arch="sm_90", database=database)}
    assert "used.jsonl" in LockFile.read(lock).artifacts.values()
    fails(jitlto("lock", recorded, "-o", lock), 1, "jitlto lock DB used.jsonl")


def test_a_lock_file_is_replaced_only_where_it_is_named(database: Path, tmp_path: Path) -> None:
    (lock := tmp_path / "jitlto.lock").write_bytes(LockFile("another").encode())
    fails(jitlto("lock", database, cwd=tmp_path), 1, "[store-lock-kept]", "jitlto.lock")
    assert LockFile.read(lock).name == "another"
    succeeds("lock", database, "-o", "jitlto.lock", cwd=tmp_path)
    written = lock.read_bytes()
    succeeds("lock", database, cwd=tmp_path)
    assert lock.read_bytes() == written


def test_lock_files_are_merged(database: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.lock", tmp_path / "other.lock"
    one.write_bytes(LockFile("one", {"a" * 64: "a"}, {"b" * 64: "b"}).encode())
    succeeds("lock", database, one, "-o", other, "--name", "both")
    merged = LockFile.read(other)
    assert (merged.name, len(merged.artifacts), set(merged.kernels)) == ("both", 2, {"b" * 64})
    succeeds("lock", other, database, "-o", other, "--name", "both")  # adding to a lock file
    assert LockFile.read(other) == merged


def test_a_lock_file_is_pushed_to_where_prune_looks(store_url: str, tmp_path: Path) -> None:
    lock = tmp_path / "jitlto.lock"
    lock.write_bytes(LockFile("production", {"a" * 64: "a"}).encode())
    done = jitlto("push", lock, store_url)
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(succeeds("store", "info", store_url, "--json"))["locks"][0]["name"] == "production"


def test_a_damaged_lock_file_neither_gets_into_a_store_nor_hides_what_it_holds(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").mkdir()
    url, lock = (tmp_path / "store").as_uri(), tmp_path / "jitlto.lock"
    lock.write_bytes(b"<<<<<<< ours")
    fails(jitlto("push", lock, url), 1, "[store-lock-malformed]")
    open_store(parse_store(url, writes=True)).put("v1/locks/production.json", b"?")
    done = jitlto("store", "info", url)
    assert done.returncode == 0
    assert "locks" in done.stdout
    assert "jitlto store unlock URL production" in done.stderr
    assert list(json.loads(succeeds("store", "info", url, "--json"))["damaged_locks"]) == ["production"]


def test_what_cannot_be_locked_is_one_message(database: Path, tmp_path: Path) -> None:
    fails(jitlto("lock"), 2, "DB")
    fails(jitlto("lock", database, "--name", "a/b", "-o", tmp_path / "x.lock"), 1, "[store-lock-name]")
    fails(jitlto("lock", tmp_path / "none.fragdb"), 1, "none.fragdb")
    fails(jitlto("lock", database, "-o", database), 1, "[database-not-overwritten]")
    (broken := tmp_path / "broken.lock").write_bytes(b'{"jitlto_lock": 1}')
    fails(jitlto("lock", broken, "-o", tmp_path / "x.lock"), 1, "[store-lock-malformed]", "broken.lock")
    (pack := tmp_path / "broken.pack").write_bytes(b"?")
    fails(jitlto("lock", pack, "-o", tmp_path / "x.lock"), 1, "[jitlto-damaged-pack]", "broken.pack")
    assert not (tmp_path / "x.lock").exists()
