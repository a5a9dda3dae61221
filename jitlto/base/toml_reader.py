"""Reading of TOML documents into typed structs, with errors that name file, table and key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.diagnostic import Location
from jitlto.base.errors import JitltoError
from jitlto.base.text import suggest

T = TypeVar("T", bound=msgspec.Struct)

_HEAD = re.compile(r"\s*\[+([^\[\]#]+)\]")
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")  # what tomllib writes


class TomlTable:
    """A table of a TOML document.

    Args:
        path: The file, for messages.
        error: The class of errors; their codes begin with its code.
        values: The keys and values.
        name: The dotted name of the table, empty for the document itself.
    """

    def __init__(self, path: Path, error: type[JitltoError], values: Mapping[str, object], name: str = "") -> None:
        self.path = path
        self.values = values
        self.name = name
        self._raises = error

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def table(self, key: str, *, required: bool = True) -> TomlTable:
        """Return the subtable ``key``; an empty one if it is missing and not required."""
        name = f"{self.name}.{key}" if self.name else key
        values = self.values.get(key, None if required else {})
        if not isinstance(values, Mapping):
            what = f"missing table [{name}]" if values is None else f"{name} is not a table"
            raise TomlTable(self.path, self._raises, {}).error(what, case="missing-table")
        return TomlTable(self.path, self._raises, values, name)

    def check_keys(self, known: Iterable[str]) -> None:
        """Check that the table has no unknown keys; the error names the nearest known one."""
        known = list(known)
        for key in self.values:
            if key not in known:
                hint = suggest(key, known, f"the known keys are {', '.join(known)}")
                raise self.error(f"unknown key {key!r}", hint, case="unknown-key")

    def decode(self, kind: type[T]) -> T:
        """Decode the table into a struct. Its fields are the allowed keys; those without a default are required."""
        fields = _fields_of(kind)
        self.check_keys(field.encode_name for field in fields)
        for field in fields:
            if field.required and field.encode_name not in self.values:
                raise self.error(f"missing key {field.encode_name!r}", case="missing-key")
        try:
            decoder(kind)
            return msgspec.convert(self.values, kind)
        except (msgspec.ValidationError, RecursionError) as error:
            what, _, place = str(error).partition(" - at `$.")
            key = place.rstrip("`")
        if what.startswith("Invalid enum value"):
            hints = get_type_hints(kind)[key]
            parts = (hints, *get_args(hints))
            choices = [json.dumps(c) for part in parts if get_origin(part) is Literal for c in get_args(part)]
            choices += [f'a list: ["{self.values[key]}"]' for part in parts if get_origin(part) is tuple]
            raise self.error(f"invalid {key} {self.values[key]!r}", f"write {' or '.join(choices)}")
        quote = re.fullmatch(r"Expected `str.*`, got `(?:int|float|bool)`", what)
        raise self.error(f"invalid {key}: {what[:1].lower()}{what[1:]}", "write it in quotes" if quote else None)

    def error(self, what: str, hint: str | None = None, *, case: str = "invalid-value") -> JitltoError:
        """Return an error that names the file and this table; its code is the class's and the case."""
        where = find_place(self.path, self.name, what)
        return self._raises(what, code=f"{self._raises.code}-{case}", where=where, hint=hint)


def find_place(path: Path, table: str, what: str) -> Location:
    """Return the place of a TOML document that a message about a table is about, as far as the document can be read.

    It is the first line of the table that has what the message quotes; or else that of the key with which it begins; or
    else the table's head.
    """
    about = f"in [{table}]" if table else ""
    try:
        lines = files.read(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return Location(str(path), about=about)
    heads = {n: re.sub(r"[\s\"']", "", match[1]) for n, line in enumerate(lines, 1) if (match := _HEAD.match(line))}
    inside, own = table == "", list[tuple[int, str]]()
    for number, line in enumerate(lines, 1):
        inside = f"{heads[number]}.".startswith(f"{table}.") if table and number in heads else inside
        own += [(number, line)] * inside
    key = re.match(r"(?:invalid )?([\w-]+)", what)
    for name in [*re.findall(r"'([^']+)'", what), *([key[1]] if key else [])]:
        mention = re.compile(rf"[\"']{re.escape(name)}[\"']|^\s*\[*\s*(?:[\w-]+\s*\.\s*)*{re.escape(name)}\s*[]=.]")
        if found := next((number for number, line in own if mention.search(line)), None):
            return Location(str(path), found, about=about)
    return Location(str(path), own[0][0] if table and own else None, about=about)


_fields_of = cache(msgspec.structs.fields)  # which takes milliseconds


def read_toml(path: Path, error: type[JitltoError]) -> TomlTable:
    """Read a TOML document.

    Raises:
        JitltoError: Of class ``error``, if the file cannot be read or is not TOML.
    """
    table = TomlTable(path, error, {})
    try:
        text = files.read(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as why:
        reason = "not UTF-8 text" if isinstance(why, UnicodeDecodeError) else getattr(why, "strerror", why)
        hint = "save the file as UTF-8" if isinstance(why, UnicodeDecodeError) else "check the path"
        raise table.error(f"cannot be read: {reason}", hint, case="unreadable") from None
    try:
        return TomlTable(path, error, tomllib.loads(text))
    except (ValueError, RecursionError) as why:  # also of a literal of thousands of digits, which int() rejects
        fault = "nested too deeply" if isinstance(why, RecursionError) else str(why)
        found = table.error(f"invalid TOML: {_AT.sub('', fault)}", case="syntax")
        if at := _AT.search(fault):
            last = text.count("\n") + 1, len(text) - text.rfind("\n")  # the end of the document
            line, column = (int(at[1]), int(at[2])) if at[1] else last
            found.place = Location(str(path), line, column)
        raise found from None
