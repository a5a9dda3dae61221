"""Keys in OpenSSH's formats, by the package cryptography: who is trusted, and what a key has signed.

The one reader of lines of ``allowed_signers`` and ``KEY.pub`` (ssh-keygen(1)), and of signatures of ``ssh-keygen -Y
sign`` (PROTOCOL.sshsig). Imported where signatures count, since the package is an extra and takes 15 ms.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from jitlto.base import files
from jitlto.base.errors import StoreError

#: The namespace that a line of an allowed_signers file may restrict its key to, for entries of stores.
STORE_NAMESPACE = "jitlto-store"
_ED25519 = b"ssh-ed25519"
_PREFIX = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"  # of an Ed25519 public key in OpenSSH's form (RFC 8709, 4)
_WORD = re.compile(rb'(?:"[^"]*"|[^\s"])+')
_OPTION = re.compile(r'((?:"[^"]*"|[^,"])+)(?:,|$)')
_ARMOR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\r?\n(.*)-----END SSH SIGNATURE-----\s*", re.DOTALL)
_LEAST_RSA = 2048  # bits
_TOUCHED = 1  # the flag of a hardware key that a person has touched


def parse_signer(line: bytes, namespace: str) -> tuple[list[str], bytes | None]:
    """Parse a line of trusted keys.

    Returns:
        names: Those of the signer; none in a line of ``KEY.pub``. Patterns are names like any other.
        key: The public key in OpenSSH's form; None if it does not count for signatures of this namespace.

    Raises:
        ValueError: If it is malformed, or has an unknown option, which may be a restriction.
    """
    words = _WORD.findall(line)
    place = next((i for i, word in enumerate(words[1:4]) if word.startswith(b"AAAA")), None)  # a key in base64
    if place is None:
        raise ValueError("expected the type of a key and the key")
    names = words[0].decode("utf-8", "surrogateescape").strip('"').split(",") if place else []
    key = base64.b64decode(words[place + 1], validate=True)
    if words[place] == _ED25519 and key != _PREFIX + key[-32:]:
        raise ValueError("the key is malformed")
    counts = True
    for option in _OPTION.findall(words[1].decode() if place == 2 else ""):
        name, _, value = option.replace('"', "").partition("=")
        if name.lower() not in ("cert-authority", "namespaces"):
            raise ValueError(f"unknown option {name!r}")
        counts &= name.lower() == "namespaces" and namespace in value.split(",")
    return list(filter(None, names)), key if counts else None


def _lines_of(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file of trusted keys with their numbers, without empty ones and comments."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith(b"#"):
            yield number, line.strip()


# Signatures of files


def find_signer(armored: bytes, message: bytes, namespace: str, trusted: bytes) -> str | None:
    """Return the name of who has signed a message; None if that is nobody who is trusted.

    Args:
        armored: The signature, as ``ssh-keygen -Y sign`` makes it.
        message: What is signed.
        namespace: What signatures are for.
        trusted: Lines of ``allowed_signers``.
    """
    signer = b""
    with suppress(ValueError):
        signer = signer_of(armored, message, namespace)
    for _, line in _lines_of(trusted):
        with suppress(ValueError):  # a line that cannot be read, or has an unknown restriction, trusts nobody
            names, key = parse_signer(line, namespace)
            if key == signer and names:
                return names[0]
    return None


def signer_of(armored: bytes, message: bytes, namespace: str) -> bytes:
    """Return the public key, in OpenSSH's form, that has made a signature of a message.

    Raises:
        ValueError: If it is not a good signature of this message and namespace.
    """
    match = _ARMOR.fullmatch(armored)
    data = base64.b64decode(b"".join(match[1].split()), validate=True) if match else b""
    if not data.startswith(b"SSHSIG\0\0\0\1"):
        raise ValueError("not a signature of OpenSSH")
    (key, space, reserved, algorithm, signature), rest = _split_strings(data[10:], 5)
    if rest or space != namespace.encode() or algorithm not in (b"sha256", b"sha512"):
        raise ValueError("a signature for something else")
    digest = hashlib.new(algorithm.decode(), message).digest()
    try:
        _verify(key, signature, b"SSHSIG" + b"".join(map(string, (space, reserved, algorithm, digest))))
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise ValueError("a wrong signature") from error
    return key


def _verify(key: bytes, signature: bytes, signed: bytes) -> None:
    (kind,), rest_of_key = _split_strings(key, 1)
    (form, value), rest = _split_strings(signature, 2)
    public = load_ssh_public_key(kind + b" " + base64.b64encode(key))
    if kind.startswith(b"sk-"):  # a hardware key signs flags and a counter too (PROTOCOL.u2f)
        fields, _ = _split_strings(rest_of_key, 3 if b"ecdsa" in kind else 2)
        if len(rest) != 5 or not rest[0] & _TOUCHED:
            raise ValueError("a signature of a hardware key that nobody has touched")
        signed = hashlib.sha256(fields[-1]).digest() + rest + hashlib.sha256(signed).digest()
    elif rest:
        raise ValueError("not a signature of OpenSSH")
    match public:
        case rsa.RSAPublicKey() if form in (b"rsa-sha2-256", b"rsa-sha2-512") and public.key_size >= _LEAST_RSA:
            hash_of_form = hashes.SHA256() if form == b"rsa-sha2-256" else hashes.SHA512()
            public.verify(value, signed, padding.PKCS1v15(), hash_of_form)
        case ed25519.Ed25519PublicKey() if form == kind:
            public.verify(value, signed)
        case ec.EllipticCurvePublicKey() if form == kind:
            (r, s), _ = _split_strings(value, 2)
            by_size = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
            der = utils.encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
            public.verify(der, signed, ec.ECDSA(by_size[public.curve.key_size]))
        case _:
            raise ValueError("a weak signature, or of another kind of key")


def _split_strings(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    """Split off strings, each after its length (RFC 4251, 5); return them and the rest."""
    found = []
    for _ in range(count):
        end = 4 + int.from_bytes(data[:4], "big")
        if len(data) < max(4, end):
            raise ValueError("truncated")
        found.append(data[4:end])
        data = data[end:]
    return found, data


def string(data: bytes) -> bytes:
    """Return bytes after their length."""
    return len(data).to_bytes(4, "big") + data


# Signatures of entries


class SigningKey:
    """A private key that signs entries.

    Args:
        key: The private key.
    """

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key
        self._public = key.public_key().public_bytes_raw()
        #: The SHA-256 of the public key in OpenSSH's form, as in ``ssh-keygen -l``.
        self.id = _id_of(self._public)

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Load a private key without a passphrase, as ``ssh-keygen -t ed25519`` writes it.

        Raises:
            StoreError: If the file cannot be read, is not an Ed25519 key of OpenSSH or has a passphrase.
        """
        text, reason = _read(path), "of another type"
        try:
            key = load_ssh_private_key(text, None)
            if isinstance(key, ed25519.Ed25519PrivateKey):
                return cls(key)
        except Exception as error:  # noqa: BLE001 - what cryptography raises for any text is not listed
            reason = str(error)
        what, hint = f"is not an Ed25519 private key: {reason}", "`ssh-keygen -t ed25519 -N '' -f KEY` makes one"
        raise StoreError(what, code="store-key", where=str(path), hint=hint)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of bytes."""
        return self._key.sign(data)

    @property
    def public(self) -> TrustedKeys:
        """The public key alone, as the keys that are trusted."""
        return TrustedKeys([self._public])


class TrustedKeys:
    """Ed25519 public keys whose signatures of entries are trusted.

    Args:
        keys: Each of 32 bytes.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {_id_of(key): ed25519.Ed25519PublicKey.from_public_bytes(key) for key in keys}

    @classmethod
    def load(cls, path: Path) -> TrustedKeys:
        """Load the Ed25519 keys of a file: of OpenSSH's ``allowed_signers``, or lines as in a file ``KEY.pub``.

        Keys of other types, certificate authorities, and keys that are restricted to other namespaces are left out.

        Raises:
            StoreError: If the file cannot be read or a line is not in the format.
        """
        keys = []
        for number, line in _lines_of(_read(path)):
            try:
                _, key = parse_signer(line, STORE_NAMESPACE)
                if key and key.startswith(_PREFIX):
                    keys.append(key[-32:])
            except ValueError as error:
                what, where = f"is not a line of trusted keys: {error}", f"{path}:{number}"
                hint = "write lines as in KEY.pub, or as in an allowed_signers file of OpenSSH"
                raise StoreError(what, code="store-signers", where=where, hint=hint) from error
        return cls(keys)

    def verify(self, key_id: bytes, signature: bytes, data: bytes) -> bool:
        """Return whether a trusted key has made a signature of these bytes."""
        with suppress(KeyError, InvalidSignature):
            self._keys[key_id].verify(signature, data)
            return True
        return False

    @property
    def ids(self) -> frozenset[bytes]:
        """The SHA-256 of each key in OpenSSH's form."""
        return frozenset(self._keys)


def _id_of(raw: bytes) -> bytes:
    return hashlib.sha256(_PREFIX + raw).digest()


def _read(path: Path) -> bytes:
    try:
        with files.open_regular(path) as (file, _):
            return file.read(1 << 20)
    except (OSError, ValueError) as error:
        what = f"the keys cannot be read: {getattr(error, 'strerror', None) or error}"
        hint = "check the path and its permissions: JITLTO_STORE_KEY, JITLTO_STORE_SIGNERS or --signers names it"
        raise StoreError(what, code="store-unreadable-key", where=str(path), hint=hint) from error
