"""Ed25519 keys in OpenSSH's formats: what ``ssh-keygen -t ed25519`` writes, and ``allowed_signers`` files.

Only the lines' own words are read here; all of the cryptography is that of the package ``cryptography``.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base import files
from jitlto.base.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The namespace that a line of an allowed_signers file may restrict its key to.
NAMESPACE = "jitlto-store"
_TYPE = b"ssh-ed25519"
_MAKE = "make a key with `ssh-keygen -t ed25519 -N '' -f KEY`"
_LIST = "write lines as in KEY.pub, or as in an allowed_signers file of OpenSSH"


class SigningKey:
    """A private key that signs entries.

    Args:
        key: The private key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public = key.public_key().public_bytes_raw()
        #: The SHA-256 of the public key in OpenSSH's form, as in ``ssh-keygen -l``.
        self.id = _id_of(self._public)

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Load a private key without a passphrase.

        Raises:
            StoreError: If the file cannot be read, is not an Ed25519 key of OpenSSH or has a passphrase; or if the
                package cryptography is not installed.
        """
        text = _read(path, "the private key", "JITLTO_STORE_KEY")
        _ed25519(path)
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # 15 ms, and an extra
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        try:
            key = load_ssh_private_key(text, None)
        except Exception as error:
            what = f"cannot be used as a private key: {error}"
            raise StoreError(what, code="store-key", where=str(path), hint=_MAKE) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise StoreError("is not an Ed25519 key", code="store-key", where=str(path), hint=_MAKE)
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of bytes."""
        return self._key.sign(data)

    @property
    def public(self) -> TrustedKeys:
        """The public key alone, as the keys that are trusted."""
        return TrustedKeys([self._public])


class TrustedKeys:
    """Public keys whose signatures are trusted.

    Args:
        keys: Each of 32 bytes.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._raw = {_id_of(key): key for key in keys}
        self._loaded: dict[bytes, Ed25519PublicKey] = {}

    @classmethod
    def load(cls, path: Path) -> TrustedKeys:
        """Load the Ed25519 keys of a file: of OpenSSH's ``allowed_signers``, or lines as in a file ``KEY.pub``.

        Keys of other types, certificate authorities, and keys that are restricted to other namespaces or to another
        time than now are left out.

        Raises:
            StoreError: If the file cannot be read or a line is not in the format, or cryptography is not installed.
        """
        text = _read(path, "the list of trusted keys", "JITLTO_STORE_SIGNERS or --signers")
        _ed25519(path)
        keys = []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if line and not line.startswith(b"#"):
                try:
                    key = parse_line(line)
                except ValueError as error:
                    what, where = f"is not a line of trusted keys: {error}", f"{path}:{number}"
                    raise StoreError(what, code="store-signers", where=where, hint=_LIST) from error
                if key is not None:
                    keys.append(key)
        return cls(keys)

    def verify(self, key_id: bytes, signature: bytes, data: bytes) -> bool:
        """Return whether a trusted key has made a signature of these bytes."""
        from cryptography.exceptions import InvalidSignature  # loaded already: only with it keys are loaded

        public = self._loaded.get(key_id)
        if public is None:
            raw = self._raw.get(key_id)
            if raw is None:
                return False
            public = self._loaded[key_id] = _ed25519(None).from_public_bytes(raw)
        try:
            public.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    @property
    def ids(self) -> frozenset[bytes]:
        """The SHA-256 of each key in OpenSSH's form."""
        return frozenset(self._raw)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._raw

    def __len__(self) -> int:
        return len(self._raw)


def _read(path: Path, what: str, setting: str) -> bytes:
    try:
        with files.open_regular(path) as (file, _):
            return file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = f"{what} cannot be read: {getattr(error, 'strerror', None) or error}"
        hint = f"check the path and its permissions; {setting} names it"
        raise StoreError(reason, code="store-unreadable-key", where=str(path), hint=hint) from error


def _ed25519(path: Path | None) -> type[Ed25519PublicKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # 15 ms, and an extra
    except ImportError as error:
        what = "signed stores need the package cryptography, which is not installed"
        hint = "pip install 'jitlto[remote]'"
        raise StoreError(what, code="store-missing-package", where=str(path), hint=hint) from error
    return Ed25519PublicKey


def parse_line(line: bytes) -> bytes | None:
    """Return the Ed25519 key of a line, or None if the line is about something else.

    Raises:
        ValueError: If it is malformed.
    """
    words = _words(line)
    place = next((i for i, word in enumerate(words[1:4]) if word.startswith(b"AAAA")), None)  # as every key in base64
    if place is None:
        raise ValueError("expected the type of a key and the key")
    options = words[1] if place == 2 else b""
    if words[place] != _TYPE or not _applies(options):
        return None
    blob = base64.b64decode(words[place + 1], validate=True)
    raw = blob[-32:]
    if blob != _blob(raw):
        raise ValueError("the key is malformed")
    return raw


def _words(line: bytes) -> list[bytes]:
    """Split a line at white space outside of quotes."""
    words, quoted = [bytearray()], False
    for character in line:
        if character == ord('"'):
            quoted = not quoted
        if character in b" \t" and not quoted:
            words.append(bytearray())
        else:
            words[-1].append(character)
    return [bytes(word) for word in words if word]


def _applies(options: bytes) -> bool:
    """Return whether a key with such options may sign entries now.

    Raises:
        ValueError: If an option is unknown: it may be a restriction.
    """
    now = time.time()
    for option in filter(None, _split_options(options.decode())):
        name, _, value = option.partition("=")
        value = value.strip('"')
        match name.lower():
            case "cert-authority":
                return False
            case "namespaces":
                if NAMESPACE not in value.split(","):
                    return False
            case "valid-after":
                if now < _seconds(value):
                    return False
            case "valid-before":
                if now >= _seconds(value):
                    return False
            case _:
                raise ValueError(f"unknown option {name!r}")
    return True


def _split_options(text: str) -> list[str]:
    options, quoted = [""], False
    for character in text:
        if character == '"':
            quoted = not quoted
        if character == "," and not quoted:
            options.append("")
        else:
            options[-1] += character
    return options


def _seconds(text: str) -> float:
    """Return the time that OpenSSH writes as YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with Z for UTC."""
    digits = text.removesuffix("Z")
    formats = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
    if len(digits) not in formats or not digits.isdigit():
        raise ValueError(f"invalid time {text!r}")
    parsed = time.strptime(digits, formats[len(digits)])
    if text.endswith("Z"):
        import calendar  # needed for times in UTC alone

        return calendar.timegm(parsed)
    return time.mktime(parsed)


def _blob(raw: bytes) -> bytes:
    """Return a public key in OpenSSH's form (RFC 8709, 4): two strings, each after its length."""
    return len(_TYPE).to_bytes(4, "big") + _TYPE + len(raw).to_bytes(4, "big") + raw


def _id_of(raw: bytes) -> bytes:
    return hashlib.sha256(_blob(raw)).digest()
