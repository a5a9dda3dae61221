"""``jitlto store``: what it holds is shown, what is removed is said, what is damaged is found."""

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jitlto.stores.address import parse_store
from jitlto.stores.backend import open_backend
from jitlto.stores.entry import encode, object_name
from jitlto.stores.signatures import SigningKey
from tests.support.commands import fails, jitlto, succeeds


def test_a_store_is_shown_and_pruned(database: Path, store_url: str, tmp_path: Path) -> None:
    address = succeeds("push", database, store_url).strip()
    backend = open_backend(parse_store(store_url, writes=True))
    backend.put(object_name("kernels", "0" * 64), encode("kernels", "0" * 64, b"code", None))
    shown = json.loads(succeeds("store", "info", store_url, "--json"))
    assert shown["objects"] == 2
    assert (shown["kinds"]["artifacts"]["objects"], shown["kinds"]["kernels"]["objects"]) == (1, 1)
    assert "2 objects, " in succeeds("store", "info", store_url)
    assert "would remove 1 object" in succeeds("store", "prune", store_url, "--size", "0", "--dry-run")
    assert "removed 0 objects" in succeeds("store", "prune", store_url, "--older-than", "30")
    assert "removed 1 object, " in (done := succeeds("store", "prune", store_url, "--size", "0"))
    assert "; 0 B left" in done
    succeeds("pull", address, "-o", tmp_path / "copy.fragdb")


def test_a_database_is_verified_before_it_is_pushed(database: Path, store_url: str, tmp_path: Path) -> None:
    for name, content in (("cut", database.read_bytes()[:2000]), ("foreign", b"no database"), ("empty", b"")):
        (tmp_path / f"{name}.fragdb").write_bytes(content)
        fails(jitlto("push", tmp_path / f"{name}.fragdb", store_url), 1, f"{name}.fragdb", "[database-")
    assert json.loads(succeeds("store", "info", store_url, "--json"))["objects"] == 0


def test_usage_errors_come_before_any_request() -> None:
    url = "s3://bucket"
    fails(jitlto("store", "prune", url), 2, "--older-than")
    fails(jitlto("store", "prune", url, "--older-than", "soon"), 2, "--older-than")
    fails(jitlto("store", "prune", url, "--size", "much"), 2, "much")
    fails(jitlto("store", "info", "nowhere"), 1, "[store-address]")
    fails(jitlto("store", "info", "file:///no/such/directory"), 1, "file:///no/such/directory")
    fails(jitlto("store", "info", "https://mirror.example/x"), 1, "[store-unsupported]", "https://mirror.example/x")
    fails(jitlto("store", "info"), 2, "URL")


def test_verify_finds_what_is_damaged_or_not_signed_and_removes_it(store_url: str, tmp_path: Path) -> None:
    private, formats = Ed25519PrivateKey.generate(), serialization
    public = private.public_key().public_bytes(formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH)
    (signers := tmp_path / "signers").write_bytes(b"ci@example.org " + public + b"\n")
    backend, good, unsigned, damaged = open_backend(parse_store(store_url, writes=True)), "0" * 64, "1" * 64, "2" * 64
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
    done = jitlto("store", "verify", store_url, "--delete", **settings)
    fails(done, 1, f"{object_name('kernels', damaged)}: ", "(removed)", object_name("kernels", unsigned))
    assert "3 objects, 2 wrong, 1 removed" in done.stdout
    assert "2 objects, all right" in succeeds("store", "verify", store_url)
    fails(jitlto("store", "verify", store_url, "--signers", tmp_path / "none"), 1, "none")
