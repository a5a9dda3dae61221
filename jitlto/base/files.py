"""Files: identity, safe reading, atomic replacement; recognises a database without SQLite."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from jitlto.base.errors import JitltoError

# A database is written with pages of 1024 bytes and its table ``meta`` first, so that the row ``digest`` stands on the
# second page: the name and, right behind it, the value (SQLite file format, 1.6 and 2; docs/database.md).
_PAGE = 1024
APPLICATION_ID = b"jlto"  # of a database, at offset 68 of the header
_ROW = b"digest"
_SQLITE_IOERR, _SQLITE_FULL = 10, 13  # primary result codes (SQLite, «Result and Error Codes»)
_HEXADECIMAL = frozenset(b"0123456789abcdef")

#: Suffix of a database's file name, which an entry point's value leaves out.
SUFFIX = ".fragdb"
#: Group of the entry points by which installed packages declare their families and databases.
GROUP = "jitlto.fragments"

#: How the names of temporary files begin.
TEMPORARY = ".jitlto-"

#: Distinguishes a file from any other that has or had its name.
Identity: TypeAlias = "tuple[int, ...]"


def identity(status: os.stat_result) -> Identity:
    """Return device, inode, size in bytes, and times of the last write and the last change in nanoseconds."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_path(path: str | os.PathLike[str]) -> None:
    """Check that a file can have this path, which need not exist.

    Raises:
        OSError: If it contains a NUL, or a character that cannot be encoded: Python would raise ValueError.
    """
    try:
        if b"\0" not in os.fsencode(path):
            return
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "not a valid path", str(path))


def normal_path(path: Path) -> Path:
    """Return a path without ``..``, unless links would make that another place."""
    if ".." not in path.parts:
        return path
    plain = Path(os.path.normpath(path))
    with suppress(OSError, ValueError):
        return plain if os.path.samefile(plain, path) else path  # noqa: PTH121 - of any text
    return plain


def open_descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file as :func:`os.open` does, without blocking on a FIFO.

    Raises:
        OSError: If it cannot be opened, or no file can have this path.
    """
    check_path(path)
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open a file, or the output of a process (``<(command)``), and yield it with its status.

    A FIFO that has no writer is empty.

    Raises:
        OSError: If it cannot be opened, or is neither a regular file nor a FIFO.
    """
    with open(open_descriptor(path), "rb") as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):  # some devices never end
            raise OSError(None, "not a file", str(path))
        os.set_blocking(file.fileno(), True)
        yield file, status


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file.

    Raises:
        OSError: As :func:`opened`, or if it is a FIFO without a writer.
    """
    with opened(path) as (file, status):
        data = file.read()
    if stat.S_ISFIFO(status.st_mode) and not data:
        raise OSError(None, "a FIFO without a writer", str(path))
    return data


@contextmanager
def renamed(path: str) -> Iterator[str]:
    """Yield a name beside a file for what takes its place at the end; after an error it is removed."""
    temporary = f"{path.rpartition('/')[0]}/{TEMPORARY}{os.urandom(8).hex()}"
    try:
        yield temporary
        os.replace(temporary, path)  # noqa: PTH105 - texts, as a build makes thousands of entries
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside a file to write to, which replaces the file at the end or leaves it as it was.

    Every file that jitlto writes at a path given by a user is written in this way. A symbolic link is kept, and the
    file that it leads to is replaced. An existing file keeps its permissions; those of a new one follow the umask.

    Args:
        path: A regular file, or one that does not exist yet, in an existing directory.
        sync: Whether to wait until the bytes are on the disk, so that a power failure leaves the old or the new file.

    Raises:
        OSError: If something other than a writable regular file is there, or it cannot be written.
    """
    target, mode = check_replaceable(path)
    with renamed(str(target)) as temporary:
        yield Path(temporary)
        with open(temporary, "rb") as written:  # noqa: PTH123 - a text
            if mode is not None:
                os.fchmod(written.fileno(), mode)
            if sync:
                os.fsync(written.fileno())


