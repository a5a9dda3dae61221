"""What ``jitlto check --json`` found, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jitlto.errors import JitltoError
from jitlto.storage import files

_HINT = "write it with jitlto check DB --json > FILE"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was found: a fragment's key or a family's name, the values concerned, the target."""

    subject: str
    configuration: tuple[tuple[str, str], ...]
    arch: str | None


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that does not hold, or is worth knowing, and everywhere it was found."""

    kind: str
    message: str
    hint: str | None
    log: str
    archs: tuple[str, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class FamilyVerdict:
    """What was found of a family.

    Parameters
    ----------
    kernels, completed_by_callers : int
        How many plan, and how many of these need callers' code.
    failures, notes : tuple of Cause
        What does not hold when planned, and what is worth knowing.
    linked, linkable : int or None
        How many kernels were linked, of how many; None if none was asked for.
    strength, tuples : int or None
        Of ``--cover``: every so many values that occur together were linked, so many tuples in all.
    link_failures : tuple of Cause
        What does not link.
    """

    family: str
    holds: bool
    kernels: int
    completed_by_callers: int
    failures: tuple[Cause, ...]
    notes: tuple[Cause, ...]
    linked: int | None = None
    linkable: int | None = None
    strength: int | None = None
    tuples: int | None = None
    link_failures: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Parameters
    ----------
    digest : str
        Of the database that was checked.
    holds : bool
        Whether all of it holds.
    families : tuple of FamilyVerdict
        In the order of the file.
    archs : tuple of str
        For which was linked.
    mode, nvjitlink : str or None
        How, and with which.
    """

    digest: str
    holds: bool
    families: tuple[FamilyVerdict, ...]
    archs: tuple[str, ...] = ()
    mode: str | None = None
    nvjitlink: str | None = None

    def of(self, family: str) -> FamilyVerdict | None:
        """What was found of a family, if it was checked."""
        return next((verdict for verdict in self.families if verdict.family == family), None)


def read(path: Path) -> Verdict:
    """Read a check's result.

    Raises
    ------
    JitltoError
        If the file cannot be read or is no such result.
    """
    try:
        document = json.loads(files.read(path).decode())
    except OSError as error:
        raise JitltoError(f"cannot be read: {error.strerror}", where=str(path), hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise JitltoError(f"is no JSON: {error}", where=str(path), hint=_HINT) from error
    try:
        return _verdict(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        lacks = f": it has no {error.args[0]!r}" if isinstance(error, KeyError) else ""
        raise JitltoError(f"is no result of a check{lacks}", where=str(path), hint=_HINT) from error


def _verdict(document: Any) -> Verdict:
    link = document["link"]
    linked = {item["family"]: item for item in _list(link["families"])} if link else {}
    verdict = Verdict(
        _text(document["digest"]),
        _flag(document["holds"]),
        tuple(_family(item, linked.get(item["family"])) for item in _list(document["families"])),
    )
    if not link:
        return verdict
    archs, mode, nvjitlink = tuple(map(_text, _list(link["archs"]))), _text(link["mode"]), _text(link["nvjitlink"])
    return replace(verdict, archs=archs, mode=mode, nvjitlink=nvjitlink)


def _family(item: Any, link: Any) -> FamilyVerdict:
    verdict = FamilyVerdict(
        _text(item["family"]),
        _flag(item["holds"]),
        _count(item["kernels"]),
        _count(item["completed_by_callers"]),
        tuple(map(_cause, _list(item["failures"]))),
        tuple(Cause(_text(n["kind"]), _text(n["message"]), None, "", (), (_place(n),)) for n in _list(item["notes"])),
    )
    if link is None:
        return verdict
    return replace(
        verdict,
        holds=verdict.holds and _flag(link["holds"]),
        linked=_count(link["linked"]),
        linkable=_count(link["kernels"]),
        strength=None if link["cover"] is None else _count(link["cover"]),
        tuples=None if link["tuples"] is None else _count(link["tuples"]),
        link_failures=tuple(map(_cause, _list(link["failures"]))),
    )


def _cause(item: Any) -> Cause:
    hint = item["hint"]
    return Cause(
        _text(item["kind"]),
        _text(item["message"]),
        None if hint is None else _text(hint),
        _text(item["log"]),
        tuple(map(_text, _list(item["archs"]))),
        tuple(map(_place, _list(item["at"]))),
    )


def _place(item: Mapping[str, Any]) -> Place:
    values = tuple((_text(name), _text(value)) for name, value in item["configuration"].items())
    arch = item.get("arch")
    return Place(_text(item["subject"]), values, None if arch is None else _text(arch))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
