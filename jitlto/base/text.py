"""Wording shared by messages of both wings and the command line."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 200  # characters of a value in a message
_DIGEST = r"\b([0-9a-f]{12})[0-9a-f]{20,}\b"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 kernel``, ``2 kernels``, ``2 histories``, ``2 keys``."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{count} {noun}s"


def check_type(value: object, expected: type | tuple[type, ...], what: str) -> None:
    """Check an argument of a public function.

    Args:
        what: The rule, e.g. "family must be a name".

    Raises:
        TypeError: If the value is of none of the expected types.
    """
    if not isinstance(value, expected):
        raise TypeError(f"{what}, not {type(value).__name__}")


def abbreviate(value: object) -> str:
    """Return the ``repr`` of a caller's value, at most 200 characters of it."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - its own code failed, or an integer has too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean 'x'?`` with the nearest of the known names, or ``otherwise`` if none is near.

    Of those near, one that begins with the same letter is the nearest: ``data_type`` for ``dtype``, not ``idx_type``.
    """
    import difflib  # 3 ms, after a mistake alone

    near = difflib.get_close_matches(name, list(known))
    best = min(near, key=lambda each: each[:1] != name[:1], default=None)
    return f"did you mean {best!r}?" if best else otherwise


def suggest_file(name: str, places: Iterable[Path]) -> str:
    """Return ``did you mean 'x'?`` with the nearest file of its kind in directories and those in them, or nothing."""
    kind = Path(name).suffix
    found = ((place, path) for place in places for form in ("*", "*/*") for path in place.glob(form))
    known = [str(path.relative_to(place)) for place, path in found if path.suffix == kind]
    return suggest(name, [each for each in known if each.endswith(f"/{name}")] or known)


def describe_differences(one: str, other: str) -> tuple[str, str]:
    """Return, for each of two identities of compilers, the lines that the other lacks; of digests 12 digits."""
    lines = [text.splitlines() for text in (one, other)]
    mine, theirs = ("; ".join(line for line in each if line not in rest) for each, rest in (lines, lines[::-1]))
    return re.sub(_DIGEST, r"\1", mine or one), re.sub(_DIGEST, r"\1", theirs or other)


def format_bytes(count: int) -> str:
    """Return a number of bytes with three digits and a binary unit.

    >>> format_bytes(999), format_bytes(31_500), format_bytes(19_375_067)
    ('999 B', '30.8 KiB', '18.5 MiB')
    """
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.{0 if value >= 99.95 else 1}f} {_UNITS[unit]}"


def word(value: object) -> str:
    """Return a value as it is if its end is unambiguous, and else as JSON, which can escape anything."""
    if isinstance(value, str) and value and value.isascii() and value.isprintable() and not set(value) & {*' "='}:
        return value
    return json.dumps(value)


def hang(begin: str, text: str, columns: int, below: str = "") -> list[str]:
    """Return a text in lines of so many characters, the first behind ``begin`` and others behind ``below``."""
    import textwrap  # imported lazily: for output alone

    return textwrap.TextWrapper(columns, begin, below, break_long_words=False, break_on_hyphens=False).wrap(text)
