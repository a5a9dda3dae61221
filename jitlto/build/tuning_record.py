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
from jitlto.record.tuning import LAUNCH_NAMES, TuneRecord

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
    sizes = {name for name, _ in record.sizes}
    if both := sorted(sizes & known):
        raise _error(declared, f"size {both[0]!r} is a parameter too", "give one of them another name")
    _check(declared, "free", record.free, known)
    for text in record.when:
        _check_expression(declared, "when", text, {*known, *sizes, *LAUNCH_NAMES})
    matrix = load_matrix(declared.launch).combinations() if declared.launch else ()
    choices = [{name: str(value) for name, value in each.items()} for each in islice(matrix, _MOST_LAUNCHES + 1)]
    if len(choices) > _MOST_LAUNCHES:
        raise _error(declared, f"more than {_MOST_LAUNCHES} launch choices", "leave out what is never the fastest")
    for choice in choices:
        _check(declared, str(declared.launch), choice, {*known, *LAUNCH_NAMES})
        for name, text in choice.items():
            if name in LAUNCH_NAMES:
                _check_expression(declared, f"{declared.launch}: {name}", text, {*known, *sizes, *choice} - {name})
        if missing := {"grid", "block"} - choice.keys():
            what = f"{declared.launch}: a launch choice has no {min(missing)}"
            raise _error(declared, what, "add it to every branch of the matrix")
    launches = dict.fromkeys(tuple(sorted(choice.items())) for choice in choices)
    return TuneRecord(
        record.free, record.default, record.sizes, tuple(launches), record.link, record.when, record.tolerance
    )


def check_tuned(family: FamilyRecord, keys: Iterable[FragmentKey]) -> list[str]:
    """Return advice on values that no fragment has: of defaults, and those that launch choices are for.

    Args:
        family: The family's record.
        keys: The fragments of the family, and of those that it uses.
    """
    advice: list[str] = []
    tuned = {group.name: group.tune for group in family.groups if group.tune}
    names = (family.name, *family.uses)
    values = {pair for key in keys if tuned and key.family in names for pair in key.parameters}
    for group, tune in tuned.items():
        named = [*tune.default, *(pair for choice in tune.launch for pair in choice)]
        for name, value in dict.fromkeys(named):
            if name not in LAUNCH_NAMES and (name, value) not in values:
                known = sorted(each for other, each in values if other == name)
                hint = suggest(value, known, f"the values of {name} are {', '.join(known) or 'none'}")
                advice.append(f"{family.name}/{group} [tune]: {name}={value} is no value of a fragment; {hint}")
    return advice


def _check(declared: TuneDeclaration, what: str, names: Iterable[str], known: set[str]) -> None:
    if unknown := sorted(set(names) - known):
        hint = suggest(unknown[0], sorted(known), f"the names are {', '.join(sorted(known))}")
        raise _error(declared, f"{what} names {unknown[0]!r}, which is not known", hint)


def _check_expression(declared: TuneDeclaration, what: str, text: str, known: set[str]) -> None:
    try:
        names = names_in(text)
    except ExpressionError as error:
        hint = "write it with names, whole numbers, + - * // %, cdiv, min and max"
        raise _error(declared, f"{what} {text!r}: {error}", hint) from None
    _check(declared, f"{what} {text!r}", names, known)


def _error(declared: TuneDeclaration, what: str, hint: str) -> FamilyError:
    return FamilyError(what, code="family-tune", where=declared.where, hint=hint)
