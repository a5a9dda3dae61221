"""Manifests: the SHA-256 of files, in the format of ``sha256sum``, and signatures of them.

One line per file: the SHA-256 in hexadecimal, two spaces, the name relative to the manifest. A signature is OpenSSH's,
in a separate file beside the manifest. ``sha256sum`` makes the one and ``ssh-keygen -Y sign`` the other, with a key
that may be in an agent or on hardware; here both are checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from jitlto.base import files
from jitlto.base.errors import ManifestError
from jitlto.stores.trust import signatures

if TYPE_CHECKING:
    from jitlto.stores.signatures import TrustedKeys

#: Namespace of signatures, so that a signature made for a different purpose is not accepted.
NAMESPACE = "jitlto"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_MAKE = "create one in the directory of the files: sha256sum DB... > FILE"
_LARGEST = 16 << 20  # bytes: of manifests and of signatures


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest.

    Args:
        path: The file; names are relative to its directory.
        text: The whole text, to which a signature applies.
        digests: SHA-256 in hexadecimal, by name.
    """

    path: Path
    text: bytes
    digests: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest.

        Raises:
            ManifestError: If it cannot be read, a line is not in the format, or a name is repeated or leads out of its
                directory.
        """
        text = _bytes_of(path)
        digests: dict[str, str] = {}
        for number, line in enumerate(text.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n"), 1):
            match = _LINE.fullmatch(line)
            name = match[2].removeprefix("./") if match else ""
            if match is None or name in digests or not _is_inside(name):
                what = "is not a manifest: expected a SHA-256 and a plain relative path, which is there once"
                raise _error("manifest-invalid", what, f"{path}:{number}", _MAKE)
            digests[name] = match[1]
        return cls(path, text, digests)

    def check(self, file: Path) -> str:
        """Check a file, which is listed under the longest end of its path that is a name, and return its SHA-256.

        Raises:
            ManifestError: If it is not listed, cannot be read, or does not match the SHA-256 in the manifest.
        """
        parts = Path(os.path.abspath(file)).parts  # noqa: PTH100 - a link is a name like any other
        ends = ("/".join(parts[-count:]) for count in range(len(parts) - 1, 0, -1))
        name = next((end for end in ends if end in self.digests), None)
        if name is None:
            raise _error(
                "manifest-not-listed",
                f"is not listed in {self.path}",
                file,
                f"use the manifest published with the file; this one lists {len(self.digests)} others",
            )
        with _opened(file) as opened:
            actual = hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]  # has readinto()
        if actual != self.digests[name]:
            raise _error(
                "manifest-mismatch",
                f"does not match {name} in {self.path}: its SHA-256 is {actual}, not {self.digests[name]}",
                file,
                "do not use it; download it and its manifest again",
            )
        return actual

    def covered(self, databases: Sequence[Path] = ()) -> list[Path]:
        """Return the files to :meth:`check`: databases and the packs beside them, by default all that are listed."""
        listed = [] if databases else [self.path.parent / name for name in self.digests]
        named = databases or [file for file in listed if file.suffix == files.SUFFIX]
        # Every file that a process may load with a database.
        loaded = [path for database in named for path in (database, *files.beside(database, ".pack"))]
        return list(dict.fromkeys([*loaded, *listed]))


def check_signature(manifest: Manifest, signers: Path) -> str:
    """Check the signature of the manifest's bytes, by the trusted keys of a file; return the name of the signer.

    Raises:
        ManifestError: If there is no signature, or no trusted one of these bytes.
        StoreError: If the package cryptography is not installed, or the trusted keys cannot be read.
    """
    path = signature_of(manifest.path)
    if not os.path.lexists(path):
        what = f"is not signed: {path} does not exist"
        raise _error("manifest-unsigned", what, manifest.path, f"download {path.name} too")
    trusted: TrustedKeys = signatures().TrustedKeys.load(signers, NAMESPACE)
    name = trusted.signer_of(_bytes_of(path), manifest.text)
    if name is None:
        wanted = f"an Ed25519 key that {signers} lists for the namespace {NAMESPACE!r}"
        what = f"the signature {path} was not made by {wanted}, or is not of this manifest"
        hint = "do not use the files; download manifest and signature again, or get the signer's new public key"
        raise _error("manifest-untrusted", what, manifest.path, hint)
    return name


def signature_of(path: Path) -> Path:
    """Return the path of a manifest's signature."""
    return path.with_name(f"{path.name}.sig")


def _is_inside(name: str) -> bool:
    """Return whether a name is a normalized relative path below the manifest's directory, printable in one line."""
    plain = PurePosixPath(name)
    return str(plain) == name != "." and ".." not in plain.parts and not plain.is_absolute() and name.isprintable()


def _bytes_of(path: Path) -> bytes:
    with _opened(path) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:  # a part of it would be read as the whole
        raise _error("manifest-unreadable", "exceeds 16 MiB", path, "check the path, or list fewer files")
    return content


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with files.opened(path) as (file, _):
            yield file
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise _error("manifest-unreadable", f"cannot be read: {why}", path, "check the path") from error


def _error(code: str, what: str, where: object, hint: str) -> ManifestError:
    return ManifestError(what, code=code, where=str(where), hint=hint)
