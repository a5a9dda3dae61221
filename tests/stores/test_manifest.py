"""Manifests: listed files must match, and unlisted ones fail."""

import base64
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jitlto.base.errors import ManifestError
from jitlto.cli import cli
from jitlto.link import packs
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel, LinkKey
from jitlto.stores.manifest import Manifest
from jitlto.stores.signatures import TrustedKeys, string
from tests.support.commands import fails, jitlto
from tests.support.errors import raises

ZERO = "0" * 64
needs_ssh = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")


@pytest.fixture
def release(mini_path: Path, tmp_path: Path) -> Path:
    """A directory that holds a folder with a database and its pack."""
    (tmp_path / "release" / "pkg").mkdir(parents=True)
    shutil.copy(mini_path, tmp_path / "release" / "pkg" / "mini.fragdb")
    recipe = LinkKey(
        content := b'{"arch": "sm_90", "entry": "kern"}', "mini/kern[]", (), hashlib.sha256(content).hexdigest()
    )
    kernel = LinkedKernel(b"kernel", "kern", "sm_90", "", 0.0)
    packs.write(tmp_path / "release" / "pkg" / "mini.sm_90.pack", {KERNELS: {recipe.digest: recipe.encode(kernel)}})
    return tmp_path / "release"


@pytest.fixture
def database(release: Path) -> Path:
    return release / "pkg" / "mini.fragdb"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return made_key(tmp_path / "key")


def tool(*command: object, **how: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program of the machine's."""
    program = shutil.which(str(command[0]))
    assert program
    return subprocess.run([program, *map(str, command[1:])], **{"check": True, "capture_output": True} | how)


def made_key(path: Path) -> Path:
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", path)
    return path


def signers_of(key: Path, name: str = "release@example.org") -> Path:
    """A file of OpenSSH's allowed_signers that trusts one key."""
    path = key.with_name(f"{key.name}.signers")
    path.write_text(f'{name} namespaces="jitlto" {key.with_suffix(".pub").read_text()}')
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def refused(code: str, *arguments: object) -> str:
    """Return the message of a failing command."""
    done = jitlto(*map(str, arguments))
    fails(done, 1, f"[manifest-{code}]", "hint: ")
    return done.stderr


def listed(release: Path, signed_by: Path | None = None) -> Path:
    """Make the manifest of a release as its publisher does, with sha256sum and ssh-keygen."""
    path = release / "SHA256SUMS"
    names = sorted(str(file.relative_to(release)) for file in (release / "pkg").iterdir())
    path.write_bytes(tool("sha256sum", *names, cwd=release).stdout)
    if signed_by:
        Path(f"{path}.sig").unlink(missing_ok=True)
        tool("ssh-keygen", "-q", "-Y", "sign", "-f", signed_by, "-n", "jitlto", path)
    return path


def test_a_manifest_lists_databases_and_the_packs_beside_them(release: Path) -> None:
    path = listed(release)
    result = run("verify", "--manifest", path)
    assert result.exit_code == 0
    assert "2 files match" in result.output
    assert "6 fragments and 12 images intact" in result.output
    assert run("verify", "--manifest", path, release / "pkg" / "mini.fragdb").exit_code == 0
    for flag in ("--text", "--binary"):
        made = tool("sha256sum", flag, "./pkg/mini.fragdb", "pkg/mini.sm_90.pack", cwd=release)
        (release / "other").write_bytes(made.stdout)
        assert Manifest.read(release / "other").digests == Manifest.read(path).digests


@pytest.mark.parametrize("name", ["mini.fragdb", "mini.sm_90.pack"])
def test_a_changed_file_fails_and_the_message_gives_both_digests(release: Path, database: Path, name: str) -> None:
    path = listed(release)
    expected = Manifest.read(path).digests[f"pkg/{name}"]
    file = database.with_name(name)
    file.write_bytes(file.read_bytes() + b"x")
    for arguments in ([database], []):
        message = refused("mismatch", "verify", "--manifest", path, *arguments)
        assert str(file) in message
        assert expected in message
        assert hashlib.sha256(file.read_bytes()).hexdigest() in message


def test_all_files_that_differ_are_named_and_none_is_opened(release: Path, database: Path) -> None:
    path = listed(release)
    database.write_bytes(b"x")
    database.with_name("mini.sm_90.pack").unlink()
    message = refused("mismatch", "verify", "--manifest", path)
    assert "[manifest-unreadable]" in message
    assert "[database-" not in message


def test_an_unlisted_file_fails(release: Path, database: Path, tmp_path: Path) -> None:
    path = listed(release)
    other = shutil.copy(database, release / "other.fragdb")
    assert str(path) in refused("not-listed", "verify", "--manifest", path, other)
    assert str(path) in refused("not-listed", "verify", "--manifest", path, database, other)
    packs.write(database.with_name("mini.more.pack"), {})
    for arguments in ([database], []):
        message = refused("not-listed", "verify", "--manifest", path, *arguments)
        assert "mini.more.pack" in message  # a process that opens the database would load it


def test_an_installed_file_is_found_by_the_end_of_its_path(release: Path, database: Path, tmp_path: Path) -> None:
    path = listed(release)
    installed = tmp_path / "site-packages" / "pkg"
    shutil.copytree(database.parent, installed)
    assert run("verify", "--manifest", path, installed / "mini.fragdb").exit_code == 0
    elsewhere = tmp_path / "site-packages" / "other"
    shutil.copytree(database.parent, elsewhere)
    assert str(path) in refused("not-listed", "verify", "--manifest", path, elsewhere / "mini.fragdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ":1"),
        (f"{ZERO} pkg/mini.fragdb\n", ":1"),
        (f"SHA256 (pkg/mini.fragdb) = {ZERO}\n", ":1"),
        (f"{ZERO}  pkg/mini.fragdb\n{ZERO}  pkg/mini.fragdb\n", ":2"),
        (f"{ZERO}  /etc/passwd\n", ":1"),
        (f"{ZERO}  ../x.fragdb\n", ":1"),
        (f"{ZERO}  .\n", ":1"),
        (f"{ZERO}  a\rb\n", ":1"),
        (f"{ZERO}  a\n\n{ZERO}  b\n", ":2"),
    ],
)
def test_an_invalid_manifest_is_rejected_with_its_line(release: Path, text: str, where: str) -> None:
    (release / "SHA256SUMS").write_bytes(text.encode())
    with raises(ManifestError, "manifest-invalid", where=f"SHA256SUMS{where}"):
        Manifest.read(release / "SHA256SUMS")
    refused("invalid", "verify", "--manifest", release / "SHA256SUMS")


