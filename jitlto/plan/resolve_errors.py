"""The errors of planning: what a configuration leaves open, and values that no fragment has together."""

from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.errors import AmbiguousConfigurationError, PlanError, UnknownValueError
from jitlto.plan.configuration import describe_choice
from jitlto.record.fragment import FragmentKey, agrees, sorted_values


def undecided(
    decisions: Mapping[str, Sequence[FragmentKey]], bound: Mapping[str, str], given: Mapping[str, str]
) -> AmbiguousConfigurationError:
    """Return the error for decisions that a configuration leaves open, with the parameters that would decide.

    Args:
        decisions: The keys of the candidates by what is open, such as ``several fragments provide op(float)``.
        bound: The parameters that have values, given by the caller or by fragments that are chosen already.
        given: Those that the caller gave. Where the others contradict every candidate, they are open too.
    """
    opened = {what: _differences(c, bound) or _differences(c, given) for what, c in decisions.items()}
    for what, values in sorted(opened.items()):
        if not values:
            listed = ", ".join(key.text for key in decisions[what][:3])
            return AmbiguousConfigurationError(
                f"{what}: {listed}",
                code="plan-ambiguous-fragments",
                hint="no parameter tells them apart: add one to key, or name the fragment with planner.add(key)",
            )
    values = sorted_values(pair for each in opened.values() for pair in each.items())
    choices = "; ".join(describe_choice(name, several) for name, several in values.items())
    return AmbiguousConfigurationError(
        f"{min(decisions)}: the configuration leaves open {', '.join(values)}", hint=f"give {choices}"
    )


def _differences(candidates: Iterable[FragmentKey], bound: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    values = sorted_values((name, (value,)) for key in candidates for name, value in key.parameters)
    return {name: several for name, several in values.items() if name not in bound and len(several) > 1}


def which_entrypoint(keys: Sequence[FragmentKey], bound: Mapping[str, str], group: str | None) -> PlanError:
    """Return the error for a configuration with which none of a family's entrypoints agrees, or several.

    Args:
        keys: Those of all entrypoints.
        bound: The configuration.
        group: The group that is asked for; None for any.
    """
    asked = [key for key in keys if group in (None, key.group)]
    agreeing = [key for key in asked if agrees(key.parameters, bound)]
    if len(several := sorted({key.group for key in agreeing})) > 1:
        listed = ", ".join(several)
        what, hint = f"several entrypoints agree: {listed}", f"give entry ({listed})"
        return AmbiguousConfigurationError(what, code="plan-ambiguous-entrypoint", hint=hint)
    if several:
        return undecided({f"several {several[0]} fragments agree": agreeing}, bound, bound)
    if asked:
        return no_value("entrypoint", asked, bound)
    groups = sorted({key.group for key in keys})
    what = f"no entrypoint {group!r}" if groups else "the family has no entrypoint"
    hint = f"the entrypoints are {', '.join(groups)}" if groups else "its groups are for families that use it"
    return PlanError(what, code="plan-unknown-entrypoint", hint=hint)


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
        apart = [(name, value) for name, value in key.parameters if given.get(name, value) != value]
        if len(apart) == 1:
            ((name, value),) = apart
            others.setdefault(name, set()).add(value)
    first = [f"{name}={given[name]}" for name in sorted(others)]
    rest = [f"{name}={value}" for name, value in sorted(given.items()) if name not in others]
    listed = " with ".join(", ".join(part) for part in (first, rest) if part)
    choices = ", or ".join(describe_choice(name, values) for name, values in sorted(others.items()))
    return UnknownValueError(
        f"no {what} has {listed}",
        code="plan-unknown-value-combination",
        hint=f"give {choices} instead" if choices else "`jitlto ls -l DB` lists the combinations that exist",
    )
