"""Reading of TOML documents into typed structs, with errors that name file, table and key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.diagnostic import Location
from jitlto.base.errors import JitltoError
from jitlto.base.places import find_places
from jitlto.base.text import suggest

T = TypeVar("T", bound=msgspec.Struct)

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")  # what tomllib writes


class TomlTable:
    """A table of a TOML document.

    Args:
        path: The file, for messages.
        error: The class of errors; their codes begin with its code.
        values: The keys and values.
        names: Those that lead to the table, none for the document itself.
    """

    def __init__(self, path: Path, error: type[JitltoError], values: Mapping[str, object], *names: str) -> None:
        self.path = path
        self.values = values
        self.names = names
        self._raises = error

    def table(self, key: str, *, required: bool = True) -> TomlTable:
        """Return the subtable ``key``; an empty one if it is missing and not required."""
        values, name = self.values.get(key, None if required else {}), ".".join((*self.names, key))
        if not isinstance(values, Mapping):
            what = f"missing table [{name}]" if values is None else f"{name} is not a table"
            raise self.error(what, None, key, case="missing-table")
        return TomlTable(self.path, self._raises, values, *self.names, key)

    def check_keys(self, known: Iterable[str]) -> None:
        """Check that the table has no unknown keys; the error names the nearest known one."""
        known = list(known)
        for key in self.values:
            if key not in known:
                hint = suggest(key, known, f"the known keys are {', '.join(known)}")
                raise self.error(f"unknown key {key!r}", hint, key, case="unknown-key")

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
            key, at = place.rstrip("`"), re.findall(r"[\w-]+", place)
        if what.startswith("Invalid enum value"):
            hints = get_type_hints(kind)[key]
            parts = (hints, *get_args(hints))
            choices = [json.dumps(c) for part in parts if get_origin(part) is Literal for c in get_args(part)]
            choices += [f'a list: ["{self.values[key]}"]' for part in parts if get_origin(part) is tuple]
            raise self.error(f"invalid {key} {self.values[key]!r}", f"write {' or '.join(choices)}", key)
        quote = re.fullmatch(r"Expected `str.*`, got `(?:int|float|bool)`", what)
        raise self.error(f"invalid {key}: {what[:1].lower()}{what[1:]}", "write it in quotes" if quote else None, *at)

    def error(self, what: str, hint: str | None = None, *at: str | int, case: str = "invalid-value") -> JitltoError:
        """Return an error that names the file and this table; its code is the class's and the case.

        Args:
            at: The names and numbers that lead to what it is about, as in :func:`find_place`.
        """
        where = find_place(self.path, self.names, *at)
        return self._raises(what, code=f"{self._raises.code}-{case}", where=where, hint=hint)


def find_place(path: Path, table: Sequence[str], *at: str | int) -> Location:
    """Return the place of a member or element in a table of a TOML document, or of the nearest that is around it.

    Args:
        path: The file, which is read again.
        table: The names that lead to the table.
        at: Names and numbers that lead on from there, written as in a JSON pointer.
    """
    place: tuple[int | None, int | None] = (None, None)
    with suppress(OSError, ValueError, IndexError):  # it may have been changed
        places = find_places(files.read(path).decode("utf-8-sig"), is_toml=True)
        for pointer in accumulate((*table, *at), "{}/{}".format, initial=""):
            place = places.get(pointer, place)
    return Location(str(path), *place, about=f"in [{'.'.join(table)}]" if table else "")


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
        reason, hint = getattr(why, "strerror", why), "check the path"
        if isinstance(why, UnicodeDecodeError):
            reason, hint = "not UTF-8 text", "save the file as UTF-8"
            if files.is_database(path):
                reason, hint = "it is a fragment database", "name a family.toml, or the directory of one"
        raise table.error(f"cannot be read: {reason}", hint, case="unreadable") from None
    try:
        return TomlTable(path, error, tomllib.loads(text))
    except (ValueError, RecursionError) as why:  # also of a literal of thousands of digits, which int() rejects
        fault = "nested too deeply" if isinstance(why, RecursionError) else str(why)
        found = table.error(f"invalid TOML: {_AT.sub('', fault)}", case="syntax")
        if at := _AT.search(fault):
            last = text.count("\n") + 1, len(text) - text.rfind("\n")  # the end of the document
            found.place = Location(str(path), *((int(at[1]), int(at[2])) if at[1] else last))
        raise found from None
