"""What is wrong with something, as one value: builds, checks and plans find it, commands and editors show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_MOST_NOTES = 5


class Severity(StrEnum):
    """Whether something fails, is probably a mistake, or says more about another."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a text that an author can open.

    Args:
        path: The file, or what the text is called.
        line, column: From 1, where they are known.
        about: What is meant there, as the end of a message has it: ``in [device.op]``, ``(group op, type=int)``.
    """

    path: str
    line: int | None = None
    column: int | None = None
    about: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        return f"{place} {self.about}".rstrip()


@dataclass(frozen=True)
class Diagnostic:
    """One thing that was found. Its text is what compilers write, without the severity.

    Args:
        path: The file that an author can open; None if there is none.
        line, column: From 1, where they are known.
        code: Stable; that of the error, or one that begins as those of its class do.
        message: What is wrong, in one line; the log of a compiler or linker may follow.
        notes: Other places that belong to it, and where it was found.
        hint: What to do about it.
    """

    path: str | None
    line: int | None
    column: int | None
    severity: Severity
    code: str
    message: str
    notes: tuple[Diagnostic, ...] = ()
    hint: str | None = None

    @classmethod
    def at(
        cls,
        where: Location | str | None,
        message: str,
        code: str,
        severity: Severity = Severity.ERROR,
        *,
        notes: Sequence[Diagnostic] = (),
        hint: str | None = None,
    ) -> Diagnostic:
        """Return what was found at a place, or in what is no file, with which the message then begins."""
        first, newline, rest = message.partition("\n")
        if not isinstance(where, Location):
            whole = f"{where}: {message}" if where else message
            return cls(None, None, None, severity, code, whole, tuple(notes), hint)
        whole = f"{first} {where.about}".rstrip() + newline + rest
        return cls(where.path, where.line, where.column, severity, code, whole, tuple(notes), hint)

    @classmethod
    def note(cls, where: Location | None, message: str) -> Diagnostic:
        """Return a note."""
        return cls.at(where, message, "", Severity.NOTE)

    def __str__(self) -> str:
        first, newline, rest = self.message.partition("\n")
        place = f"{Location(self.path, self.line, self.column)}: " if self.path else ""
        lines = [f"{place}{first}{f' [{self.code}]' if self.code else ''}{newline}{rest}"]
        lines += [f"  note: {note}" for note in self.notes[:_MOST_NOTES]]
        if len(self.notes) > _MOST_NOTES:
            lines.append(f"  and {len(self.notes) - _MOST_NOTES} more")
        return "\n".join(lines + [f"  hint: {self.hint}"] * bool(self.hint))
