"""What a process trusts in one store, and signs with: the settings, and the keys that they name."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.base.frozen import Frozen
from jitlto.stores.address import StoreAddress
from jitlto.stores.keys import SigningKey, TrustedKeys

#: What to do about a directory that everybody may write to.
OPEN_HINT = "set JITLTO_STORE_TRUST=signed, or =checksum if you trust them"


def directory_of(address: StoreAddress) -> Path:
    """Return the directory of a local store."""
    return Path(unquote(address.url.removeprefix("file://")))


def needs_signatures(trust: str, address: StoreAddress) -> bool:
    """Return whether only signed entries of a store are trusted, by ``JITLTO_STORE_TRUST`` or by default."""
    return trust == "signed" or (not trust and not address.is_local)


class Trust(Frozen):
    """What is trusted, and what signs.

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
        signed = needs_signatures(config.store_trust, address)
        is_implied = address.is_local and not config.store_trust
        directory = directory_of(address) if is_implied else None
        return cls(signed, config.store_signers, config.store_key, directory)

    @property
    def is_open_to_everybody(self) -> bool:
        """Whether the store is not read because everybody may write to it, and nobody has said that this is right."""
        return self.directory is not None and _everybody_may_write(self.directory)

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


def _everybody_may_write(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IWOTH)
    except OSError:  # it is not there yet, and will be this user's
        return False
