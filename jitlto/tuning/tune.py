"""Tuning: link the variants for a problem, check that their results agree, and time them; what is found is wisdom."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from jitlto.base.errors import PlanError, TuningError
from jitlto.cuda import device
from jitlto.link.parallel import run_parallel
from jitlto.record.tuning import Variant
from jitlto.tuning import wisdom_file
from jitlto.tuning.bench import Bench
from jitlto.tuning.best import Best, Problem
from jitlto.tuning.search import Outcome, search
from jitlto.tuning.wisdom import Entry, Trial

_MOST_VARIANTS = 1000


@dataclass(frozen=True)
class TuneReport:
    """What tuning for one problem found.

    Args:
        entry: The evidence, of which ``Entry.chosen`` is the answer.
        outcome: The search.
    """

    entry: Entry
    outcome: Outcome


def tune(
    family: Any,
    problem: Mapping[str, object],
    launch: Callable[[Best, Any], object],
    results: Sequence[object] = (),
    *,
    measures: Any = None,  # what stands for a Bench in tests
    budget: float = 60.0,
    save: bool = True,
) -> TuneReport:
    """Find the fastest variant for a problem, and add it to the user's wisdom; see :meth:`KernelFamily.tune`."""
    if measures is None:
        with closing(Bench()) as bench:
            return tune(family, problem, launch, results, measures=bench, budget=budget, save=save)
    own = family.session.config.wisdom
    if save:
        wisdom_file.add(own)  # fails before anything is measured if the file cannot be read or written
    end = time.monotonic() + budget
    asked = Problem.read(family, problem)
    variants = list(dict.fromkeys((asked.default().variant, *islice(asked.variants(), _MOST_VARIANTS + 1))))
    if len(variants) > _MOST_VARIANTS:
        raise TuningError(f"more than {_MOST_VARIANTS} variants", code="tuning-too-many", where=family.name)

    def link(variant: Variant) -> None:
        if time.monotonic() < end:
            asked.link(variant)

    # Ahead and in parallel; what fails fails again below. Parameters may have no kernel together.
    kernels = {variant.parameters: variant for variant in variants}.values()
    missing = {v.parameters for _, v, error in run_parallel(link, kernels) if isinstance(error, PlanError)}
    before, expected = [measures.read(array) for array in results], list[bytes]()  # what the default writes

    def prepare(variant: Variant) -> Callable[[], object]:
        best = Best(asked.launcher(variant).wait(), variant)
        for array, data in zip(results, before, strict=True):
            measures.write(array, data)
        launch(best, measures.stream)
        found = [measures.read(array) for array in results]
        if not expected:
            expected.extend(found)
        for number, (array, one, other) in enumerate(zip(results, expected, found, strict=True)):
            if one != other and not _agree(array, one, other, asked.record.tolerance):
                what = f"{variant} has other results than the default (array {number})"
                hint = "correct the kernel or `free`; or declare a tolerance under tune"
                raise TuningError(what, code="tuning-results-differ", where=family.name, hint=hint)
        return lambda: launch(best, measures.stream)

    left = max(0.0, end - time.monotonic())
    existing = [variant for variant in variants if variant.parameters not in missing]
    outcome = search(existing, prepare, measures.time, budget=left, clock=time.monotonic)
    trials = tuple(Trial(each.variant, each.seconds, len(each.times)) for each in outcome.candidates)
    configuration = tuple(sorted(asked.configuration.items()))
    entry = Entry(family.name, asked.entry, configuration, asked.bucket, device.current_kind(), trials)
    if save:
        wisdom_file.add(own, entry)
    return TuneReport(entry, outcome)


def _agree(array: Any, one: bytes, other: bytes, tolerance: float) -> bool:
    """Return whether numbers differ by no more than the tolerance, relative to the larger of two."""
    kind = str(array.__cuda_array_interface__["typestr"])
    if tolerance == 0 or kind[1] not in "fc":
        return False
    a, b = (np.frombuffer(data, np.dtype(kind)).astype("c16" if kind[1] == "c" else "f8") for data in (one, other))
    close = np.isclose(a, b, tolerance, 0, equal_nan=True) | np.isclose(b, a, tolerance, 0, equal_nan=True)
    return bool(close.all())
