"""What the settings say of a store: who is trusted, and what signs."""

from __future__ import annotations

import stat
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Trust:
    """What is trusted in a store, and what signs."""

    signed: bool  # whether only signed entries are trusted
    signers: Path | None = None  # the file of trusted keys
    key: Path | None = None  # the file of the private key
    directory: Path | None = None  # the store, if it is one that is trusted because nobody has said otherwise

    @classmethod
    def of(cls, config: Config, address: StoreAddress) -> Trust:
        """Return what the settings say for a store: by default, a directory needs no signatures."""
        implied = None if config.store_trust else address.directory
        signed = config.store_trust == "signed" or (not config.store_trust and implied is None)
        return cls(signed, config.store_signers, config.store_key, implied)

    def load_trusted(self) -> TrustedKeys | None:
        """Return the keys of which one has to have signed an entry; None if its checksum is enough.

        Raises:
            StoreError: If nothing can be trusted.
        """
        if not self.signed:
            with suppress(OSError):  # it is not there yet, and will be this user's
                if self.directory and self.directory.stat().st_mode & stat.S_IWOTH:
                    hint = "set JITLTO_STORE_TRUST=signed, or =checksum if you trust them"
                    raise StoreError("everybody may write to it", code="store-signers", hint=hint)
            return None
        trusted: TrustedKeys | None = signatures().TrustedKeys.load(self.signers) if self.signers else None
        if trusted is None or not trusted.ids:
            what = "no Ed25519 key is trusted that may sign entries now"
            hint = "set JITLTO_STORE_SIGNERS to a file of public keys, with lines as in KEY.pub"
            raise StoreError(what, code="store-signers", where=str(self.signers or ""), hint=hint)
        return trusted

    def load_signing_key(self) -> SigningKey | None:
        """Return the key that signs, if there is one.

        Raises:
            StoreError: If nothing can be written.
        """
        if self.key is not None:
            key: SigningKey = signatures().SigningKey.load(self.key)
            return key
        if self.signed:
            hint = "set JITLTO_STORE_KEY to the private key that signs, or add #read to the store's URL"
            raise StoreError("there is no key to sign with", code="store-key", hint=hint)
        return None
