"""What a process says about a shared store, once."""

from __future__ import annotations

from jitlto.base.cache_dir import WarnOnce
from jitlto.base.errors import RejectedEntryError
from jitlto.stores.entry import A_PAGE, NOT_AN_ENTRY

_warn = WarnOnce(__name__)


class Messages:
    """Messages about one store, each logged once a process.

    Args:
        url: The store.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def warn(self, what: str, why: str, subject: str | None = None) -> None:
        """Warn about something that is not done or not used; by default, once for each such thing."""
        _warn((self._url, subject or what), "shared store %s: %s: %s", self._url, what, why)

    def failed(self, what: str, why: object) -> None:
        """Warn that the store fails, for whatever reason: once is enough."""
        self.warn(what, str(why), "failed")

    def rejected(self, error: RejectedEntryError) -> None:
        """Warn that an entry is not taken, once for each reason."""
        # If something other than a store answers, what else fails has the same cause.
        self.warn("an entry", str(error), "failed" if error.reason in (A_PAGE, NOT_AN_ENTRY) else error.reason)

    def debug(self, why: str) -> None:
        """Log what nobody needs to know."""
        import logging  # imported lazily, as for warnings

        logging.getLogger(__name__).debug("shared store %s: %s", self._url, why)
