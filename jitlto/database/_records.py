"""Encoding and decoding of the records of a database: the one place where their content is validated.

A file may be damaged or hostile, with correct checksums if it is forged. So the type and range of every value that the
rest of jitlto relies on are checked, and no option may name a file.
``docs/database.md`` describes the records of a database.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from jitlto.base.cached import decoder
from jitlto.base.types import Parameter
from jitlto.base.versions import Architecture
from jitlto.record import expressions
from jitlto.record.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.record.fragment import Count, Fragment, FragmentKey, Image, Name, Role, Sha256, Symbol
from jitlto.record.options import GROUP_LINK_OPTIONS, LinkOptions, touches_files
from jitlto.record.tuning import LAUNCH_NAMES, LINK_NAMES, TuneRecord

T = TypeVar("T")


class InvalidRecordError(ValueError):
    """JSON with invalid content; the message names the place in it."""


def decode(kind: type[T], data: bytes) -> T:
    """Decode JSON into a value of a type that msgspec knows: built-in types, structs, dataclasses and enums.

    Raises:
        InvalidRecordError: If the data is not JSON in UTF-8, or a value does not have the type or range of ``kind``.
    """
    try:
        return decoder(kind).decode(data.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRecordError(str(error)) from error


def encode(value: object) -> bytes:
    """Encode a value as JSON in its canonical form: equal values make equal bytes, in ASCII."""
    try:
        text = msgspec.json.encode(value, order="sorted")
        if text.isascii() and b"\x7f" not in text:
            return text
    except UnicodeEncodeError:
        pass
    # Everything but printable ASCII is escaped.
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":")).encode()


class _Parameter(Struct, gc=False):
    name: str
    type: str
    size: Count
    alignment: Count
    definition: str = ""


class _Fragment(Struct, gc=False):
    key: FragmentKey
    role: Role
    entry: str
    signature: list[_Parameter]
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]
    images: tuple[Image, ...]
    bodies: tuple[tuple[str, Sha256], ...]


class _Family(Struct):
    name: Name
    options: tuple[str, ...]
    link: dict[str, Any]
    architectures: list[tuple[Count, str]]
    groups: tuple[GroupRecord, ...]
    headers: tuple[tuple[str, str], ...]
    interfaces: tuple[str, ...] = ()
    uses: tuple[Name, ...] = ()
    version: str = ""
    differs: str = ""


class _Gaps(Struct):
    keys: list[str]


class _Part(Struct):
    number: Count
    count: Count
    whole: str
    keys: msgspec.Raw
    toolchains: tuple[tuple[str, str], ...]
    faults: tuple[tuple[Name, str, str], ...]
    advice: tuple[str, ...]


class Root(Struct, frozen=True):
    """What identifies the content of a database.

    Args:
        schema: The schema's number.
        counts: The number of rows of each table.
        rows: The hash over the sorted checksums of all rows.
        families: The names of the families, sorted.
        part, gaps: SHA-256 of these records, where there are any.
    """

    schema: Count
    counts: dict[str, Count]
    rows: Sha256
    families: tuple[Name, ...]
    part: Sha256 | None
    gaps: Sha256 | None


def encode_fragment(fragment: Fragment) -> bytes:
    """Encode the record of a fragment."""
    return encode(msgspec.structs.asdict(fragment) | {"signature": [each.as_dict() for each in fragment.signature]})


def decode_fragment(record: bytes) -> Fragment:
    """Decode the record of a fragment.

    Raises:
        InvalidRecordError, JitltoError: If it is invalid.
    """
    r = decode(_Fragment, record)
    for image in r.images:
        _architecture(str(image.architecture))
    signature = tuple(_parameter(p.name, p.type, p.size, p.alignment, p.definition) for p in r.signature)
    return Fragment(r.key, r.role, r.entry, signature, r.provides, r.requires, r.images, r.bodies)


# Thousands of fragments have the same few.
_architecture = lru_cache(1024)(Architecture.parse)
_parameter = lru_cache(1024)(Parameter)


def encode_family(family: FamilyRecord) -> bytes:
    """Encode the record of a family."""
    return encode(msgspec.to_builtins(family) | {"link": family.link.as_dict()})


def decode_family(record: bytes) -> FamilyRecord:
    """Decode the record of a family.

    Raises:
        InvalidRecordError, JitltoError: If it is invalid, or an option or an interface in it leads out of the family.
    """
    try:
        # Not msgspec's decoder: a header may not be UTF-8, and its other bytes are stored as unpaired surrogates.
        values = json.loads(record.decode())
        decoder(_Family)
        r = msgspec.convert(values, _Family)
        for name, text in r.headers:
            f"{name}{text}".encode("utf-8", "surrogateescape")
        json.dumps(values | {"headers": None}, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(str(error)) from error
    for option in filter(touches_files, r.options):
        raise InvalidRecordError(f"the compiler option {option!r} names files")
    for names in ([group.name for group in r.groups], (r.name, *r.uses), *(group.key for group in r.groups)):
        if len(set(names)) < len(names):
            raise InvalidRecordError("a name is repeated")
    named = [group.interface for group in r.groups if group.interface]
    for name in (*named, *r.interfaces):
        if posixpath.normpath(name).startswith(("/", "..")) or '"' in name or not name.isprintable():
            raise InvalidRecordError(f"the interface {name!r:.40} cannot stand in an #include")
    if not (r.version.isprintable() and r.differs.isprintable()):
        raise InvalidRecordError("the version or a difference has a character that cannot be printed")
    for group in r.groups:
        if any(name not in GROUP_LINK_OPTIONS for name, _ in group.link):
            raise InvalidRecordError("a group has a link option that cannot differ by group")
        LinkOptions.from_mapping(dict(group.link))
        if group.tune is not None:
            _check_tune(group.tune)
    return FamilyRecord(
        r.name,
        r.options,
        LinkOptions.from_mapping(r.link),
        tuple(_architecture(f"{number}{suffix}") for number, suffix in r.architectures),
        r.groups,
        r.headers,
        r.uses,
        r.version,
        r.interfaces,
        r.differs,
    )


def _check_tune(tune: TuneRecord) -> None:
    """Check what is chosen from and computed with when a kernel is launched."""
    names = {name for choice in tune.launch for name, _ in choice}
    if tune.free != tuple(name for name, _ in tune.default) or not 0 <= tune.tolerance < 1:
        raise InvalidRecordError("the free parameters of a group do not match their defaults")
    for name, several in tune.link:
        if name not in LINK_NAMES:
            raise InvalidRecordError(f"the link option {name!r:.40} may not vary")
        for value in several:
            LinkOptions.from_mapping({name: value})
    if names and not {"block", "grid"} <= names:
        raise InvalidRecordError("a launch choice has no grid or no block")
    try:
        for text in (*tune.when, *(text for choice in tune.launch for name, text in choice if name in LAUNCH_NAMES)):
            expressions.parse(text)
    except expressions.ExpressionError as error:
        raise InvalidRecordError(f"an expression of a launch choice or condition: {error}") from error


def encode_gaps(keys: Iterable[FragmentKey]) -> bytes:
    """Encode the record of the fragments that a merge left out."""
    return encode(_Gaps(list(map(str, keys))))


def decode_gaps(record: bytes) -> tuple[FragmentKey, ...]:
    """Decode the record of the fragments that a merge left out.

    Raises:
        InvalidRecordError, JitltoError: If it is invalid.
    """
    return tuple(sorted(map(FragmentKey.parse, decode(_Gaps, record).keys)))


def encode_part(part: PartRecord) -> bytes:
    """Encode the record of a part of a build."""
    return encode(msgspec.structs.asdict(part) | {"keys": list(map(str, part.keys))})


def decode_part(record: bytes) -> PartRecord:
    """Decode the record of a part of a build.

    Raises:
        InvalidRecordError, JitltoError: If it is invalid.
    """
    r = decode(_Part, record)
    return PartRecord(r.number, r.count, r.whole, _decode_keys(bytes(r.keys)), r.toolchains, r.faults, r.advice)


# Every part of a build has all keys of the build: a merge of many parts could not hold them for each.
@lru_cache(maxsize=1)
def _decode_keys(record: bytes) -> tuple[FragmentKey, ...]:
    return tuple(sorted(map(FragmentKey.parse, decode(list[str], record))))
