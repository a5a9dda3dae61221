"""Tuning: link the variants for a problem, check that their results agree, and time them; what is found is wisdom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jitlto.base.errors import JitltoError, PlanError, TuningError
from jitlto.cuda.elf import hash_code
from jitlto.link.parallel import run_parallel
from jitlto.record.tuning import Variant
from jitlto.tuning import devices, wisdom_file
from jitlto.tuning.bench import Bench
from jitlto.tuning.best import Best, Problem
from jitlto.tuning.search import Outcome, search
from jitlto.tuning.wisdom import Entry, Trial

_MOST_VARIANTS = 1000


@dataclass(frozen=True)
class Workload:
    """What kernels are timed with.

    Args:
        arguments: The kernel's arguments, or a function that returns them for a variant.
        results: The arrays among them whose contents the variants must agree on, contiguous in device memory.
        launch: Launches a variant, where the family declares no launch or it needs more: ``launch(best, stream)``.
    """

    arguments: Sequence[object] | Callable[[Best], Sequence[object]] = ()
    results: Sequence[object] = ()
    launch: Callable[[Best, Any], object] | None = None

    def bind(self, best: Best, stream: Any) -> Callable[[], object]:
        """Return the launch of a variant."""
        own = self.launch
        if own is not None:
            return lambda: own(best, stream)
        arguments = tuple(self.arguments(best) if callable(self.arguments) else self.arguments)
        return lambda: best(stream, *arguments)


@dataclass(frozen=True)
class TuneReport:
    """What tuning for one problem found.

    Args:
        entry: The evidence, of which ``Entry.chosen`` is the answer.
        outcome: The search.
        variants: How many variants exist for the problem; those that come to the same code and launch are one.
        seconds: How long it took: linking, and all.
        link_seconds: How long linking took.
    """

    entry: Entry
    outcome: Outcome
    variants: int
    seconds: float
    link_seconds: float


def tune(
    family: Any,
    problem: Mapping[str, object],
    workload: Workload,
    *,
    measures: Any = None,
    budget: float = 60.0,
    save: bool = True,
) -> TuneReport:
    """Find the fastest variant for a problem, and add it to the user's wisdom; see :meth:`KernelFamily.tune`.

    Args:
        measures: What stands for :class:`jitlto.tuning.bench.Bench` in tests.
    """
    if measures is None:
        with Bench() as bench:
            return tune(family, problem, workload, measures=bench, budget=budget, save=save)
    begin = time.monotonic()
    asked = Problem.read(family, problem)
    default, _ = asked.default()
    variants = list(dict.fromkeys((default, *islice(asked.variants(), _MOST_VARIANTS + 1))))
    if len(variants) > _MOST_VARIANTS:
        raise TuningError(f"more than {_MOST_VARIANTS} variants", code="tuning-too-many", where=family.name)
    variants, rejected = _linked(asked, variants, begin + budget)
    linked = time.monotonic()
    results = _Results(measures, workload.results, asked.record.tolerance, asked.family.name)

    def prepare(variant: Variant) -> Callable[[], object]:
        bound = workload.bind(asked.answer(asked.launcher(variant), variant, "", ""), measures.stream)
        results.check(bound, str(variant))
        return bound

    left = max(0.0, budget - (linked - begin))
    outcome = search(variants, prepare, measures.time, budget=left, clock=time.monotonic)
    outcome.rejected.update(rejected)
    trials = [
        Trial(each.variant, asked.launcher(each.variant).chosen.digest, each.seconds, each.spread, len(each.times))
        for each in outcome.candidates
    ]
    configuration, bucket = tuple(sorted(asked.configuration.items())), asked.record.bucket(asked.sizes)
    entry = Entry(family.name, asked.entry, configuration, bucket, devices.current_kind(), tuple(trials))
    if save:
        wisdom_file.add(family.session.config.wisdom, entry)
    return TuneReport(entry, outcome, len(variants), time.monotonic() - begin, linked - begin)


def _linked(asked: Problem, variants: Sequence[Variant], end: float) -> tuple[list[Variant], dict[Variant, str]]:
    """Link the kernels of variants ahead, in parallel; return those to be timed, and why others cannot be used.

    Variants that do not exist are left out, and those that are launched like an earlier one with the same machine code.
    """
    missing: set[object] = set()
    failed: dict[object, str] = {}
    codes: dict[object, str] = {}

    def link(variant: Variant) -> str | None:
        return hash_code(asked.link(variant).cubin) if time.monotonic() < end else None

    for _, variant, outcome in run_parallel(link, {variant.kernel: variant for variant in variants}.values()):
        if isinstance(outcome, PlanError):
            missing.add(variant.kernel)
        elif isinstance(outcome, JitltoError):
            failed[variant.kernel] = outcome.what
        elif outcome is not None:
            codes[variant.kernel] = outcome
    distinct: dict[object, Variant] = {}
    rejected = {}
    for variant in variants:
        kernel = variant.kernel
        if kernel in failed:
            rejected[variant] = failed[kernel]
        elif kernel not in missing:
            distinct.setdefault((codes.get(kernel, kernel), variant.launch), variant)
    return list(distinct.values()), rejected


class _Results:
    """The results of the default, with which those of the others are compared."""

    def __init__(self, measures: Any, arrays: Sequence[object], tolerance: float, where: str) -> None:
        self._measures, self._arrays, self._tolerance, self._where = measures, arrays, tolerance, where
        self._before = [measures.read(array) for array in arrays]
        self._expected: list[bytes] | None = None

    def check(self, launch: Callable[[], object], variant: str) -> None:
        """Launch a variant, and compare what it writes; the first is what others are compared with.

        Raises:
            TuningError: If the results differ by more than the tolerance.
        """
        for array, data in zip(self._arrays, self._before, strict=True):
            self._measures.write(array, data)
        launch()
        found = [self._measures.read(array) for array in self._arrays]
        if self._expected is None:
            self._expected = found
            return
        for number, (array, one, other) in enumerate(zip(self._arrays, self._expected, found, strict=True)):
            if one != other and not _agree(array, one, other, self._tolerance):
                what = f"{variant} has other results than the default (array {number})"
                hint = "correct the kernel or `free`; or declare a tolerance under tune"
                raise TuningError(what, code="tuning-results-differ", where=self._where, hint=hint)


def _agree(array: Any, one: bytes, other: bytes, tolerance: float) -> bool:
    """Return whether numbers differ by no more than the tolerance, relative to the larger of two."""
    kind = str(array.__cuda_array_interface__["typestr"])
    if tolerance == 0 or kind[1] not in "fc":
        return False
    import numpy as np  # imported lazily: only a tolerance needs it

    a, b = (np.frombuffer(data, np.dtype(kind)).astype("c16" if kind[1] == "c" else "f8") for data in (one, other))
    close = np.isclose(a, b, tolerance, 0, equal_nan=True) | np.isclose(b, a, tolerance, 0, equal_nan=True)
    return bool(close.all())
