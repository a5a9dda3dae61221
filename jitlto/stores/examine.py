"""What is wrong with a configured store: reach, rights, keys, each with what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.entry import PAGE_HINT
from jitlto.stores.trust import Trust, directory_of

_TIMEOUT = 3.0  # seconds for each request
_PROBE = "v1/probes/"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined: what was found, and what to do if it is not ok."""

    value: str
    ok: bool = True
    remedy: str | None = None


def examine_store(
    address: StoreAddress,
    settings: Config,
    *,
    open_store: Callable[[StoreAddress], Backend] = lambda address: open_backend(address, timeout=_TIMEOUT),
) -> list[Finding]:
    """Examine a store; each finding begins with its address.

    Args:
        settings: Decide what is trusted, and what signs.
    """
    found = [*_examine_keys(address, Trust.of(settings, address)), _examine(address, open_store)]
    return [replace(each, value=f"{address.url}: {each.value}") for each in found]


def _examine_keys(address: StoreAddress, trust: Trust) -> Iterator[Finding]:
    """Yield why nothing would be read from a store, or written to it."""
    keys: dict[str, Any] = {}
    for done, load in (("read", trust.load_trusted), ("written", trust.load_signing_key)):
        if done == "read" or address.writes:
            try:
                keys[done] = load()
            except StoreError as error:
                yield Finding(f"nothing is {done}: {error.where or ''} {error.what}", False, error.hint)
    key, trusted = keys.get("written"), keys.get("read")
    if key is not None and trusted is not None and key.id not in trusted.ids:
        what = f"what is written here is not read here: {trust.signers} lacks the key of {trust.key}"
        yield Finding(what, False, f"add {trust.key}.pub to {trust.signers}")


def _examine(address: StoreAddress, open_store: Callable[[StoreAddress], Backend]) -> Finding:
    if address.is_local and not directory_of(address).exists():  # opening it would make it
        return Finding("does not exist", False, "create the directory, or mount it")
    doing, name = "read", f"{_PROBE}{os.urandom(8).hex()}"
    try:
        backend = open_store(address)
        if backend.get(name) is not None:  # the first request connects
            value = "answers for an object that it cannot hold, as a proxy or the sign-in of a network does"
            return Finding(value, False, PAGE_HINT)
        begin = time.perf_counter()
        backend.get(name)
        value = f"can be read, {1000 * (time.perf_counter() - begin):.1f} ms a request"
        if address.writes:
            doing, value = "written", f"{value}; can be written"
            backend.put(name, b"jitlto doctor\n")
            if backend.get(name) is None:
                remedy = "use a store in which an object can be read as soon as it is written"
                return Finding("loses what is written", False, remedy)
            backend.delete(name)
    except StoreError as error:
        to_read = f"; or write {address.url}#read in JITLTO_STORE if the store is only to be read"
        return Finding(
            f"cannot be {doing}: {error.what}", False, f"{error.hint}{to_read if doing == 'written' else ''}"
        )
    return Finding(value)
