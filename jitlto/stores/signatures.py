"""Signatures by the package cryptography: of entries of stores, and those of ``ssh-keygen -Y sign`` (PROTOCOL.sshsig).

Imported where signatures count, since the package is an extra and takes 15 ms.
"""

from __future__ import annotations

import base64
import hashlib
import re

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

_ARMOR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\r?\n(.*)-----END SSH SIGNATURE-----\s*", re.DOTALL)
_LEAST_RSA = 2048  # bits
_TOUCHED = 1  # the flag of a hardware key that a person has touched


def load_private_key(text: bytes) -> ed25519.Ed25519PrivateKey:
    """Load an Ed25519 private key without a passphrase, as ``ssh-keygen -t ed25519`` writes it.

    Raises:
        ValueError: If it is something else.
    """
    try:
        key = load_ssh_private_key(text, None)
    except Exception as error:
        raise ValueError(f"cannot be used as a private key: {error}") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError("is not an Ed25519 key")
    return key


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether an Ed25519 public key of 32 bytes verifies a signature."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def signer_of(armored: bytes, message: bytes, namespace: str) -> bytes:
    """Return the public key, in OpenSSH's form, that has made a signature of a message.

    Raises:
        ValueError: If it is not a good signature of this message and namespace.
    """
    match = _ARMOR.fullmatch(armored)
    data = base64.b64decode(b"".join(match[1].split()), validate=True) if match else b""
    if not data.startswith(b"SSHSIG\0\0\0\1"):
        raise ValueError("not a signature of OpenSSH")
    (key, space, reserved, algorithm, signature), rest = split_strings(data[10:], 5)
    if rest or space != namespace.encode() or algorithm not in (b"sha256", b"sha512"):
        raise ValueError("a signature for something else")
    digest = hashlib.new(algorithm.decode(), message).digest()
    try:
        _verify(key, signature, b"SSHSIG" + b"".join(map(string, (space, reserved, algorithm, digest))))
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise ValueError("a wrong signature") from error
    return key


def _verify(key: bytes, signature: bytes, signed: bytes) -> None:
    (kind,), rest_of_key = split_strings(key, 1)
    (form, value), rest = split_strings(signature, 2)
    public = load_ssh_public_key(kind + b" " + base64.b64encode(key))
    if kind.startswith(b"sk-"):  # a hardware key signs flags and a counter too (PROTOCOL.u2f)
        fields, _ = split_strings(rest_of_key, 3 if b"ecdsa" in kind else 2)
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
            (r, s), _ = split_strings(value, 2)
            by_size = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
            der = utils.encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
            public.verify(der, signed, ec.ECDSA(by_size[public.curve.key_size]))
        case _:
            raise ValueError("a weak signature, or of another kind of key")


def split_strings(data: bytes, count: int) -> tuple[list[bytes], bytes]:
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
