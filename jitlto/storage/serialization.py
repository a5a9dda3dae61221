"""Families, fragments and parts as JSON, as ``docs/database.md`` describes it.

Whoever makes a database can make its checksums right. So what a record says is checked as it is read: that every value
is of the kind that the rest of jitlto counts on, and that no option in it names a file.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from jitlto.model.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.model.fragment import (
    Fragment,
    FragmentKey,
    Image,
    ImageKind,
    Role,
    Symbol,
    SymbolKind,
    is_name,
)
from jitlto.model.options import LinkOptions, touches_files
from jitlto.model.types import Parameter
from jitlto.model.versions import Architecture, Version

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 1 << 63


def canonical(record: Mapping[str, object]) -> bytes:
    """A record as it is written: equal ones make equal bytes."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def family_to(family: FamilyRecord) -> bytes:
    """Write the record of a family."""
    return canonical(asdict(family) | {"link": family.link.as_dict()})


def fragment_to(fragment: Fragment) -> bytes:
    """Write the record of a fragment."""
    images = [asdict(i) | {"architecture": str(i.architecture)} for i in fragment.images]
    key = {
        "family": fragment.key.family,
        "group": fragment.key.group,
        "parameters": dict(fragment.key.parameters),
    }
    signature = [parameter.as_dict() for parameter in fragment.signature]
    return canonical(asdict(fragment) | {"key": key, "images": images, "signature": signature})


def part_to(part: PartRecord) -> bytes:
    """Write the record of a part."""
    includes = {str(key): headers for key, headers in part.includes}
    lists = {"keys": list(map(str, part.keys)), "toolchains": dict(part.toolchains), "includes": includes}
    return canonical(asdict(part) | lists)


def gaps_to(keys: Iterable[FragmentKey]) -> bytes:
    """Write the record of what a merge has left out."""
    return canonical({"keys": list(map(str, keys))})


# Of a record that is not as they expect, readers raise KeyError, TypeError, ValueError, AttributeError, RecursionError
# or JitltoError: no jitlto has written it, and the database says so in its own words.


def fragment_from(record: bytes) -> Fragment:
    """Read the record of a fragment."""
    r = _read(record)
    key = r["key"]
    parameters = {_name(name): _text(value) for name, value in key["parameters"].items()}
    return Fragment(
        FragmentKey.make(_name(key["family"]), _name(key["group"]), parameters),
        Role(r["role"]),
        _text(r["entry"]),
        tuple(map(_parameter, _list(r["signature"]))),
        tuple(map(_symbol, _list(r["provides"]))),
        tuple(map(_symbol, _list(r["requires"]))),
        _pairs(r["weak"]),
        tuple(map(_image, _list(r["images"]))),
    )


def family_from(record: bytes) -> FamilyRecord:
    """Read the record of a family."""
    r = _read(record, without="headers")
    options = _texts(r["options"])
    for option in options:
        if touches_files(option):
            raise ValueError(f"the compiler option {option!r} names files")
    return FamilyRecord(
        _name(r["name"]),
        options,
        LinkOptions.of(r["link"]),
        tuple(Architecture.parse(f"{_count(number)}{_text(suffix)}") for number, suffix in _list(r["architectures"])),
        tuple(map(_group, _list(r["groups"]))),
        tuple((_text(name), _header_text(text)) for name, text in _list(r["headers"])),
    )


def part_from(record: bytes) -> PartRecord:
    """Read the record of a part."""
    r = _read(record)
    return PartRecord(
        _count(r["number"]),
        _count(r["count"]),
        _text(r["whole"]),
        tuple(sorted(map(FragmentKey.parse, _texts(r["keys"])))),
        tuple(sorted((_text(name), _text(identity)) for name, identity in r["toolchains"].items())),
        tuple(sorted((FragmentKey.parse(key), _texts(headers)) for key, headers in r["includes"].items())),
        _texts(r["advice"]),
    )


def gaps_from(record: bytes) -> tuple[FragmentKey, ...]:
    """Read the record of what a merge has left out."""
    return tuple(sorted(map(FragmentKey.parse, _texts(_read(record)["keys"]))))


def _read(record: bytes, without: str = "") -> dict[str, Any]:
    """Read a record; its texts, except under the name ``without``, can be encoded."""
    text = record.decode()  # json.loads guesses at encodings
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("a record is an object")
    if "\\ud" in text or "\\uD" in text:  # half a surrogate pair is no text
        json.dumps({name: inner for name, inner in value.items() if name != without}, ensure_ascii=False).encode()
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _header_text(value: object) -> str:
    """What a header says, which need not be UTF-8."""
    _text(value).encode("utf-8", "surrogateescape")
    return str(value)


def _name(value: object) -> str:
    if not is_name(_text(value)):
        raise ValueError(f"{value!r:.40} is no name")
    return str(value)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise TypeError(f"{value!r:.40} is no count")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list")
    return value


def _texts(value: object) -> tuple[str, ...]:
    "".join(_list(value))  # which takes texts alone
    return tuple(_list(value))


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs = tuple((one, other) for one, other in _list(value))
    "".join(map("".join, pairs))
    return pairs


def _version(value: object) -> Version:
    major, minor = _list(value)
    return Version(_count(major), _count(minor))


def _parameter(r: dict[str, Any]) -> Parameter:
    name, type_ = _texts([r["name"], r["type"]])
    return Parameter(name, type_, _count(r["size"]), _count(r["alignment"]))


def _symbol(r: dict[str, Any]) -> Symbol:
    name, layout = _texts([r["name"], r["layout"]])
    return Symbol(name, SymbolKind(r["kind"]), layout, _truth(r["weak"]))


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _image(r: dict[str, Any]) -> Image:
    sha256, isa = _text(r["sha256"]), r["ptx_isa"]
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256!r:.40} is no SHA-256")
    kind, architecture = ImageKind(r["kind"]), Architecture.parse(_text(r["architecture"]))
    return Image(
        kind,
        architecture,
        sha256,
        _count(r["size"]),
        _text(r["toolchain"]),
        _version(r["version"]),
        None if isa is None else _version(isa),
    )


def _group(g: dict[str, Any]) -> GroupRecord:
    interface = g["interface"]
    return GroupRecord(
        _name(g["name"]),
        Role(g["role"]),
        tuple(map(_name, _list(g["key"]))),
        None if interface is None else _header(interface),
        _truth(g["supplied"]),
    )


def _header(value: object) -> str:
    """The name of a header, as it may stand in an ``#include``."""
    name = _text(value)
    if posixpath.normpath(name).startswith(("/", "..")) or '"' in name or not name.isprintable():
        raise ValueError(f"{name!r:.40} cannot stand in an #include")
    return name
