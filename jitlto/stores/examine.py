"""What is wrong with a configured store: reach, rights, latency, clock, keys, each with what to do about it."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jitlto.base.config import Config
from jitlto.base.errors import JitltoError, StoreError
from jitlto.base.text import pluralize
from jitlto.stores.address import SCHEMES, StoreAddress
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.entry import PAGE_HINT
from jitlto.stores.keys import SigningKey, TrustedKeys
from jitlto.stores.trust import OPEN_HINT, Trust, directory_of, needs_signatures

_TIMEOUT = 3.0  # seconds for each request
_PATIENCE = 10.0  # seconds for a store
_ROUND_TRIPS = 3
_SLOW = 0.05  # seconds: programs give up a store whose failures cost more than this
_SKEW = 300.0  # seconds by which clocks may differ: S3 refuses requests at 900
_PROBE = "v1/probes/"
_LIST = "list public keys: lines of KEY.pub, or of an allowed_signers file of OpenSSH"

Opener = Callable[[StoreAddress], Backend]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined: what was found, and what to do if it is not ok."""

    value: str
    ok: bool = True
    remedy: str | None = None


def examine_stores(
    addresses: Sequence[StoreAddress],
    settings: Config | None = None,
    *,
    open_store: Opener | None = None,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.time,
) -> list[list[Finding]]:
    """Examine stores side by side, within a time limit; each finding begins with the store's address.

    Args:
        settings: Decide what is trusted; by default, whatever is in a store.
    """
    found: list[list[Finding]] = [[] for _ in addresses]
    opener = open_store or (lambda address: open_backend(address, timeout=_TIMEOUT))

    def run(number: int) -> None:
        trust = Trust(signed=False) if settings is None else Trust.of(settings, addresses[number])
        found[number] = _examine(addresses[number], trust, opener, clock)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(addresses))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"does not answer within {patience:.0f} s"
    remedy = "check the address, the network and proxies; programs do without it"
    return [
        each or [Finding(f"{address.url}: {late}", False, remedy)]
        for address, each in zip(addresses, found, strict=True)
    ]


def examine_keys(
    addresses: Sequence[StoreAddress], trust: str, signers: Path | None, key: Path | None
) -> list[Finding]:
    """Examine the trusted keys, and the key that entries are signed with."""
    signed = [each for each in addresses if needs_signatures(trust, each)]
    if not signed:
        return []
    found = []
    trusted = None
    if signers is None:
        what, remedy = "no trusted keys: nothing is read", "set JITLTO_STORE_SIGNERS to a file of public keys"
        found.append(Finding(what, not any(each.reads for each in signed), remedy))
    else:
        try:
            trusted = TrustedKeys.load(signers)
            found.append(Finding(f"{pluralize(len(trusted), 'trusted key')} in {signers}", len(trusted) > 0, _LIST))
        except JitltoError as error:
            found.append(Finding(f"trusted keys: {error.where}: {error.what}", False, error.hint))
    if key is None:
        remedy = "set JITLTO_STORE_KEY to the private key that signs, or write URL#read in JITLTO_STORE"
        writes = any(each.writes for each in signed)
        return [*found, *([Finding("no private key: nothing is written", False, remedy)] if writes else [])]
    try:
        own = SigningKey.load(key)
    except JitltoError as error:
        return [*found, Finding(f"private key: {error.where}: {error.what}", False, error.hint)]
    if trusted is not None and own.id not in trusted:
        what = f"private key: {key} is none of the trusted ones: what is written here is not read here"
        return [*found, Finding(what, False, f"add {key}.pub to {signers}")]
    return [*found, Finding(f"private key: {key}")]


def _examine(address: StoreAddress, trust: Trust, open_store: Opener, clock: Callable[[], float]) -> list[Finding]:
    found: list[Finding] = []
    if address.is_local and not directory_of(address).exists():  # opening it would make it
        return [Finding(f"{address.url}: does not exist", False, "create the directory, or mount it")]
    if address.reads and trust.is_open_to_everybody:
        found.append(Finding("is not read: everybody may write to it", False, OPEN_HINT))
    try:
        backend = open_store(address)
        name = f"{_PROBE}{os.urandom(8).hex()}"
        if backend.get(name) is not None:  # the first request connects
            value = (
                f"{address.url}: answers for an object that it cannot hold, as a proxy or the sign-in of a network does"
            )
            return [Finding(value, False, PAGE_HINT)]
        seconds = statistics.median(_timed(lambda: backend.get(name)) for _ in range(_ROUND_TRIPS))
        remedy = f"use one nearer by: replies that take over {1000 * _SLOW:.0f} ms are of little use to programs"
        found.append(Finding(f"can be read, {1000 * seconds:.1f} ms a request", seconds <= _SLOW, remedy))
        if SCHEMES[address.scheme]:
            found += _list(backend)
        if address.writes:
            found += _write(address, backend, name, clock)
    except StoreError as error:
        found.append(Finding(error.what, False, error.hint))
    except Exception as error:  # noqa: BLE001 - a diagnosis says what is wrong, whatever it is
        found.append(Finding(f"{type(error).__name__}: {error}", False, "check the address"))
    if all(each.ok for each in found):
        found = [Finding("; ".join(each.value for each in found))]
    return [replace(each, value=f"{address.url}: {each.value}") for each in found]


def _list(backend: Backend) -> list[Finding]:
    try:
        next(backend.list(_PROBE), None)
    except StoreError as error:
        remedy = error.hint
        if error.code == "store-denied":
            remedy = "grant it (s3:ListBucket): without it, the store says 'denied' for what is only missing"
        return [Finding(f"cannot be listed: {error.what}", False, remedy)]
    return []


def _write(address: StoreAddress, backend: Backend, name: str, clock: Callable[[], float]) -> list[Finding]:
    """Put an object, compare its date with the time here, and remove it."""
    begin = clock()
    try:
        backend.put(name, b"jitlto doctor\n")
    except StoreError as error:
        remedy = error.hint
        if error.code == "store-denied":
            remedy = f"grant it, or write {address.url}#read in JITLTO_STORE if the store is only to be read"
        return [Finding(f"cannot be written: {error.what}", False, remedy)]
    end, held = clock(), backend.head(name)
    found = [Finding("can be written")]
    try:
        backend.delete(name)
    except StoreError as error:
        remedy = f"allow it for whoever runs `jitlto store prune`, and remove {name}"
        found.append(Finding(f"objects cannot be removed: {error.what}", False, remedy))
    if held is None:
        remedy = "use a store in which an object can be read as soon as it is written"
        return [*found, Finding("loses what is written", False, remedy)]
    # The date is that of a moment between the two, in whole seconds.
    skew = held.modified - end if held.modified > end else min(0.0, held.modified + 1 - begin)
    ahead = "ahead of" if skew > 0 else "behind"
    value = "clocks agree" if abs(skew) < 1 else f"its clock is {abs(skew):.0f} s {ahead} that of this machine"
    return [*found, Finding(value, abs(skew) <= _SKEW, "set the clock of this machine, e.g. with NTP")]


def _timed(request: Callable[[], object]) -> float:
    begin = time.perf_counter()
    request()
    return time.perf_counter() - begin
