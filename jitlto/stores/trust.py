"""What the settings say of a store: who is trusted, and what signs."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress

if TYPE_CHECKING:
    from jitlto.stores.signatures import SigningKey, TrustedKeys


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


def is_signed(settings: Config, address: StoreAddress) -> bool:
    """Return whether only signed entries of a store are trusted: by default, a directory needs no signatures."""
    return settings.store_trust == "signed" or not (settings.store_trust or address.directory)


def load_trusted(settings: Config, address: StoreAddress) -> TrustedKeys | None:
    """Return the keys of which one has to have signed an entry; None if its checksum is enough.

    Raises:
        StoreError: If nothing can be trusted.
    """
    if is_signed(settings, address):
        return load_signers(settings.store_signers)
    with suppress(OSError):  # it is not there yet, and will be this user's
        implied = None if settings.store_trust else address.directory
        if implied and implied.stat().st_mode & stat.S_IWOTH:
            hint = "set JITLTO_STORE_TRUST=signed, or =checksum if you trust them"
            raise StoreError("everybody may write to it", code="store-signers", hint=hint)
    return None


def load_signers(path: Path | None) -> TrustedKeys:
    """Return the keys of a file.

    Raises:
        StoreError: If it cannot be read, or has no key that may sign entries now.
    """
    trusted: TrustedKeys | None = signatures().TrustedKeys.load(path) if path else None
    if trusted is None or not trusted.ids:
        what = "no Ed25519 key is trusted that may sign entries now"
        hint = "set JITLTO_STORE_SIGNERS to a file of public keys, with lines as in KEY.pub"
        raise StoreError(what, code="store-signers", where=str(path or ""), hint=hint)
    return trusted


def load_signing_key(settings: Config, address: StoreAddress) -> SigningKey | None:
    """Return the key that signs, if there is one.

    Raises:
        StoreError: If nothing can be written.
    """
    if settings.store_key is not None:
        key: SigningKey = signatures().SigningKey.load(settings.store_key)
        return key
    if is_signed(settings, address):
        hint = "set JITLTO_STORE_KEY to the private key that signs, or add #read to the store's URL"
        raise StoreError("there is no key to sign with", code="store-key", hint=hint)
    return None
