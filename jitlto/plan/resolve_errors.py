"""The errors of planning: what a configuration leaves open, and values that no fragment has together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.errors import AmbiguousConfigurationError, UnknownValueError
from jitlto.base.types import is_same_value
from jitlto.plan.configuration import describe_choice
from jitlto.record.fragment import Fragment, FragmentKey
from jitlto.record.parameters import parameter_values


def undecided(
    decisions: Mapping[str, Sequence[Fragment]], bound: Mapping[str, str], given: Mapping[str, str]
) -> AmbiguousConfigurationError:
    """Return the error for decisions that a configuration leaves open, with the parameters that would decide.

    Args:
        decisions: By what is open, such as ``several fragments provide op(float)``, the candidates; at least one entry.
        bound: The parameters that have values, given by the caller or by fragments that are chosen already.
        given: Those that the caller gave. Where the others contradict every candidate, they are open too.
    """
    opened = {what: _differences(c, bound) or _differences(c, given) for what, c in decisions.items()}
    for what, values in sorted(opened.items()):
        if not values:
            listed = ", ".join(fragment.key.text for fragment in decisions[what][:3])
            hint = "no parameter tells them apart: add one to key, or name the fragment with planner.add(key)"
            return AmbiguousConfigurationError(f"{what}: {listed}", code="plan-ambiguous-fragments", hint=hint)
    names, choices = _describe_choices(opened.values())
    return AmbiguousConfigurationError(
        f"{min(decisions)}: the configuration leaves open {names}", hint=f"give {choices}"
    )


def undecided_entrypoint(candidates: Sequence[Fragment], bound: Mapping[str, str]) -> AmbiguousConfigurationError:
    """Return the error for entrypoints of several groups, with the parameters that are open for each of these."""
    groups: dict[str, list[Fragment]] = {}
    for fragment in candidates:
        groups.setdefault(fragment.key.group, []).append(fragment)
    ways = []
    for name, group in sorted(groups.items()):
        _, choices = _describe_choices([_differences(group, bound)])
        ways.append(f"entry={name}" + (f" and {choices}" if choices else ""))
    return AmbiguousConfigurationError(
        f"several entrypoints agree: {', '.join(sorted(groups))}",
        code="plan-ambiguous-entrypoint",
        hint="give " + ", or ".join(ways),
    )


def _describe_choices(differences: Iterable[Mapping[str, Iterable[str]]]) -> tuple[str, str]:
    """Return the names of open parameters, and all of them with their values."""
    values: dict[str, set[str]] = {}
    for each in differences:
        for name, several in each.items():
            values.setdefault(name, set()).update(several)
    return ", ".join(sorted(values)), "; ".join(describe_choice(name, values[name]) for name in sorted(values))


def _differences(candidates: Iterable[Fragment], bound: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    values = parameter_values(candidates)
    return {name: several for name, several in values.items() if name not in bound and len(several) > 1}


def no_value(what: str, pool: Sequence[FragmentKey], bound: Mapping[str, str]) -> UnknownValueError:
    """Return the error for values that exist, but not together.

    It names each parameter that alone would have to be different for a fragment of the pool to match; if there is none,
    all of them.

    Args:
        what: What is looked for, such as ``entrypoint``.
        pool: The keys of the fragments among which none matches.
        bound: The configuration.
    """
    relevant = {name for key in pool for name, _ in key.parameters}
    given = {name: value for name, value in bound.items() if name in relevant}
    others: dict[str, set[str]] = {}
    for key in pool:
        if len(apart := _apart(key, given)) == 1:
            ((name, value),) = apart
            others.setdefault(name, set()).add(value)
    for name, values in sorted(others.items()):
        for value in sorted(values):
            if is_same_value(given[name], value):
                return UnknownValueError(
                    f"no {what} has {name}={given[name]}, but one has {name}={value}, which is the same type",
                    code="plan-unknown-value-spelling",
                    hint=f"spell {name} in one way in all matrices of the family",
                )
    first = [f"{name}={given[name]}" for name in sorted(others)]
    rest = [f"{name}={value}" for name, value in sorted(given.items()) if name not in others]
    listed = " with ".join(", ".join(part) for part in (first, rest) if part)
    choices = ", or ".join(describe_choice(name, values) for name, values in sorted(others.items()))
    return UnknownValueError(
        f"no {what} has {listed}",
        code="plan-unknown-value-combination",
        hint=f"give {choices} instead" if choices else "`jitlto ls DB` lists the combinations that exist",
    )


def _apart(key: FragmentKey, configuration: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the parameters of a key that contradict a configuration."""
    return [(name, value) for name, value in key.parameters if configuration.get(name, value) != value]
