"""What a store needs before it can be used, in the order in which its users wait for it: obstore and keys.

Readers wait for obstore and the keys that they trust. The private key, which takes as long to load as both, is loaded
after that: only writers wait for it.
"""

from __future__ import annotations

import threading
from functools import partial

from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.keys import SigningKey, TrustedKeys
from jitlto.stores.messages import Messages
from jitlto.stores.trust import Trust


class Opening:
    """A store's backend and keys, once they are loaded.

    Args:
        address: The store.
        trust: What is trusted, and what signs.
        timeout: Seconds that a request may take.
        messages: What is said about the store.
    """

    def __init__(
        self,
        address: StoreAddress,
        trust: Trust,
        timeout: float,
        messages: Messages,
    ) -> None:
        self._address = address
        self._trust = trust
        self._timeout = timeout
        self._messages = messages
        self._lock = threading.Lock()
        self.prepared = threading.Event()  # requests can be sent, and it is the store that they wait for
        self.can_sign = threading.Event()  # entries can be written, too
        self.finished = threading.Event()  # it has answered as well, or failed
        self.backend: Backend | None = None
        self.trusted: TrustedKeys | None = None
        self.key: SigningKey | None = None
        self.reads, self.writes = address.reads, address.writes

    def prepare(self) -> None:
        """Load the trusted keys and obstore.

        Raises:
            StoreError: If the store cannot be opened with these settings.
        """
        # A store that is only written to has the same readers: what they would reject is replaced.
        say = partial(self._messages.warn, "nothing is read") if self.reads else self._messages.debug
        may_read, trusted = self._trust.load_trusted(say)
        self.reads, self.trusted = self.reads and may_read, trusted if may_read else None
        if self._trust.key is None:
            self.load_signing_key()  # there is none, which is known at once
        if self.reads or self.writes:
            self.backend = open_backend(self._address, timeout=self._timeout)
        self.prepared.set()

    def load_signing_key(self) -> None:
        """Load the private key, if anything is written; wait if another thread does."""
        with self._lock:
            if self.can_sign.is_set():
                return
            try:
                if self.writes:
                    self.writes, self.key = self._trust.load_signing_key(
                        partial(self._messages.warn, "nothing is written")
                    )
                if self.key is not None and self.trusted is not None and self.key.id not in self.trusted:
                    self._messages.warn(
                        "what is written here is not read here", "JITLTO_STORE_SIGNERS lacks the key that signs"
                    )
            finally:
                self.can_sign.set()

    def finish(self) -> None:
        """Let everybody go on who waits for it, whether it has failed or not."""
        for event in (self.prepared, self.can_sign, self.finished):
            event.set()
