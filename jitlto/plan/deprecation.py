"""Values of a family's parameters that callers should no longer give: kept alive, with a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.python_warnings import DeprecatedValueWarning, warn
from jitlto.base.types import cpp_name
from jitlto.plan.configuration import find_same_values, is_exact_name
from jitlto.record.family_record import DeprecatedValue


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
    for name, value in configuration.items():
        entries = {each.value: each for each in reversed(deprecated) if each.parameter == name}
        found = _find_value(value, known.get(name, ()), entries) if entries else None
        if found is None or found not in entries:
            continue
        each = entries[found]
        if each.use and each.value not in known.get(name, ()):
            result[name] = each.use
        if each not in warned:
            warned.add(each)
            warn(DeprecatedValueWarning(each.describe(family)))
    return result


def _find_value(value: object, known: Sequence[str], deprecated: Iterable[str]) -> str | None:
    """Return the value that a caller means: one that fragments have, or else a deprecated one; None if it is not sure.

    As everywhere, a name that is given as text means itself before it means another name of the same type.
    """
    try:
        text = cpp_name(value)
    except TypeError:  # which planning reports
        return None
    if is_exact_name(value, text) and (text in known or text in deprecated):
        return text
    same = find_same_values(text, known) or find_same_values(text, deprecated)
    return same[0] if len(same) == 1 else None
