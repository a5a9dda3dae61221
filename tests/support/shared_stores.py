"""Shared stores for tests: keys, settings, and entries that are wrong in every way that attackers can make them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from jitlto.base.config import Config
from jitlto.link.sources import open_shared
from jitlto.stores import entry, shared
from jitlto.stores.shared import SharedStore
from jitlto.stores.signatures import SigningKey, TrustedKeys
from tests.support.stores import write_key


@dataclass(frozen=True)
class KeyPair:
    """A private key on disk, as ``ssh-keygen -t ed25519`` writes it, and its public line."""

    path: Path
    public: str

    @classmethod
    def create(cls, path: Path) -> KeyPair:
        """Make a key."""
        write_key(path)
        return cls(path, path.with_name(f"{path.name}.pub").read_text().strip())

    @property
    def signing(self) -> SigningKey:
        """The key as writers use it."""
        return SigningKey.load(self.path)


def trust(path: Path, *keys: KeyPair) -> Path:
    """Write the file of trusted keys."""
    path.write_text("".join(f"writer{number}@example.org {key.public}\n" for number, key in enumerate(keys)))
    return path


def trusted(path: Path, *keys: KeyPair) -> TrustedKeys:
    """The keys as readers use them."""
    return TrustedKeys.load(trust(path, *keys))


@contextmanager
def opened(variables: dict[str, str]) -> Iterator[SharedStore]:
    """The stores of a process with these variables; written out at the end."""
    patient = {"JITLTO_STORE_PATIENCE": "10"} | variables
    shared.store_of.cache_clear()
    with patch.dict(os.environ, patient):
        stores = open_shared(Config.read(os.environ))
        assert stores is not None
        stores.open_soon()
        yield stores
        stores.flush(10)


def signed(signers: Path, key: KeyPair | None = None, patience: float | None = None) -> dict[str, str]:
    """The settings of a reader, and of a writer if it has a key."""
    found = {"JITLTO_STORE_TRUST": "signed", "JITLTO_STORE_SIGNERS": str(signers)}
    if key is not None:
        found["JITLTO_STORE_KEY"] = str(key.path)
    if patience is not None:
        found["JITLTO_STORE_PATIENCE"] = str(patience)
    return found


@dataclass(frozen=True)
class Object:
    """What a store may hold: the kind, key and payload of an entry."""

    kind: str
    key: str
    payload: bytes

    @property
    def name(self) -> str:
        """The name of its object."""
        return f"v1/{self.kind}/{self.key[:2]}/{self.key[2:]}"


class WrongReplies:
    """Replies for one object that must never be taken for it."""

    def __init__(self, chance: random.Random, ours: KeyPair, stranger: KeyPair, others: list[Object]) -> None:
        self._chance = chance
        self._ours, self._stranger = ours.signing, stranger.signing
        self._others = others
        self.ways = [
            self.tampered, self.truncated, self.extended, self.swapped, self.replayed, self.unsigned,
            self.foreign, self.spliced, self.noise, self.forged,
        ]  # fmt: skip

    def entry(self, wanted: Object) -> bytes:
        """The right reply."""
        return entry.encode(wanted.kind, wanted.key, wanted.payload, self._ours)

    def tampered(self, wanted: Object) -> bytes:
        """Up to eight bits are others, anywhere."""
        data = bytearray(self.entry(wanted))
        for place in self._chance.sample(range(len(data) * 8), self._chance.randint(1, 8)):
            data[place // 8] ^= 1 << place % 8
        return bytes(data)

    def truncated(self, wanted: Object) -> bytes:
        """The beginning."""
        data = self.entry(wanted)
        return data[: self._chance.randrange(len(data))]

    def extended(self, wanted: Object) -> bytes:
        """Followed by something, or twice."""
        data = self.entry(wanted)
        return data + self._chance.choice([b"\0", b"\n", data, self._chance.randbytes(100)])

    def swapped(self, wanted: Object) -> bytes:
        """A valid entry of another key or kind."""
        return self.entry(self._chance.choice(self._others))

    def replayed(self, wanted: Object) -> bytes:
        """An entry of this key, but of another kind: what was written once, under another name."""
        kind = self._chance.choice([kind for kind in ("kernels", "compiled", "headers") if kind != wanted.kind])
        return entry.encode(kind, wanted.key, wanted.payload, self._ours)

    def unsigned(self, wanted: Object) -> bytes:
        """Right but for the signature, which is missing."""
        return entry.encode(wanted.kind, wanted.key, b"chosen by an attacker", None)

    def foreign(self, wanted: Object) -> bytes:
        """Signed by somebody whom nobody trusts."""
        return entry.encode(wanted.kind, wanted.key, b"chosen by an attacker", self._stranger)

    def spliced(self, wanted: Object) -> bytes:
        """The head of the right entry before the payload of another one."""
        other = self._chance.choice(self._others)
        data = self.entry(wanted)
        return data[: len(data) - len(wanted.payload)] + other.payload

    def noise(self, _: Object) -> bytes:
        """No entry at all."""
        return self._chance.choice([b"", b"\0" * 1000, self._chance.randbytes(300)])

    def forged(self, wanted: Object) -> bytes:
        """Unsigned by the attacker, with the head of a genuine entry in part."""
        fake, real = self.unsigned(wanted), self.entry(wanted)
        cut = self._chance.randrange(len(fake))
        return real[:cut] + fake[cut:]
