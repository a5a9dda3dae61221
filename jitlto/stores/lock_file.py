"""Lock files: what a deployment needs from a store, by content, so that it stays there.

A lock file is JSON with sorted names, one entry a line, so that two versions compare and merge well::

    {
      "jitlto_lock": 1,
      "name": "production",
      "artifacts": {
        "6f1c…": "search.fragdb"
      },
      "kernels": {
        "a91b…": "search/search_kernel[…] for sm_90"
      }
    }

The digests are what counts; the texts beside them are for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import StoreError

_SCHEMA = 1
_DIGEST = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HINT = "make it with `jitlto lock DB... -o FILE`"
_LARGEST = 256 << 20  # bytes


@dataclass(frozen=True, slots=True)
class LockFile:
    """What a deployment needs.

    Args:
        name: Under which stores keep it: another one of this name replaces it.
        artifacts: SHA-256 of databases, packs and other files → what they are.
        kernels: Digests of the plans of linked kernels → what they are.
    """

    name: str
    artifacts: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            hint = "use letters, digits, '.', '_' and '-': jitlto lock --name NAME"
            raise StoreError("is not a name for a lock file", code="store-lock-name", where=repr(self.name), hint=hint)

    def encode(self) -> bytes:
        """Encode as JSON; equal ones make equal bytes."""
        content = {
            "jitlto_lock": _SCHEMA,
            "name": self.name,
            "artifacts": dict(sorted(self.artifacts.items())),
            "kernels": dict(sorted(self.kernels.items())),
        }
        return json.dumps(content, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, where: str) -> LockFile:
        """Read a lock file.

        Raises:
            StoreError: If it is none, or was made by a newer version. The error names ``where``.
        """
        try:
            content = json.loads(data)
            schema, name = content["jitlto_lock"], str(content["name"])
            if schema != _SCHEMA:
                what, hint = f"is of schema {schema!r}, which this version does not read", "install a newer jitlto"
                raise StoreError(what, code="store-lock-schema", where=where, hint=hint)
            tables = [
                {str(key): str(about) for key, about in content[each].items()} for each in ("artifacts", "kernels")
            ]
            if any(not _DIGEST.fullmatch(key) for table in tables for key in table):
                raise ValueError("a key is not a SHA-256")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"is not a lock file: {error}"
            raise StoreError(what, code="store-lock-malformed", where=where, hint=_HINT) from error
        return cls(name, *tables)

    @classmethod
    def read(cls, path: Path) -> LockFile:
        """Read a lock file from disk.

        Raises:
            StoreError: If it cannot be read or is none.
        """
        try:
            with files.open_regular(path) as (file, _):
                data = file.read(_LARGEST)
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise StoreError(what, code="store-lock-unreadable", where=str(path), hint=_HINT) from error
        return cls.decode(data, str(path))

    @classmethod
    def merged(cls, name: str, locks: Iterable[LockFile]) -> LockFile:
        """Return what several need together."""
        artifacts: dict[str, str] = {}
        kernels: dict[str, str] = {}
        for lock in locks:
            artifacts |= lock.artifacts
            kernels |= lock.kernels
        return cls(name, artifacts, kernels)


def is_lock_file(path: Path) -> bool:
    """Return whether a file is meant as a lock file, even a damaged one.

    Raises:
        OSError: If it cannot be read.
    """
    with files.open_regular(path) as (file, _):
        head = file.read(200)
    return b"".join(head.split()).startswith(b'{"jitlto_lock"')
