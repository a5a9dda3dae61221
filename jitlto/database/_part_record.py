"""The record of a part of a sharded build, in ``meta.part``.

It lists the keys of the whole build, so that a merge can say what is missing. They are most of a part: of a group's
sorted keys, only the values in which a key differs from the one before are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise

import msgspec
from msgspec import Struct

from jitlto.database._serialization import Count, InvalidRecordError, decode, encode
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import FragmentKey, Name

_Parameters = tuple[tuple[str, str], ...]


class _Keys(Struct):
    """Keys of one group, sorted.

    Args:
        family, group, parameters: What they have in common; the parameters by name, sorted.
        values: For each key the values from the first parameter on in which it differs from the key before.
    """

    family: Name
    group: Name
    parameters: tuple[Name, ...]
    values: list[tuple[str, ...]]


class _Part(Struct):
    number: Count
    count: Count
    whole: str
    keys: msgspec.Raw
    toolchains: dict[str, str]
    advice: tuple[str, ...]
    faults: tuple[tuple[Name, str, str], ...] = ()


def encode_part(part: PartRecord) -> bytes:
    """Encode the record of a part of a build."""
    return encode(
        {
            "number": part.number,
            "count": part.count,
            "whole": part.whole,
            "keys": list(_group_keys(part.keys)),
            "toolchains": dict(part.toolchains),
            "advice": part.advice,
            "faults": part.faults,
        }
    )


def _group_keys(keys: Iterable[FragmentKey]) -> Iterator[_Keys]:
    def common(key: FragmentKey) -> tuple[str, str, tuple[str, ...]]:
        return key.family, key.group, tuple(name for name, _ in key.parameters)

    for (family, group, names), several in groupby(keys, common):
        values = [tuple(value for _, value in key.parameters) for key in several]
        yield _Keys(family, group, names, [values[0], *(_difference(*two) for two in pairwise(values))])


def _difference(previous: Sequence[str], values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values from the first one on that differs."""
    same = 0
    while same < len(values) and values[same] == previous[same]:
        same += 1
    return values[same:]


def decode_part(record: bytes) -> PartRecord:
    """Decode the record of a part of a build.

    Raises:
        InvalidRecordError, JitltoError: If it is invalid.
    """
    r = decode(_Part, record)
    keys = _decode_keys(bytes(r.keys))
    return PartRecord(
        r.number,
        r.count,
        r.whole,
        keys,
        tuple(sorted(r.toolchains.items())),
        r.faults,
        r.advice,
    )


# Every part of a build has all keys of the build: a merge of many parts could not hold them for each.
@lru_cache(maxsize=1)
def _decode_keys(record: bytes) -> tuple[FragmentKey, ...]:
    keys: list[FragmentKey] = []
    for each in decode(list[_Keys | str], record):
        if isinstance(each, str):  # as jitlto 0.1 wrote them
            keys.append(FragmentKey.parse(each))
        else:
            keys += (FragmentKey(each.family, each.group, parameters) for parameters in _list_parameters(each))
    return tuple(sorted(keys))


def _list_parameters(keys: _Keys) -> Iterator[_Parameters]:
    names = keys.parameters
    if list(names) != sorted(set(names)):
        raise InvalidRecordError("the names of a key's parameters are not sorted")
    known: tuple[str, ...] = ()
    for values in keys.values:
        if not 0 <= len(names) - len(values) <= len(known):
            raise InvalidRecordError("a key has another number of values than of parameters")
        known = (*known[: len(names) - len(values)], *values)
        yield tuple(zip(names, known, strict=True))
