"""Values of a family's parameters that callers should no longer give: kept alive, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jitlto.model.types import cpp_name


class DeprecatedValueWarning(DeprecationWarning):
    """A caller gives a value that the author of a family has deprecated."""


class DeprecatedValue(NamedTuple):
    """A value that callers should no longer give.

    Args:
        parameter, value: The value, which fragments may still have.
        use: The value to give instead, which stands in for it once no fragment has it; "" if there is none.
        message: What callers should know besides.
    """

    parameter: str
    value: str
    use: str
    message: str

    def describe(self, family: str) -> str:
        """Return the warning's text."""
        text = f"{self.parameter}={self.value} of {family} is deprecated"
        text += f": use {self.parameter}={self.use}" if self.use else ""
        return f"{text}: {self.message}" if self.message else text


def replace_deprecated(
    deprecated: Sequence[DeprecatedValue],
    configuration: Mapping[str, object],
    known: Mapping[str, Sequence[str]],
    family: str,
    warned: set[DeprecatedValue],
) -> dict[str, object]:
    """Return a configuration with the replacements of deprecated values that no fragment has, and warn of all.

    Args:
        deprecated: The family's deprecated values.
        configuration: Values as callers give them.
        known: The family's parameters and the values that its fragments have.
        family: The family's name.
        warned: The values of which it has been warned; added to.
    """
    result = dict(configuration)
    for each in deprecated:
        if each.parameter not in configuration or _text(configuration[each.parameter]) != each.value:
            continue
        if each.use and each.value not in known.get(each.parameter, ()):
            result[each.parameter] = each.use
        if each not in warned:
            warned.add(each)
            warnings.warn(each.describe(family), DeprecatedValueWarning, stacklevel=_callers_level())
    return result


def _callers_level() -> int:
    """Return the level in the stack, seen from the function that calls this one, of the code that called jitlto."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(__name__.partition(".")[0] + "."):
        level, frame = level + 1, frame.f_back
    return level


def _text(value: object) -> str | None:
    try:
        return cpp_name(value)
    except TypeError:  # which planning reports
        return None
