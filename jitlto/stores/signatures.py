"""Ed25519 keys in OpenSSH's formats, by the package cryptography: who is trusted, and what a key has signed.

The one reader of lines of ``allowed_signers`` and ``KEY.pub`` (ssh-keygen(1)), and of signatures of ``ssh-keygen -Y
sign`` (PROTOCOL.sshsig). Imported where signatures count, since the package is an extra and takes 15 ms.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from jitlto.base import files
from jitlto.base.errors import StoreError

#: The namespace that a line of an allowed_signers file may restrict its key to, for entries of stores.
STORE_NAMESPACE = "jitlto-store"
_PREFIX = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"  # of an Ed25519 public key in OpenSSH's form (RFC 8709, 4)
_KINDS = (b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com")  # the second is on hardware, and signs entries of no store
_WORD = re.compile(rb'(?:"[^"]*"|[^\s"])+')
_OPTION = re.compile(r'((?:"[^"]*"|[^,"])+)(?:,|$)')
_ARMOR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\r?\n(.*)-----END SSH SIGNATURE-----\s*", re.DOTALL)
_HEAD = b"SSHSIG\0\0\0\1"  # with the version
_TOUCHED = 1  # the flag of a hardware key that a person has touched


class SigningKey:
    """A private key that signs entries."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        #: The public key in OpenSSH's form.
        self.public = _PREFIX + key.public_key().public_bytes_raw()
        #: Its SHA-256, as in ``ssh-keygen -l``.
        self.id = hashlib.sha256(self.public).digest()

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Load a private key without a passphrase, as ``ssh-keygen -t ed25519`` writes it.

        Raises:
            StoreError: If the file cannot be read, is not an Ed25519 key of OpenSSH or has a passphrase.
        """
        text, reason = _read(path), "of another type"
        try:
            key = load_ssh_private_key(text, None)
            if isinstance(key, Ed25519PrivateKey):
                return cls(key)
        except Exception as error:  # noqa: BLE001 - what cryptography raises for any text is not listed
            reason = str(error)
        what, hint = f"is not an Ed25519 private key: {reason}", "`ssh-keygen -t ed25519 -N '' -f KEY` makes one"
        raise StoreError(what, code="store-key", where=str(path), hint=hint)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of bytes."""
        return self._key.sign(data)


class TrustedKeys:
    """Public keys, in OpenSSH's form, and names of those whose signatures are trusted for one purpose."""

    def __init__(self, names: Mapping[bytes, str], namespace: str = STORE_NAMESPACE) -> None:
        self._names, self._namespace = names, namespace.encode()
        self._keys = {hashlib.sha256(key).digest(): key for key in names if key.startswith(_PREFIX)}
        #: The SHA-256 of each key that can sign entries, in OpenSSH's form.
        self.ids = frozenset(self._keys)

    @classmethod
    def load(cls, path: Path, namespace: str = STORE_NAMESPACE) -> TrustedKeys:
        """Load the keys of a file: of OpenSSH's ``allowed_signers``, or lines as in a file ``KEY.pub``.

        Keys of other types, certificate authorities, and keys that are restricted to other namespaces or times are
        left out.

        Raises:
            StoreError: If the file cannot be read or a line is not in the format.
        """
        names: dict[bytes, str] = {}
        for number, line in enumerate(_read(path).splitlines(), 1):
            try:
                name, key = _parse(line.strip(), namespace)
            except ValueError as error:
                what, where = f"is not a line of trusted keys: {error}", f"{path}:{number}"
                hint = "write lines as in KEY.pub, or as in an allowed_signers file of OpenSSH"
                raise StoreError(what, code="store-signers", where=where, hint=hint) from error
            if key is not None:
                names.setdefault(key, name)
        return cls(names, namespace)

    def verify(self, key_id: bytes, signature: bytes, data: bytes) -> bool:
        """Return whether a trusted key has made a signature of these bytes."""
        with suppress(KeyError, InvalidSignature):
            Ed25519PublicKey.from_public_bytes(self._keys[key_id][-32:]).verify(signature, data)
            return True
        return False

    def signer_of(self, armored: bytes, message: bytes) -> str | None:
        """Return who has signed a message by ``ssh-keygen -Y sign``; None if that is nobody who is trusted."""
        match = _ARMOR.fullmatch(armored)
        with suppress(ValueError, InvalidSignature):
            data = base64.b64decode(b"".join(match[1].split()), validate=True) if match else b""
            key, namespace, reserved, algorithm, signature = _split(data.removeprefix(_HEAD))
            is_one = data.startswith(_HEAD) and algorithm in (b"sha256", b"sha512")
            if is_one and namespace == self._namespace and key in self._names:
                digest = hashlib.new(algorithm.decode(), message).digest()
                _verify(key, signature, b"SSHSIG" + b"".join(map(string, (namespace, reserved, algorithm, digest))))
                return self._names[key]
        return None


