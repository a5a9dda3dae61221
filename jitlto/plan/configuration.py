"""Configurations: the parameter values that choose a kernel, spelled as the family spells them."""

from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.errors import AmbiguousConfigurationError, PlanError, UnknownParameterError, UnknownValueError
from jitlto.base.text import suggest
from jitlto.base.types import cpp_name, find_scalar, from_numpy_name, is_same_value
from jitlto.record.fragment import numbers_first

#: The ways to link fragments.
LINK_MODES = ("lto", "ptx", "sass")


def normalize_configuration(
    configuration: Mapping[str, object], known: Mapping[str, Sequence[str]], family: str
) -> dict[str, str]:
    """Spell a configuration as the family's fragments do.

    Args:
        configuration: Values as text, numbers, booleans or dtypes.
        known: The family's parameters and their values.
        family: The family's name, for messages.

    Raises:
        UnknownParameterError: If the family has no such parameter; suggests the nearest.
        UnknownValueError: If no fragment has such a value; suggests the nearest.
        AmbiguousConfigurationError: If a value is a type for which the family has several names, and none of them.
        PlanError: If a value is neither text, a number, a boolean nor a dtype.
    """
    result = {}
    for name, value in configuration.items():
        if name not in known:
            raise UnknownParameterError(
                f"{family} has no parameter {name!r}", hint=_nearest(name, list(known), "parameters")
            )
        try:
            text = cpp_name(value)
        except TypeError as error:
            raise PlanError(
                f"invalid value for parameter {name!r}: {error}", code="plan-invalid-value", where=family
            ) from None
        # The text of a dtype is worth no more than its other names.
        exact = (isinstance(value, str) or find_scalar(text) is None) and text in known[name]
        result[name] = text if exact else _match_value(name, text, known[name], family)
    return result


def allowed_values(
    settings: Iterable[tuple[str, str]], known: Mapping[str, Sequence[str]], family: str
) -> dict[str, set[str]]:
    """Return the values that settings allow, by parameter; a setting may give several, separated by commas.

    Args:
        settings: Parameters and values; a parameter may occur several times.
        known, family: As for :func:`normalize_configuration`, whose errors are raised.
    """
    allowed: dict[str, set[str]] = {}
    for parameter, text in settings:
        # A comma may be part of a value, as in a template's arguments.
        for value in [text] if text in known.get(parameter, ()) else text.split(","):
            spelled = normalize_configuration({parameter: value}, known, family)
            allowed.setdefault(parameter, set()).update(spelled.values())
    return allowed


def _match_value(name: str, text: str, values: Sequence[str], family: str) -> str:
    """Return the family's spelling of a value.

    Raises:
        UnknownValueError: If no fragment has the value.
        AmbiguousConfigurationError: If several of the family's values name its type.
    """
    spelled = from_numpy_name(text)
    same = [v for v in values if is_same_value(text, v) or (spelled and is_same_value(spelled, v))]
    if len(same) > 1:
        raise AmbiguousConfigurationError(
            f"several values of {name} name the type {spelled or text}",
            code="plan-ambiguous-value",
            where=family,
            hint=f"give one as text: {describe_choice(name, same)}",
        )
    if same:
        return same[0]
    # The name of a different type is not a misspelling: the nearest name would be a different precision.
    raise UnknownValueError(
        f"{family} has no {name}={text}",
        hint=_listed("values", values) if spelled or find_scalar(text) else _nearest(text, values, "values"),
    )


def _nearest(given: str, known: Sequence[str], what: str) -> str:
    return f"{suggest(given, known)} {_listed(what, known)}".lstrip()


def _listed(what: str, known: Sequence[str]) -> str:
    return f"its {what} are {', '.join(known) or 'none'}"


def describe_choice(name: str, values: Iterable[str]) -> str:
    """Return a parameter with its possible values: ``name (a, b)``."""
    return f"{name} ({', '.join(sorted(set(values), key=numbers_first))})"
