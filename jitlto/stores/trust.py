"""Who is trusted: lists of keys in OpenSSH's formats, and what the settings say of a store.

Only the lines of ``allowed_signers`` and ``KEY.pub`` (ssh-keygen(1)) are read here; :mod:`jitlto.stores.signatures`
verifies.
"""

from __future__ import annotations

import base64
import hashlib
import re
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jitlto.base import files
from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The namespace that a line of an allowed_signers file may restrict its key to, for entries of stores.
STORE_NAMESPACE = "jitlto-store"
_ED25519 = b"ssh-ed25519"
_PREFIX = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"  # of an Ed25519 public key in OpenSSH's form (RFC 8709, 4)
_WORD = re.compile(rb'(?:"[^"]*"|[^\s"])+')
_OPTION = re.compile(r'((?:"[^"]*"|[^,"])+)(?:,|$)')
_MAKE = "make a key with `ssh-keygen -t ed25519 -N '' -f KEY`"
_LIST = "write lines as in KEY.pub, or as in an allowed_signers file of OpenSSH"


def signatures() -> ModuleType:
    """Return the module that verifies.

    Raises:
        StoreError: If the package cryptography is not installed.
    """
    try:
        from jitlto.stores import signatures  # 15 ms, and an extra
    except ImportError as error:
        what, hint = "signatures need the package cryptography, which is not installed", "pip install 'jitlto[remote]'"
        raise StoreError(what, code="store-missing-package", hint=hint) from error
    return signatures


@dataclass(frozen=True, slots=True)
class Signer:
    """A line of trusted keys.

    Args:
        names: Patterns of names, separated by commas; empty in a line of ``KEY.pub``.
        type: The type of the key, such as ``ssh-ed25519``.
        key: The public key in OpenSSH's form.
        options: Values by name in lower case; those without a value have an empty one.
    """

    names: str
    type: bytes
    key: bytes
    options: Mapping[str, str]

    @classmethod
    def parse(cls, line: bytes) -> Signer:
        """Parse a line.

        Raises:
            ValueError: If it is malformed.
        """
        words = _WORD.findall(line)
        place = next((i for i, word in enumerate(words[1:4]) if word.startswith(b"AAAA")), None)  # a key in base64
        if place is None:
            raise ValueError("expected the type of a key and the key")
        options = {}
        for option in _OPTION.findall(words[1].decode() if place == 2 else ""):
            name, _, value = option.partition("=")
            options[name.lower()] = value.strip('"')
        names = words[0].decode("utf-8", "surrogateescape").strip('"') if place else ""
        key = base64.b64decode(words[place + 1], validate=True)
        if words[place] == _ED25519 and key != _PREFIX + key[-32:]:
            raise ValueError("the key is malformed")
        return cls(names, words[place], key, options)

    def may_sign(self, namespace: str) -> bool:
        """Return whether the key counts now, for signatures of this namespace.

        Raises:
            ValueError: If an option is unknown: it may be a restriction.
        """
        now, counts = time.time(), True
        for name, value in self.options.items():
            match name:
                case "cert-authority":
                    counts = False
                case "namespaces":
                    counts &= namespace in value.split(",")
                case "valid-after":
                    counts &= now >= _seconds(value)
                case "valid-before":
                    counts &= now < _seconds(value)
                case _:
                    raise ValueError(f"unknown option {name!r}")
        return counts

    def name_of(self, wanted: str | None) -> str | None:
        """Return the name of the signer if the line names it, or any name of the line; None if there is none."""
        patterns = self.names.split(",")
        allowed = [pattern for pattern in patterns if pattern and not pattern.startswith("!")]
        refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        for name in allowed if wanted is None else [wanted]:
            if any(_matches(name, each) for each in allowed) and not any(_matches(name, each) for each in refused):
                return name
        return None


def _matches(name: str, pattern: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, re.DOTALL))


def _seconds(text: str) -> float:
    """Return the time that OpenSSH writes as YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with Z for UTC."""
    digits = text.removesuffix("Z")
    formats = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
    if len(digits) not in formats or not digits.isdigit():
        raise ValueError(f"invalid time {text!r}")
    parsed = datetime.strptime(digits, formats[len(digits)])
    return (parsed.replace(tzinfo=UTC) if text.endswith("Z") else parsed).timestamp()


def lines_of(text: bytes) -> list[tuple[int, bytes]]:
    """Return the lines of a file of trusted keys with their numbers, without empty ones and comments."""
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line and not line.startswith(b"#")]