def _parse(line: bytes, namespace: str) -> tuple[str, bytes | None]:
    """Return the first name of a line of trusted keys, and its key if that counts for this namespace.

    Raises:
        ValueError: If it is malformed, or has an unknown option, which may be a restriction.
    """
    if not line or line.startswith(b"#"):
        return "", None
    words = _WORD.findall(line)
    place = next((i for i, word in enumerate(words[1:4]) if word.startswith(b"AAAA")), None)  # a key in base64
    if place is None:
        raise ValueError("expected the type of a key and the key")
    kind, key = words[place], base64.b64decode(words[place + 1], validate=True)
    counts = kind in _KINDS
    if counts:
        named, raw, *application = _split(key)
        if (named, len(raw), len(application)) != (kind, 32, _KINDS.index(kind)):
            raise ValueError("the key is malformed")
    for option in _OPTION.findall(words[1].decode() if place == 2 else ""):
        name, _, value = option.replace('"', "").partition("=")
        if name.lower() in ("valid-after", "valid-before"):
            form = "%Y%m%d%H%M%S"[: len(value.rstrip("Zz")) - 2] + "%z" * value.endswith(("Z", "z"))  # else local time
            counts &= (datetime.strptime(value.upper(), form).timestamp() <= time.time()) is (
                name.lower() == "valid-after"
            )
        elif name.lower() in ("cert-authority", "namespaces"):
            counts &= name.lower() == "namespaces" and namespace in value.split(",")
        else:
            raise ValueError(f"unknown option {name!r}")
    name = words[0 if place else -1].decode("utf-8", "surrogateescape").strip('"').split(",")[0]
    return name, key if counts else None


def _verify(key: bytes, signature: bytes, signed: bytes) -> None:
    """Check a signature by a key that is trusted.

    Raises:
        ValueError: If it is malformed, or of a hardware key that nobody has touched.
        InvalidSignature: If it is wrong.
    """
    kind, raw, *application = _split(key)
    if application:  # a hardware key signs flags and a counter too (PROTOCOL.u2f)
        signature, state = signature[:-5], signature[-5:]
        if not int.from_bytes(state[:1], "big") & _TOUCHED:
            raise ValueError("nobody has touched the key")
        signed = hashlib.sha256(application[0]).digest() + state + hashlib.sha256(signed).digest()
    form, value = _split(signature)
    if form != kind:
        raise ValueError("a signature of another kind of key")
    Ed25519PublicKey.from_public_bytes(raw).verify(value, signed)


def _split(data: bytes) -> list[bytes]:
    """Split strings, each after its length (RFC 4251, 5)."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        if len(data) < max(4, end):
            raise ValueError("truncated")
        found.append(data[4:end])
        data = data[end:]
    return found


def string(data: bytes) -> bytes:
    """Return bytes after their length."""
    return len(data).to_bytes(4, "big") + data


def _read(path: Path) -> bytes:
    try:
        with files.opened(path) as (file, _):
            return file.read(1 << 20)
    except (OSError, ValueError) as error:
        what = f"the keys cannot be read: {getattr(error, 'strerror', None) or error}"
        hint = "check the path and its permissions: JITLTO_STORE_KEY, JITLTO_STORE_SIGNERS or --signers names it"
        raise StoreError(what, code="store-unreadable-key", where=str(path), hint=hint) from error
