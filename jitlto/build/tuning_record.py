"""What an entrypoint declares for tuning: its launch choices, read from their matrix, and a check of all names."""

from __future__ import annotations

from collections.abc import Iterable

from jitlto.base.errors import FamilyError
from jitlto.base.text import suggest
from jitlto.families.matrix import load_matrix
from jitlto.families.tuning_rules import TuneDeclaration
from jitlto.record.expressions import ExpressionError, names_in
from jitlto.record.tuning import LAUNCH_NAMES, TuneRecord


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
    choices = [{name: str(value) for name, value in each.items()} for each in matrix]
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
