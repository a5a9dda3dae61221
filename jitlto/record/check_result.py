"""The result of a check, as ``jitlto check --json`` prints and ``jitlto report --check`` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.errors import JitltoError

Count = Annotated[int, msgspec.Meta(ge=0)]

_HINT = "create it with `jitlto check DB --json > FILE`"


class Place(msgspec.Struct, frozen=True):
    """The place of a finding: a fragment's key or a family's name, the configuration, and the target of the link."""

    subject: str
    configuration: dict[str, str]
    arch: str | None = None
    message: str = ""


class Cause(msgspec.Struct, frozen=True):
    """One cause of failures, everywhere it was found; ``message``, ``hint`` and ``log`` are those of the first."""

    kind: str
    archs: tuple[str, ...]
    message: str
    hint: str | None
    log: str
    at: tuple[Place, ...]
    count: Count = 0
    code: str = ""


class Note(msgspec.Struct, frozen=True):
    """A finding that is not a failure."""

    kind: str
    message: str
    subject: str
    configuration: dict[str, str]


class FamilyCheck(msgspec.Struct, frozen=True):
    """A family's kernels as planned.

    Args:
        completed_by_callers: How many kernels need callers' code.
        compared: In how many pairs of fragments inline functions were compared; None if they were not.
    """

    family: str
    holds: bool
    kernels: Count
    completed_by_callers: Count
    failures: tuple[Cause, ...]
    notes: tuple[Note, ...]
    fragments: Count = 0
    compared: Count | None = None


class FamilyLinks(msgspec.Struct, frozen=True):
    """A family's kernels as linked.

    Args:
        linked, kernels: How many kernels were linked for each target, of how many that need no callers' code.
        cover, tuples: The strength of the covering array, and how many combinations of values it covers; None if all
            were linked.
        completed_by_callers: How many kernels cannot be linked without callers' code.
        known: How many of the links an earlier check had made, so that they were not made again.
    """

    family: str
    holds: bool
    linked: Count
    kernels: Count
    cover: Count | None
    tuples: Count | None
    failures: tuple[Cause, ...]
    completed_by_callers: Count = 0
    known: Count = 0

    @property
    def tuple_name(self) -> str:
        """What a covering array covers, such as ``pairs of values``."""
        names = {1: "values", 2: "pairs of values", 3: "triples of values"}
        return names.get(self.cover or 0, f"{self.cover}-tuples of values")


class LinkCheck(msgspec.Struct, frozen=True):
    """The links of a check: targets, nvJitLink version and families; ``mode`` is ``lto`` or ``ptx``."""

    archs: tuple[str, ...]
    mode: str
    nvjitlink: str
    families: tuple[FamilyLinks, ...]
    seconds: float = 0.0


class CheckResult(msgspec.Struct, frozen=True):
    """The result for the database with this digest; ``link`` is None if nothing was linked.

    Args:
        shard: The share of the links and comparisons that was made, as ``2/4``; empty for all of them.
    """

    digest: str
    holds: bool
    families: tuple[FamilyCheck, ...]
    link: LinkCheck | None
    database: str = ""
    shard: str = ""

    def links_of(self, family: str) -> FamilyLinks | None:
        """Return the links of a family, if it was linked."""
        return next((links for links in self.link.families if links.family == family), None) if self.link else None

    def only(self, family: str) -> CheckResult:
        """Return the result for one family alone."""
        link = self.link
        if link:
            link = msgspec.structs.replace(link, families=tuple(x for x in link.families if x.family == family))
        families = tuple(each for each in self.families if each.family == family)
        return msgspec.structs.replace(self, families=families, link=link)


def read_check_result(path: Path) -> CheckResult:
    """Read a result from a file.

    Raises:
        JitltoError: If the file cannot be read or is not the result of a check.
    """
    try:
        return decoder(CheckResult).decode(files.read(path))
    except OSError as error:
        what, code = f"cannot be read: {error.strerror}", "jitlto-unreadable-file"
        raise JitltoError(what, code=code, where=str(path), hint=_HINT) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        what, code = f"not a result of jitlto check: {error}", "jitlto-malformed-file"
        raise JitltoError(what, code=code, where=str(path), hint=_HINT) from error
