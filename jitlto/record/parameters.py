"""The parameters of fragment keys: whether they agree with a configuration, and the values that occur."""

from collections.abc import Iterable, Mapping

from jitlto.record.fragment import FragmentKey


def agrees(key: FragmentKey, configuration: Mapping[str, str]) -> bool:
    """Return whether no parameter of a key contradicts a configuration; parameters that it does not name are free."""
    return all(configuration.get(name, value) == value for name, value in key.parameters)


def sorted_values(several: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """Join values by parameter: return each parameter with all of its values, both sorted."""
    values: dict[str, set[str]] = {}
    for name, some in several:
        values.setdefault(name, set()).update(some)
    return {name: tuple(sorted(values[name], key=numbers_first)) for name in sorted(values)}


def numbers_first(text: str) -> tuple[int, float, str]:
    return (0, float(text), text) if text.isdecimal() else (1, 0.0, text)
