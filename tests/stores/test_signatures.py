"""Keys in OpenSSH's formats: which are read, which count, and that what ssh-keygen writes is understood."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.signatures import SigningKey, TrustedKeys
from tests.support.errors import raises
from tests.support.stores import new_key, write_key

RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[SigningKey, str]:
    """A private key, and the line of its public key."""
    path = write_key(tmp_path / "key")
    return SigningKey.load(path), Path(f"{path}.pub").read_text().strip()


def test_what_a_key_signs_its_public_key_verifies(pair: tuple[SigningKey, str], tmp_path: Path) -> None:
    key, line = pair
    trusted = trusting(tmp_path, line)
    signature = key.sign(b"data")
    assert trusted.ids == {key.id}
    assert trusted.verify(key.id, signature, b"data")
    assert not trusted.verify(key.id, signature, b"date")
    assert not trusted.verify(key.id, signature[:-1], b"data")
    assert not trusted.verify(b"\0" * 32, signature, b"data")
    assert not trusted.verify(key.id, new_key().sign(b"data"), b"data")


@pytest.mark.parametrize(
    "form",
    [
        "{key}",
        "  {key}\r",
        "ssh-ed25519 {blob}",
        '"name with blanks" {key}',
        'ci@example.org namespaces="git,jitlto-store" {key}',
        'ci@example.org valid-after="20200101",valid-before="29990101Z" {key}',
        'ci@example.org valid-after="20200101235959z" {key}',
    ],
)
def test_lines_that_name_a_key(form: str, pair: tuple[SigningKey, str], tmp_path: Path) -> None:
    key, line = pair
    trusted = trusting(tmp_path, "# keys", "", form.format(key=line, blob=line.split()[1]))
    assert trusted.ids == {key.id}


@pytest.mark.parametrize(
    "form",
    [
        'ci@example.org namespaces="git" {key}',
        "* cert-authority {key}",
        'ci@example.org valid-after="299901010000" {key}',
        'ci@example.org valid-before="20200101Z",namespaces="jitlto-store" {key}',
        RSA,
    ],
)
def test_lines_whose_key_does_not_count(form: str, pair: tuple[SigningKey, str], tmp_path: Path) -> None:
    trusted = trusting(tmp_path, form.format(key=pair[1]))
    assert not trusted.ids


@pytest.mark.parametrize(
    "form",
    [
        "nothing",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 {blob}AAAA",
        "sk-ssh-ed25519@openssh.com {blob}",
        "ci@example.org no-touch-required {key}",
        'ci@example.org valid-before="2999010" {key}',
        'ci@example.org valid-before="29991301" {key}',
    ],
)
def test_a_malformed_line_is_an_error_that_names_it(form: str, pair: tuple[SigningKey, str], tmp_path: Path) -> None:
    with raises(StoreError, "store-signers", where="signers:2"):
        trusting(tmp_path, "# keys", form.format(key=pair[1], blob=pair[1].split()[1]))


def test_what_is_no_private_key_is_an_error(tmp_path: Path) -> None:
    with raises(StoreError, "store-unreadable-key", where="missing"):
        SigningKey.load(tmp_path / "missing")
    with raises(StoreError, "store-unreadable-key", where="missing"):
        TrustedKeys.load(tmp_path / "missing")
    path = write_key(tmp_path / "key")
    with raises(StoreError, "store-key", where="key.pub"):
        SigningKey.load(Path(f"{path}.pub"))


@pytest.mark.slow
def test_keys_that_ssh_keygen_writes(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")

    def make(name: str, *options: str) -> Path:
        path = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-f", str(path), *options], check=True)  # noqa: S607
        return path

    key = SigningKey.load(make("plain", "-t", "ed25519", "-N", ""))
    trusted = TrustedKeys.load(tmp_path / "plain.pub")
    assert trusted.verify(key.id, key.sign(b"data"), b"data")
    shown = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "plain")], capture_output=True, text=True, check=True)  # noqa: S607
    assert f"SHA256:{base64.b64encode(key.id).decode().rstrip('=')}" in shown.stdout
    with raises(StoreError, "store-key", where="locked"):
        SigningKey.load(make("locked", "-t", "ed25519", "-N", "secret"))
    with raises(StoreError, "store-key", where="rsa"):
        SigningKey.load(make("rsa", "-t", "rsa", "-N", ""))


def trusting(directory: Path, *lines: str) -> TrustedKeys:
    path = directory / "signers"
    path.write_text("\n".join(lines) + "\n")
    return TrustedKeys.load(path)