# Keys of stores


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
        try:
            return cls(signatures().load_private_key(text))
        except ValueError as error:
            raise StoreError(str(error), code="store-key", where=str(path), hint=_MAKE) from error

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
        self._keys = {_id_of(key): key for key in keys}
        self._is_signed = signatures().is_signed

    @classmethod
    def load(cls, path: Path) -> TrustedKeys:
        """Load the Ed25519 keys of a file: of OpenSSH's ``allowed_signers``, or lines as in a file ``KEY.pub``.

        Keys of other types, certificate authorities, and keys that are restricted to other namespaces or to another
        time than now are left out.

        Raises:
            StoreError: If the file cannot be read or a line is not in the format, or cryptography is not installed.
        """
        keys = []
        for number, line in lines_of(_read(path, "the list of trusted keys", "JITLTO_STORE_SIGNERS or --signers")):
            try:
                signer = Signer.parse(line)
                if signer.type == _ED25519 and signer.may_sign(STORE_NAMESPACE):
                    keys.append(signer.key[-32:])
            except ValueError as error:
                what, where = f"is not a line of trusted keys: {error}", f"{path}:{number}"
                raise StoreError(what, code="store-signers", where=where, hint=_LIST) from error
        return cls(keys)

    def verify(self, key_id: bytes, signature: bytes, data: bytes) -> bool:
        """Return whether a trusted key has made a signature of these bytes."""
        public = self._keys.get(key_id)
        return public is not None and bool(self._is_signed(public, signature, data))

    @property
    def ids(self) -> frozenset[bytes]:
        """The SHA-256 of each key in OpenSSH's form."""
        return frozenset(self._keys)


def _id_of(raw: bytes) -> bytes:
    return hashlib.sha256(_PREFIX + raw).digest()


def _read(path: Path, what: str, setting: str) -> bytes:
    try:
        with files.open_regular(path) as (file, _):
            return file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = f"{what} cannot be read: {getattr(error, 'strerror', None) or error}"
        hint = f"check the path and its permissions; {setting} names it"
        raise StoreError(reason, code="store-unreadable-key", where=str(path), hint=hint) from error


# What the settings say of a store


@dataclass(frozen=True, slots=True)
class Trust:
    """What is trusted in a store, and what signs.

    Args:
        signed: Whether only signed entries are trusted.
        signers: The file of trusted keys.
        key: The file of the private key.
        directory: The store, if it is one that is trusted because nobody has said otherwise.
    """

    signed: bool
    signers: Path | None = None
    key: Path | None = None
    directory: Path | None = None

    @classmethod
    def of(cls, config: Config, address: StoreAddress) -> Trust:
        """Return what the settings say for a store: by default, a directory needs no signatures."""
        is_implied = address.is_local and not config.store_trust
        signed = config.store_trust == "signed" or (not config.store_trust and not address.is_local)
        return cls(signed, config.store_signers, config.store_key, directory_of(address) if is_implied else None)

    def load_trusted(self) -> TrustedKeys | None:
        """Return the keys of which one has to have signed an entry; None if its checksum is enough.

        Raises:
            StoreError: If nothing can be trusted.
        """
        if not self.signed:
            if self.directory is not None and _everybody_may_write(self.directory):
                hint = "set JITLTO_STORE_TRUST=signed, or =checksum if you trust them"
                raise StoreError("everybody may write to it", code="store-signers", hint=hint)
            return None
        if self.signers is None:
            hint = "set JITLTO_STORE_SIGNERS to a file of public keys"
            raise StoreError("no keys are trusted", code="store-signers", hint=hint)
        trusted = TrustedKeys.load(self.signers)
        if not trusted.ids:
            what = "lists no Ed25519 key that may sign entries now"
            raise StoreError(what, code="store-signers", where=str(self.signers), hint=_LIST)
        return trusted

    def load_signing_key(self) -> SigningKey | None:
        """Return the key that signs, if there is one.

        Raises:
            StoreError: If nothing can be written.
        """
        if self.key is not None:
            return SigningKey.load(self.key)
        if self.signed:
            hint = "set JITLTO_STORE_KEY to the private key that signs, or add #read to the store's URL"
            raise StoreError("there is no key to sign with", code="store-key", hint=hint)
        return None


def directory_of(address: StoreAddress) -> Path:
    """Return the directory of a local store."""
    return Path(unquote(address.url.removeprefix("file://")))


def _everybody_may_write(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IWOTH)
    except OSError:  # it is not there yet, and will be this user's
        return False
