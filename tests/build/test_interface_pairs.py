"""Generated pairs of sides of an interface: those that differ link no wrong value, those that agree the right one.

``python -m tests.benchmarks.interface_pairs`` judges 500 of them.
"""

from itertools import islice
from pathlib import Path

import pytest

from tests.support.interface_judge import ask, is_slip
from tests.support.interface_pairs import KINDS, Pair, draw_pairs

_SEED = 36
#: Of what is drawn, pairs that have every form of a slip, every place and side, and every way in which a type travels.
_CHOSEN = (0, 1, 2, 3, 5, 7, 8, 12, 14, 15, 17, 22, 25, 26, 30, 33, 34, 35, 43, 48, 49, 52, 54, 57, 58, 60, 61, 62)


def _judge(pair: Pair, directory: Path) -> None:
    wrong, twin = (ask(family, directory / name) for name, family in (("wrong", pair.wrong), ("twin", pair.twin)))
    assert wrong.refused or wrong.value == pair.right, f"{pair.name}: {wrong}"
    assert twin.value == pair.right, f"{pair.name}: {twin}"


@pytest.mark.slow
def test_no_slip_stores_a_wrong_value_and_no_right_twin_is_refused(tmp_path: Path) -> None:
    drawn = list(islice(draw_pairs(_SEED), _CHOSEN[-1] + 1))
    pairs = [drawn[number] for number in _CHOSEN]
    assert {pair.kind for pair in pairs} == set(KINDS)
    for number, pair in enumerate(pairs):
        _judge(pair, tmp_path / str(number))


@pytest.mark.parametrize("kind", ["order", "guard", "specialisation"])
def test_one_of_some_kinds(kind: str, tmp_path: Path) -> None:
    pair = next(pair for pair in draw_pairs(_SEED) if pair.kind == kind and is_slip(pair))
    _judge(pair, tmp_path)
