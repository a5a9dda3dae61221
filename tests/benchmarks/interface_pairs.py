"""Pairs of sides of an interface which differ in one thing, with a right twin of each: the linked PTX is the judge.

Draws pairs until so many store a wrong value where their sides are compiled and linked without jitlto. Each of these
families must be refused, or store the right value after all; each twin must be built, checked, planned and linked, and
store it. Ends with exit status 1 if one does not.

python -m tests.benchmarks.interface_pairs --output docs/benchmarks/interface_pairs.json
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.support.interface_judge import Answer, ask, is_slip
from tests.support.interface_pairs import KINDS, Pair, draw_pairs

_BATCH = 50


class _Judged(NamedTuple):
    pair: Pair
    wrong: Answer
    twin: Answer


def _judge(pair: Pair) -> _Judged | None:
    """Return what becomes of a pair; None if its sides store the right value, or do not link, without jitlto."""
    if not is_slip(pair):
        return None
    with tempfile.TemporaryDirectory() as wrong, tempfile.TemporaryDirectory() as twin:
        return _Judged(pair, ask(pair.wrong, Path(wrong)), ask(pair.twin, Path(twin)))


def _results(seed: int, count: int, cores: int) -> Iterator[_Judged]:
    pairs = draw_pairs(seed)
    with ProcessPoolExecutor(cores) as pool:
        while count > 0:
            found = [result for result in pool.map(_judge, islice(pairs, min(_BATCH, count))) if result]
            count -= len(found)
            yield from found


def measure(options: Options) -> Result:
    counts = {kind: Counter[str]() for kind in KINDS}
    refused = {kind: Counter[str]() for kind in KINDS}
    failed = []
    for pair, wrong, twin in _results(options.seed, options.pairs, options.cores):
        right = "right value" if wrong.value == pair.right else "wrong"
        outcome = "refused" if wrong.refused else right
        agreed = "twins refused" if twin.refused else "twins wrong"
        agreed = "twins right" if twin.value == pair.right else agreed
        counts[pair.kind].update(["pairs", outcome, agreed])
        refused[pair.kind].update([wrong.refused] if wrong.refused else [])
        if outcome == "wrong" or agreed != "twins right":
            failed.append(f"{pair.name}: {wrong}, twin {twin}, right is {pair.right}")
    if failed:
        raise SystemExit("\n".join(failed))
    return {
        "seed": options.seed,
        "all": sum(counts.values(), Counter()),
        "kinds": {kind: {**counts[kind], "codes": dict(sorted(refused[kind].items()))} for kind in KINDS},
    }


if __name__ == "__main__":
    script.run(__doc__, measure, seed=1, pairs=500, cores=len(os.sched_getaffinity(0)))
