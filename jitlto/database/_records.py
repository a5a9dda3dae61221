"""Encoding and decoding of the records of a database: the one place where their content is validated.

A file may be damaged or hostile, with correct checksums if it is forged. So the type and range of every value that the
rest of jitlto relies on are checked, and no option may name a file.
``docs/database.md`` describes the records of a database.
"""

import posixpath
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from jitlto.base.cached import decoder
from jitlto.base.types import Parameter
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Count, Fragment, Sha256
from jitlto.record.options import touches_files

T = TypeVar("T")


def decode(kind: type[T], data: bytes) -> T:
    """Decode JSON into a value of a type that msgspec knows: built-in types, structs, dataclasses and enums.

    Raises:
        ValueError, RecursionError, msgspec.MsgspecError: If the data is not JSON in UTF-8, or a value does not have the
            type or range of ``kind``.
    """
    return decoder(kind).decode(data.decode())


def encode(value: object) -> bytes:
    """Encode a value as JSON in its canonical form: equal values make equal bytes."""
    return msgspec.json.encode(value, order="sorted")


class _Parameter(Struct, gc=False):
    name: str
    type: str
    size: Count
    alignment: Count


class _Fragment(Fragment, frozen=True, gc=False):
    signature: tuple[_Parameter, ...]  # type: ignore[assignment]  # Parameter needs no msgspec where kernels are found


class Root(Struct, frozen=True):
    """What identifies the content of a database."""

    schema: Count
    tables: dict[str, Sha256]  # of each table, the hash over the checksums of its rows, sorted
    part: Sha256 | None  # of that record, if there is one


def encode_fragment(fragment: Fragment) -> bytes:
    """Encode the record of a fragment."""
    return encode(structs.asdict(fragment) | {"signature": [each.as_dict() for each in fragment.signature]})


def decode_fragment(key: str, record: bytes) -> Fragment:
    """Decode the record of the fragment with a key.

    Raises:
        ValueError, JitltoError: As :func:`decode`, and if it is invalid, or that of a different fragment.
    """
    r = decode(_Fragment, record)
    if r.key.text != key or r.key.parameters != tuple(sorted(dict(r.key.parameters).items())):
        raise ValueError("the key of a different fragment")
    signature = tuple(_parameter(p.name, p.type, p.size, p.alignment) for p in r.signature)
    return Fragment(**structs.asdict(r) | {"signature": signature})


_parameter = lru_cache(1024)(Parameter)  # thousands of fragments have the same few


def decode_family(record: bytes) -> FamilyRecord:
    """Decode the record of a family.

    Raises:
        ValueError, JitltoError: As :func:`decode`, and if an option or an interface in it leads out of the family.
    """
    r = decode(FamilyRecord, record)
    for option in filter(touches_files, r.options):
        raise ValueError(f"the compiler option {option!r} names files")
    for names in ([group.name for group in r.groups], (r.name, *r.uses), *(group.key for group in r.groups)):
        if len(set(names)) < len(names):
            raise ValueError("a name is repeated")
    named = [group.interface for group in r.groups if group.interface]
    for name in (*named, *r.interfaces):
        if posixpath.normpath(name).startswith(("/", "..")) or '"' in name or not name.isprintable():
            raise ValueError(f"the interface {name!r:.40} cannot stand in an #include")
    if not (r.version.isprintable() and r.differs.isprintable()):
        raise ValueError("the version or a difference has a character that cannot be printed")
    return r
