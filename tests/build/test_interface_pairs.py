"""Generated pairs of sides of an interface: those that differ link no wrong value, those that agree the right one.

``python -m tests.benchmarks.interface_pairs`` judges 500 of them.
"""

from itertools import islice
from pathlib import Path

import pytest

from tests.support.interface_judge import ask, is_slip
from tests.support.interface_pairs import KINDS, Pair, draw_pairs

_SEED, _DRAWN, _COUNT = 36, 69, 60
#: What is drawn and does not link, or stores the right value, without jitlto too.
_NO_SLIPS = {16, 24, 29, 42, 47, 53, 63, 66, 67}


def _judge(pair: Pair, directory: Path) -> None:
    wrong, twin = (ask(family, directory / name) for name, family in (("wrong", pair.wrong), ("twin", pair.twin)))
    assert wrong.refused or wrong.value == pair.right, f"{pair.name}: {wrong}"
    assert twin.value == pair.right, f"{pair.name}: {twin}"


@pytest.mark.slow
def test_no_slip_stores_a_wrong_value_and_no_right_twin_is_refused(tmp_path: Path) -> None:
    pairs = [pair for number, pair in enumerate(islice(draw_pairs(_SEED), _DRAWN)) if number not in _NO_SLIPS]
    assert len(pairs) == _COUNT
    assert {pair.kind for pair in pairs} == set(KINDS)
    for number, pair in enumerate(pairs):
        _judge(pair, tmp_path / str(number))


@pytest.mark.parametrize("kind", ["order", "guard", "specialisation"])
def test_one_of_some_kinds(kind: str, tmp_path: Path) -> None:
    pair = next(pair for pair in draw_pairs(_SEED) if pair.kind == kind and is_slip(pair))
    _judge(pair, tmp_path)
