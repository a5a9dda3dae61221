"""The settings of a process: every environment variable named ``JITLTO_...``, read once, in one frozen value.

docs/configuration.md lists them. Variables of other tools (``NVCC_CCBIN``, ``CUDA_PATH``, ``NUMBA_...``) are read where
those tools are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jitlto.base.errors import JitltoError
from jitlto.base.frozen import Frozen


class Config(Frozen):
    """The settings of a process.

    Args:
        database_path: Database files and directories of databases, in the order in which they are searched.
        cache_dir: Directory of this user's caches.
        build_cache_size: Bytes that the build cache may hold.
        cache: ``on`` or ``off``: the cache of linked kernels.
        cache_size: Bytes that it may hold.
        store: The text of ``JITLTO_STORE``; empty for no shared stores. jitlto.stores.address parses it.
        store_trust: ``signed`` or ``checksum``; empty for the default of each store.
        store_signers: File of trusted public keys.
        store_key: File of the private key that signs.
        store_patience: Seconds that waiting for a failing store may cost; None for the default.
        store_timeout: Seconds that a request to a store may take with its reply; None for the default.
        mode: ``link`` or ``cached``: whether kernels may be linked.
        wisdom: The user's file of what was measured to be the fastest.
        tiered: Whether families may begin with kernels that are linked without LTO.
        record: File to which used plans are recorded.
        extension: ``auto``, ``required`` or ``off``: the compiled core of launches.
        prebuilt: Where a package's database is taken from instead of compiling it.
        log: What is said on the standard error: ``fusion``, or nothing.
    """

    database_path: tuple[Path, ...]
    cache_dir: Path
    build_cache_size: int
    cache: str
    cache_size: int
    store: str
    store_trust: str
    store_signers: Path | None
    store_key: Path | None
    store_patience: float | None
    store_timeout: float | None
    mode: str
    wisdom: Path
    tiered: bool
    record: Path | None
    extension: str
    prebuilt: Path | None
    log: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Config:
        """Read the settings from environment variables."""
        cache_dir = environment.get("JITLTO_CACHE_DIR") or str(_cache_home(environment) / "jitlto")
        return cls(
            tuple(map(_absolute, filter(None, environment.get("JITLTO_DATABASE_PATH", "").split(os.pathsep)))),
            _absolute(cache_dir),
            parse_size(environment.get("JITLTO_BUILD_CACHE_SIZE") or "4G", "JITLTO_BUILD_CACHE_SIZE"),
            _choice(environment, "JITLTO_CACHE", ("on", "off")),
            parse_size(environment.get("JITLTO_CACHE_SIZE") or "2G", "JITLTO_CACHE_SIZE"),
            environment.get("JITLTO_STORE", "").strip(),
            _choice(environment, "JITLTO_STORE_TRUST", ("", "signed", "checksum")),
            _path(environment, "JITLTO_STORE_SIGNERS"),
            _path(environment, "JITLTO_STORE_KEY"),
            _seconds(environment, "JITLTO_STORE_PATIENCE"),
            _seconds(environment, "JITLTO_STORE_TIMEOUT"),
            _choice(environment, "JITLTO_MODE", ("link", "cached")),
            _path(environment, "JITLTO_WISDOM") or _absolute(cache_dir) / "wisdom",
            _choice(environment, "JITLTO_TIERED", ("1", "0")) == "1",
            _path(environment, "JITLTO_RECORD"),
            _choice(environment, "JITLTO_EXTENSION", ("auto", "required", "off")),
            _path(environment, "JITLTO_PREBUILT"),
            _choice(environment, "JITLTO_LOG", ("", "fusion")),
        )


def _path(environment: Mapping[str, str], variable: str) -> Path | None:
    path = environment.get(variable)
    return _absolute(path) if path else None


def _absolute(path: str) -> Path:
    """Return an absolute path: the current directory may change later."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:  # an unknown home
        return Path(path).absolute()


def _cache_home(environment: Mapping[str, str]) -> Path:
    if cache_home := environment.get("XDG_CACHE_HOME"):
        return Path(cache_home)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a home, as in containers; CacheDir checks who owns the directory
        return Path(environment.get("TMPDIR") or "/tmp") / f"jitlto-{os.getuid()}"  # noqa: S108


def _choice(environment: Mapping[str, str], variable: str, allowed: tuple[str, ...]) -> str:
    value = environment.get(variable) or allowed[0]
    if value not in allowed:
        hint = f"use {', '.join(filter(None, allowed[:-1]))} or {allowed[-1]}"
        raise JitltoError(f"invalid value {value!r}", code="jitlto-setting", where=variable, hint=hint)
    return value


def _seconds(environment: Mapping[str, str], variable: str) -> float | None:
    text = environment.get(variable)
    if text and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{0,6})?|\.[0-9]{1,6}", text.strip()):
        hint = "write seconds, e.g. 0.05"
        raise JitltoError(f"invalid time {text!r}", code="jitlto-setting", where=variable, hint=hint)
    return float(text) if text else None


def parse_size(text: str, where: str) -> int:
    """Parse a number of bytes such as ``500M``.

    Raises:
        JitltoError: If the text is not a size; the error names ``where``.
    """
    number = text.strip().upper()  # no regular expression: compiling one takes longer than all settings
    suffix = number[-1:] if number[-1:] in tuple("KMGT") else ""
    digits = number.removesuffix(suffix)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        hint = "write bytes, or e.g. 500M or 4G"
        raise JitltoError(f"invalid size {text!r}", code="jitlto-size", where=where, hint=hint)
    return int(digits) << 10 * " KMGT".index(suffix or " ")


@cache
def current() -> Config:
    """Return the settings of this process, read at the first call."""
    return Config.read(os.environ)
