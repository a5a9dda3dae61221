"""Files of wisdom: one checked entry (:mod:`jitlto.base.entry`), of JSON lines, each an entry of wisdom.

A file that is damaged, truncated, foreign or of another version is refused. Equal wisdom makes equal bytes.
"""

import contextlib
import logging
import os
from pathlib import Path

from jitlto.base import entry as entries
from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.errors import WisdomError
from jitlto.base.lock import locked
from jitlto.tuning.wisdom import Entry, Wisdom

#: Suffix of a file of wisdom beside a database.
SUFFIX = ".wisdom"
_NAME, _SCHEMA = "wisdom", 2  # 2: variants are free parameters and a block
_PATIENCE = 10.0  # seconds to wait for another process that writes
_log = logging.getLogger(__name__)


def encode(wisdom: Wisdom) -> bytes:
    """Return the bytes of a file."""
    return entries.encode(_NAME, b"\n".join(entry.encoded for entry in wisdom.entries), schema=_SCHEMA)


def decode(data: bytes, where: str) -> Wisdom:
    """Read the bytes of a file.

    Raises:
        WisdomError: If they are not what :func:`encode` returns.
    """
    payload = entries.decode(_NAME, data, schema=_SCHEMA)
    try:
        if payload is None:
            raise ValueError("its checksum or its version does not match")
        return Wisdom(map(decoder(Entry).decode, payload.splitlines()))
    except (ValueError, RecursionError) as error:
        raise WisdomError(
            f"is damaged, or no file of wisdom of this version of jitlto: {error}",
            code="wisdom-damaged",
            where=where,
            hint="get the file again, or remove it and tune again",
        ) from None


def read(path: Path) -> Wisdom:
    """Read a file.

    Raises:
        WisdomError: If it cannot be read, or is not a file of wisdom.
    """
    try:
        return decode(files.read(path), str(path))
    except OSError as error:
        raise WisdomError(
            f"cannot be read: {error.strerror or error}",
            code="wisdom-unreadable",
            where=str(path),
            hint="make one: family.tune(...)",
        ) from None


def _read_existing(path: Path) -> Wisdom:
    return read(path) if os.path.exists(path) else Wisdom()  # noqa: PTH110 - Path's raises on a name that is too long


def read_for(database: Path, own: Path) -> tuple[Wisdom, Wisdom]:
    """Return the user's own wisdom, and that which is shipped beside a database.

    A file that cannot be used is a warning and no error: without it, the defaults are used.
    """
    found = []
    for path in (own, *files.beside(database, SUFFIX)):
        try:
            found.append(_read_existing(path))
        except WisdomError as error:
            _log.warning("%s: it is not used, and the defaults are", error)
            found.append(Wisdom())
    return found[0], Wisdom().merge(*found[1:])


def write(path: Path, wisdom: Wisdom) -> None:
    """Write a file, whole or not at all.

    Raises:
        WisdomError: If it cannot be written.
    """
    try:
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103 - a name that is too long is an OSError
        files.write(path, encode(wisdom))
    except OSError as error:
        hint = "name a file that you may write"
        raise files.unwritable(error, path, hint, WisdomError, "wisdom-unwritable") from None


def add(path: Path, *added: Entry) -> None:
    """Add entries to a file, in place of those with the same keys; processes that add at once wait for each other.

    Raises:
        WisdomError: If the file cannot be read or written.
    """
    with contextlib.suppress(OSError):
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103
    # Without locks, the entry of another process may be lost.
    with locked(path.with_name(f"{path.name}.lock"), _PATIENCE, f"writes {path}"):
        write(path, _read_existing(path).replace(*added))