def test_a_manifest_is_a_file_of_sensible_size(release: Path, tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 40)
    lines = (f"{ZERO}  {number:061}\n" for number in range((16 << 20) // 128 + 1))  # cut off between two of them
    (tmp_path / "long").write_text("".join(lines))
    os.mkfifo(tmp_path / "fifo")
    for name, code in (("fifo", "invalid"), ("none", "unreadable"), (".", "unreadable")):
        refused(code, "verify", "--manifest", tmp_path / name)
    for name in ("large", "long"):
        assert "exceeds 16 MiB" in refused("unreadable", "verify", "--manifest", tmp_path / name)
    (tmp_path / "bytes").write_bytes(b"0" * 64 + b"  \xff.fragdb")
    refused("invalid", "verify", "--manifest", tmp_path / "bytes")


# --- signatures ---


@pytest.mark.slow
@needs_ssh
def test_a_changed_manifest_or_signature_fails(release: Path, database: Path, key: Path) -> None:
    path = listed(release, key)
    signature, signers = Path(f"{path}.sig"), signers_of(key)
    whole, signed = path.read_bytes(), signature.read_bytes()
    path.write_bytes(whole + f"{ZERO}  more.fragdb\n".encode())
    assert str(path) in refused("untrusted", "verify", "--manifest", path, "--signers", signers, database)
    path.write_bytes(whole)
    for data in (
        b"",
        b"x",
        signed[:-60],
        signed.replace(b"\n", b"", 2),
        signed[:80] + (b"B" if signed[80:81] == b"A" else b"A") + signed[81:],
    ):
        signature.write_bytes(data)
        assert str(path) in refused("untrusted", "verify", "--manifest", path, "--signers", signers, database)
    signature.write_bytes(signed)
    assert run("verify", "--manifest", path, "--signers", signers, database).exit_code == 0


@needs_ssh
def test_a_missing_signature_is_a_failure_if_signers_are_given(release: Path, database: Path, key: Path) -> None:
    path = listed(release)
    assert str(path) in refused("unsigned", "verify", "--manifest", path, "--signers", signers_of(key), database)
    listed(release, key)
    assert "signature not checked" in run("verify", "--manifest", path).output


@pytest.mark.slow
@needs_ssh
def test_others_signatures_and_signatures_for_other_things_fail(release: Path, key: Path, tmp_path: Path) -> None:
    other = made_key(tmp_path / "other")
    path = listed(release, other)
    assert "not made by an Ed25519 key" in refused(
        "untrusted", "verify", "--manifest", path, "--signers", signers_of(key)
    )
    Path(f"{path}.sig").unlink()
    tool("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", path)
    everything = tmp_path / "everything"
    everything.write_text(f"release@example.org {key.with_suffix('.pub').read_text()}")
    for signers in (signers_of(key), everything):
        assert str(path) in refused("untrusted", "verify", "--manifest", path, "--signers", signers)


@pytest.mark.slow
@needs_ssh
@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["me,release@example.org KEY"], "me"),
        (["# a comment", "", 'release namespaces="git" KEY', 'me namespaces="git,jitlto" KEY'], "me"),
        (["me cert-authority KEY"], None),
        (["them OTHER", "you KEY"], "you"),
        (["# me KEY", "me OTHER KEY"], None),
    ],
    ids=lambda value: "; ".join(value) if isinstance(value, list) else str(value),
)
def test_a_key_counts_in_every_line_that_lists_it(
    release: Path, key: Path, tmp_path: Path, lines: list[str], name: str | None
) -> None:
    path = listed(release, key)
    public = {"KEY": key, "OTHER": made_key(tmp_path / "other")}
    words = {word: " ".join(file.with_suffix(".pub").read_text().split()[:2]) for word, file in public.items()}
    signers = tmp_path / "signers"
    signers.write_text("".join(" ".join(words.get(word, word) for word in line.split(" ")) + "\n" for line in lines))
    if name is None:
        refused("untrusted", "verify", "--manifest", path, "--signers", signers)
    else:
        assert f"signed by {name}\n" in run("verify", "--manifest", path, "--signers", signers).output


