"""Shared stores for tests: of a directory, and keys to sign with."""

from pathlib import Path

from jitlto.base.config import Config
from jitlto.stores.shared import SharedStore
from jitlto.stores.signatures import SigningKey, TrustedKeys

#: A key in the form of the cache's: 64 hexadecimal digits.
KEY = "0123456789abcdef" * 4


def new_key() -> SigningKey:
    """A new private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.generate())


def public_of(key: SigningKey) -> TrustedKeys:
    """The key's public half, as the keys that are trusted."""
    return TrustedKeys({key.public: "somebody"})


def write_key(path: Path, comment: str = "somebody@example.org") -> Path:
    """Write a new key pair as ssh-keygen does: PATH and PATH.pub."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + f" {comment}\n".encode())
    return path


def directory_store(directory: Path, patience: float = 5.0) -> SharedStore:
    """A process's store: a directory, unsigned, and patience for a busy machine."""
    return SharedStore(config(**{"": f"file://{directory}"}), patience)


def config(**variables: object) -> Config:
    """Settings from ``JITLTO_STORE...`` variables, named without that prefix and in lower case."""
    return Config.read(
        {f"JITLTO_STORE_{name.upper()}".removesuffix("_"): str(text) for name, text in variables.items()}
    )
