"""What an entrypoint declares for tuning: its launch choices, read from their matrix, and a check of all names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from jitlto.base.errors import FamilyError
from jitlto.base.text import suggest
from jitlto.families.matrix import load_matrix
from jitlto.families.tuning_rules import TuneDeclaration
from jitlto.record.expressions import ExpressionError, names_in
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import FragmentKey
from jitlto.record.tuning import LAUNCH_NAMES, Pairs, TuneRecord

_MOST_LAUNCHES = 10_000


def tune_record(declared: TuneDeclaration, parameters: Iterable[str]) -> TuneRecord:
    """Return the record of a table ``tune``, with its launch choices.

    Args:
        declared: The table.
        parameters: The key parameters of the family and of those that it uses.

    Raises:
        FamilyError: If it names something that is neither a parameter nor a size, or a launch choice is invalid.
        MatrixError: If the matrix is.
    """
    record, known = declared.record, set(parameters)
    sizes = [name for name, _ in record.sizes]
    for name in record.free:
        _check(name in known, f"free names {name!r}, which is no parameter", name, known, declared)
    for name in sizes:
        _check(name not in known, f"size {name!r} is a parameter too", name, (), declared)
    for text in record.when:
        _check_names(text, {*known, *sizes, *LAUNCH_NAMES}, "when", declared)
    launches = _launches(declared, known, {*known, *sizes})
    return TuneRecord(record.free, record.default, record.sizes, launches, record.link, record.when, record.tolerance)


def _launches(declared: TuneDeclaration, known: set[str], names: set[str]) -> tuple[Pairs, ...]:
    if declared.launch is None:
        return ()
    found: list[Pairs] = []
    for combination in islice(load_matrix(declared.launch).combinations(), _MOST_LAUNCHES + 1):
        choice = {name: str(value) for name, value in combination.items()}
        for name, text in choice.items():
            if name in LAUNCH_NAMES:
                others = {*names, *(each for each in choice if each != name)}
                _check_names(text, others, f"{declared.launch.name}: {name}", declared)
            else:
                known_names = {*known, *LAUNCH_NAMES}
                what = f"{declared.launch.name} names {name!r}, which is neither a parameter nor a part of the launch"
                _check(name in known, what, name, known_names, declared)
        if missing := {"grid", "block"} - choice.keys():
            what = f"{declared.launch.name}: a launch choice has no {min(missing)}"
            raise FamilyError(
                what, code="family-tune", where=declared.where, hint="add it to every branch of the matrix"
            )
        found.append(tuple(sorted(choice.items())))
    if len(found) > _MOST_LAUNCHES:
        what = f"{declared.launch.name} has more than {_MOST_LAUNCHES} launch choices"
        raise FamilyError(what, code="family-tune", where=declared.where, hint="leave out what is never the fastest")
    return tuple(dict.fromkeys(found))


def check_tuned(family: FamilyRecord, keys: Iterable[FragmentKey]) -> list[str]:
    """Return advice on values that no fragment has: of defaults, and those that launch choices are for.

    Args:
        family: The family's record.
        keys: The fragments of the family, and of those that it uses.
    """
    values: dict[str, set[str]] = {}
    for key in keys:
        if key.family in (family.name, *family.uses):
            for name, value in key.parameters:
                values.setdefault(name, set()).add(value)
    advice = []
    for group in family.groups:
        if group.tune is None:
            continue
        named = [*group.tune.default, *(pair for choice in group.tune.launch for pair in choice)]
        for name, value in dict.fromkeys(named):
            if name not in LAUNCH_NAMES and value not in values.get(name, ()):
                known = sorted(values.get(name, ()))
                hint = suggest(value, known, f"the values of {name} are {', '.join(known) or 'none'}")
                advice.append(f"{family.name}/{group.name} [tune]: {name}={value} is no value of a fragment; {hint}")
    return advice


def _check(holds: bool, what: str, name: str, known: Iterable[str], declared: TuneDeclaration) -> None:
    if not holds:
        names = sorted(known)
        hint = suggest(name, names, f"the names are {', '.join(names)}" if names else "give one of them another name")
        raise FamilyError(what, code="family-tune", where=declared.where, hint=hint)


def _check_names(text: str, known: Iterable[str], what: str, declared: TuneDeclaration) -> None:
    known = set(known)
    try:
        unknown = sorted(names_in(text) - known)
    except ExpressionError as error:
        hint = "write it with names, whole numbers, + - * // %, cdiv, min and max"
        raise FamilyError(f"{what} {text!r}: {error}", code="family-tune", where=declared.where, hint=hint) from None
    if unknown:
        _check(False, f"{what} {text!r} names {unknown[0]!r}, which is not known", unknown[0], known, declared)
