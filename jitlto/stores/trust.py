"""Who is trusted: keys and signatures in OpenSSH's formats, and what the settings say of a store.

All of the cryptography is that of the package ``cryptography``; only the formats are read here: files of
``allowed_signers`` and ``KEY.pub`` (ssh-keygen(1)), and the signatures of ``ssh-keygen -Y sign`` (PROTOCOL.sshsig).
"""

from __future__ import annotations

import base64
import hashlib
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jitlto.base import files
from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The namespace that a line of an allowed_signers file may restrict its key to, for entries of stores.
STORE_NAMESPACE = "jitlto-store"
#: What to do about a directory that everybody may write to.
OPEN_HINT = "set JITLTO_STORE_TRUST=signed, or =checksum if you trust them"
_ED25519 = b"ssh-ed25519"
_LEAST_RSA = 2048  # bits
_TOUCHED = 1  # the flag of a hardware key that a person has touched
_WORD = re.compile(rb'(?:"[^"]*"|[^\s"])+')
_OPTION = re.compile(r'((?:"[^"]*"|[^,"])+)(?:,|$)')
_ARMOR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\r?\n(.*)-----END SSH SIGNATURE-----\s*", re.DOTALL)
_MAKE = "make a key with `ssh-keygen -t ed25519 -N '' -f KEY`"
_LIST = "write lines as in KEY.pub, or as in an allowed_signers file of OpenSSH"


# Lists of trusted keys


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
        if words[place] == _ED25519 and key != _blob(key[-32:]):
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
    parsed = time.strptime(digits, formats[len(digits)])
    if text.endswith("Z"):
        import calendar  # needed for times in UTC alone

        return calendar.timegm(parsed)
    return time.mktime(parsed)


def lines_of(text: bytes) -> list[tuple[int, bytes]]:
    """Return the lines of a file of trusted keys with their numbers, without empty ones and comments."""
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line and not line.startswith(b"#")]


# Signatures of ``ssh-keygen -Y sign``


def signer_of(armored: bytes, message: bytes, namespace: str) -> bytes:
    """Return the public key, in OpenSSH's form, that has made a signature of a message.

    Raises:
        ValueError: If it is not a good signature of this message and namespace.
        ImportError: If the package cryptography is not installed.
    """
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    match = _ARMOR.fullmatch(armored)
    data = base64.b64decode(b"".join(match[1].split()), validate=True) if match else b""
    if not data.startswith(b"SSHSIG\0\0\0\1"):
        raise ValueError("not a signature of OpenSSH")
    (key, space, reserved, algorithm, signature), rest = _strings(data[10:], 5)
    if rest or space != namespace.encode() or algorithm not in (b"sha256", b"sha512"):
        raise ValueError("a signature for something else")
    digest = hashlib.new(algorithm.decode(), message).digest()
    try:
        _verify(key, signature, b"SSHSIG" + b"".join(map(_string, (space, reserved, algorithm, digest))))
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise ValueError("a wrong signature") from error
    return key


def _verify(key: bytes, signature: bytes, signed: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    (kind,), rest_of_key = _strings(key, 1)
    (form, value), rest = _strings(signature, 2)
    public = load_ssh_public_key(kind + b" " + base64.b64encode(key))
    if kind.startswith(b"sk-"):  # a hardware key signs flags and a counter too (PROTOCOL.u2f)
        fields, _ = _strings(rest_of_key, 3 if b"ecdsa" in kind else 2)
        if len(rest) != 5 or not rest[0] & _TOUCHED:
            raise ValueError("a signature of a hardware key that nobody has touched")
        signed = hashlib.sha256(fields[-1]).digest() + rest + hashlib.sha256(signed).digest()
    elif rest:
        raise ValueError("not a signature of OpenSSH")
    if isinstance(public, rsa.RSAPublicKey):
        by_form: dict[bytes, hashes.HashAlgorithm] = {
            b"rsa-sha2-256": hashes.SHA256(),
            b"rsa-sha2-512": hashes.SHA512(),
        }
        if form not in by_form or public.key_size < _LEAST_RSA:
            raise ValueError("a weak signature")
        public.verify(value, signed, padding.PKCS1v15(), by_form[form])
    elif form != kind:
        raise ValueError("a signature of another kind of key")
    elif isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(value, signed)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        (r, s), _ = _strings(value, 2)
        by_size = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
        der = utils.encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
        public.verify(der, signed, ec.ECDSA(by_size[public.curve.key_size]))
    else:
        raise ValueError("an unknown kind of key")


def _strings(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    """Split off strings, each after its length (RFC 4251, 5); return them and the rest."""
    found = []
    for _ in range(count):
        end = 4 + int.from_bytes(data[:4], "big")
        if len(data) < max(4, end):
            raise ValueError("truncated")
        found.append(data[4:end])
        data = data[end:]
    return found, data


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _blob(raw: bytes) -> bytes:
    """Return an Ed25519 public key in OpenSSH's form (RFC 8709, 4)."""
    return _string(_ED25519) + _string(raw)


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
    """Ed25519 public keys whose signatures of entries are trusted.

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
        for number, line in lines_of(text):
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


def _id_of(raw: bytes) -> bytes:
    return hashlib.sha256(_blob(raw)).digest()


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


# What the settings say of a store


def directory_of(address: StoreAddress) -> Path:
    """Return the directory of a local store."""
    return Path(unquote(address.url.removeprefix("file://")))


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
        directory = directory_of(address) if is_implied else None
        return cls(signed, config.store_signers, config.store_key, directory)

    @property
    def is_open_to_everybody(self) -> bool:
        """Whether the store is not read because everybody may write to it, and nobody has said that this is right."""
        try:
            return self.directory is not None and bool(self.directory.stat().st_mode & stat.S_IWOTH)
        except OSError:  # it is not there yet, and will be this user's
            return False

    def load_trusted(self, say: Callable[[str], None]) -> tuple[bool, TrustedKeys | None]:
        """Return whether anything can be trusted, and the keys of which one has to have signed it, if one has to."""
        if not self.signed:
            if self.is_open_to_everybody:
                say(f"everybody may write to it; {OPEN_HINT}")
                return False, None
            return True, None
        if self.signers is None:
            say("no keys are trusted; set JITLTO_STORE_SIGNERS to a file of public keys")
            return False, None
        try:
            trusted = TrustedKeys.load(self.signers)
        except StoreError as error:
            say(str(error))
            return False, None
        if not trusted:
            say(f"{self.signers} lists no Ed25519 key that may sign entries now")
        return bool(trusted), trusted

    def load_signing_key(self, say: Callable[[str], None]) -> tuple[bool, SigningKey | None]:
        """Return whether anything can be written, and the key that signs it, if there is one."""
        if self.key is None:
            if self.signed:
                say("set JITLTO_STORE_KEY to the private key that signs, or add #read to the store's URL")
            return not self.signed, None
        try:
            return True, SigningKey.load(self.key)
        except StoreError as error:
            say(str(error))
            return False, None