def write(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file as :func:`replacing` does: whole or not at all.

    Raises:
        OSError: As :func:`replacing`.
    """
    with replacing(path, sync=sync) as temporary, temporary.open("xb") as file:
        file.write(data)


def check_replaceable(path: Path) -> tuple[Path, int | None]:
    """Check, before any work, that :func:`replacing` can write a file; nothing changes.

    Returns:
        Path: The file, without symbolic links.
        int or None: Its permissions; None if it does not exist yet.

    Raises:
        OSError: If it cannot: devices, FIFOs, sockets and directories are never replaced, nor is a file that its owner
            has protected against writing.
    """
    check_path(path)
    target, mode = Path(os.path.realpath(path)), None
    with suppress(FileNotFoundError):
        status = path.stat()
        # A link such as /proc/self/fd/1 leads to an open file, which need not have a name.
        if not stat.S_ISREG(status.st_mode) or not target.exists() or not target.samefile(path):
            raise OSError(errno.EINVAL, "it exists and is not a regular file", str(path))
        mode = stat.S_IMODE(status.st_mode)
    if not target.parent.is_dir():
        raise OSError(errno.ENOENT, f"the directory {target.parent} does not exist", str(target))
    if (mode is not None and not os.access(target, os.W_OK)) or not os.access(target.parent, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return target, mode


@contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """Create a directory for temporary files, which is removed at the end of a ``with`` statement.

    Raises:
        JitltoError: If there is none in which it could be created.
    """
    import tempfile  # imported lazily: takes 5 ms, and a launch does not need it

    try:
        directory = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise no_temporary_directory(error) from error
    with directory as path:
        yield path


def write_hint(error: Exception, otherwise: str) -> str:
    """Return what to do about a file that cannot be written: ``otherwise``, unless the disk is full.

    Args:
        error: An OSError, or SQLite's error, which does not tell a used-up quota from other failures of the disk.
        otherwise: What to do about rights and paths.
    """
    is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    is_full = is_full or getattr(error, "sqlite_errorcode", 0) & 0xFF in (_SQLITE_FULL, _SQLITE_IOERR)
    return "free disk space there, or quota, or use a directory on another disk" if is_full else otherwise


def unwritable(
    error: Exception, path: Path, hint: str, kind: type[JitltoError] = JitltoError, code: str = "jitlto-unwritable-file"
) -> JitltoError:
    """Return the error for a file that cannot be written; see :func:`write_hint`."""
    what = f"cannot be written: {getattr(error, 'strerror', None) or error}"
    return kind(what, code=code, where=str(path), hint=write_hint(error, hint))


def no_temporary_directory(error: OSError) -> JitltoError:
    """Return the error for a system without a usable directory for temporary files."""
    what = f"no temporary directory can be created: {error.strerror or error}"
    hint = write_hint(error, "set TMPDIR to a writable one")
    return JitltoError(what, code="jitlto-no-temporary-directory", hint=hint)


def beside(path: Path, suffix: str) -> list[Path]:
    """Return the files ``STEM.suffix`` and ``STEM.*.suffix`` beside ``path``, whose stem is ``STEM``; sorted.

    Without those of a database beside it that is called ``STEM.*`` too.
    """
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - names are what is asked for
    except OSError:
        return []
    begin = f"{path.stem}."
    mine = sorted(name for name in names if name.startswith(begin))
    others = tuple(n.removesuffix(SUFFIX[1:]) for n in mine if n.endswith(SUFFIX) and n != path.stem + SUFFIX)
    return [path.with_name(name) for name in mine if name.endswith(suffix) and not name.startswith(others)]


def is_database(path: Path) -> bool:
    """Return whether a file, even a damaged one, has our application id (SQLite file format, 1.3: offset 68).

    Raises:
        OSError: If it cannot be read.
    """
    with open(open_descriptor(path), "rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:] == APPLICATION_ID


def digest_of(path: Path) -> str | None:
    """Return a fragment database's digest without SQLite; None if the file is not as jitlto writes it.

    The digest identifies the content that was written. Damage is detected only when the database is opened.
    """
    try:
        with opened(path) as (file, status):
            data = file.read(2 * _PAGE)
    except OSError:
        return None
    if data[:18] != b"SQLite format 3\0" + _PAGE.to_bytes(2, "big") or data[68:72] != APPLICATION_ID:
        return None
    if status.st_size != _PAGE * int.from_bytes(data[28:32], "big"):
        return None  # truncated
    # `digest` occurs twice if the file was edited in place and still contains the old row.
    _, _, rest = data[_PAGE:].partition(_ROW)
    digest = rest[:64]
    if _ROW in rest or len(digest) < 64 or not _HEXADECIMAL.issuperset(digest):
        return None
    return digest.decode()