@needs_ssh
def test_keys_of_other_types_sign_nothing(release: Path, tmp_path: Path) -> None:
    tool("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "another")
    path = listed(release, tmp_path / "another")
    assert "Ed25519" in refused(
        "untrusted", "verify", "--manifest", path, "--signers", signers_of(tmp_path / "another")
    )


@pytest.mark.parametrize("touched", [True, False])
def test_a_hardware_key_signs_when_somebody_touches_it(touched: bool) -> None:
    """As PROTOCOL.u2f describes it; ssh-keygen needs the hardware."""
    private = Ed25519PrivateKey.generate()
    kind, application = b"sk-ssh-ed25519@openssh.com", b"ssh:"
    key = b"".join(map(string, (kind, private.public_key().public_bytes_raw(), application)))
    parts = (b"jitlto", b"", b"sha512", hashlib.sha512(b"text").digest())
    signed = b"SSHSIG" + b"".join(map(string, parts))
    state = bytes([touched]) + (7).to_bytes(4, "big")
    raw = private.sign(hashlib.sha256(application).digest() + state + hashlib.sha256(signed).digest())
    signature = string(kind) + string(raw) + state
    blob = b"SSHSIG\0\0\0\1" + b"".join(map(string, (key, b"jitlto", b"", b"sha512", signature)))
    armored = b"-----BEGIN SSH SIGNATURE-----\n" + base64.encodebytes(blob) + b"-----END SSH SIGNATURE-----\n"
    trusted = TrustedKeys({key: "me"}, "jitlto")
    assert trusted.signer_of(armored, b"text") == ("me" if touched else None)
    assert trusted.signer_of(armored, b"other") is None
    assert TrustedKeys({key: "me"}, "other").signer_of(armored, b"text") is None
    assert not trusted.ids  # it signs no entries
