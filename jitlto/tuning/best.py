"""The best variant for a problem, looked up in wisdom; a problem that was asked for before costs one look-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitlto.base.cached import cached_property
from jitlto.base.errors import LinkError, PlanError
from jitlto.base.frozen import Shared
from jitlto.cuda import device
from jitlto.launch.core import Answers, called, remembered
from jitlto.plan.configuration import normalize_configuration
from jitlto.record.tuning import Block, TuneRecord, Variant
from jitlto.tuning import wisdom_file

if TYPE_CHECKING:
    from jitlto.launch.launcher import Launcher
    from jitlto.tuning.wisdom import Entry, Wisdom


@dataclass(frozen=True)
class Best:
    """The variant to use for a problem.

    Args:
        launcher: Its kernel.
        variant: What was chosen.
        origin: ``measured``; ``guess`` if that was for another bucket of sizes; ``default`` if nothing was measured.
    """

    launcher: Launcher = field(repr=False)
    variant: Variant
    origin: str = ""

    @property
    def block(self) -> Block:
        """The extents of the block to launch it with; empty if the family declares none."""
        return self.variant.block


@called
class Chooser(Shared):
    """Chooses the best variant for a problem. Made by :attr:`KernelFamily.best`. Thread-safe.

    Args:
        family: The family.
    """

    __slots__ = ("__dict__", "__weakref__")

    def __init__(self, family: Any) -> None:
        self._quick = Answers()  # problem → answer
        self._family = family

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again, in another process, by its family."""
        return getattr, (self._family, "best")

    @remembered
    def __call__(self, **problem: object) -> Best:
        """Return the best variant for a problem: its sizes and parameters.

        What was measured for the nearest bucket goes first; of what is equally near, the user's own.

        Args:
            **problem: Sizes and parameters; ``entry``: the entrypoint's group, if several are tuned.

        Raises:
            PlanError: If it is no problem of the family.
            JitltoError: As :meth:`KernelFamily.launcher`.
        """
        asked = Problem.read(self._family, problem)
        about = self._family.name, asked.entry, asked.configuration, asked.bucket, device.current_kind()
        exact = [name for name, rule in asked.record.sizes if rule == "exact"]
        found = [entry for layer in self.knowledge for entry in layer.find(*about, exact)]
        answers = map(asked.answer, sorted(found, key=lambda entry: entry.distance(asked.bucket)))
        return next(filter(None, answers), None) or asked.default()

    def forget(self) -> None:
        """Forget all answers, and what was read."""
        self._quick.clear()
        self.__dict__.pop("knowledge", None)

    @cached_property
    def knowledge(self) -> tuple[Wisdom, Wisdom]:
        """The wisdom that it looks problems up in, read at the first: the user's own, and that beside the database."""
        return wisdom_file.read_for(self._family.location, self._family.session.config.wisdom)


@dataclass(frozen=True)
class Problem:
    """A problem that is asked for: the entrypoint, its configuration without free parameters, and the bucket."""

    family: Any  # a KernelFamily, whose module is above
    entry: str
    record: TuneRecord
    configuration: dict[str, str]
    bucket: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, family: Any, problem: Mapping[str, object]) -> Problem:
        """Read a problem as callers give it.

        Raises:
            PlanError: If it is none.
        """
        tuned = {group.name: group.tune for group in family.record.groups if group.tune is not None}
        given = dict(problem)
        entry = given.pop("entry", None)
        if entry is None and len(tuned) == 1:
            entry = next(iter(tuned))
        record = tuned.get(str(entry))
        if record is None:
            declared = ", ".join(sorted(tuned))
            what = f"{entry or family.name} declares nothing to choose from, or several entrypoints do"
            hint = f"give entry: {declared}" if tuned else "declare it: [entrypoint.NAME.tune]"
            raise PlanError(what, code="plan-not-tuned", where=family.name, hint=hint)
        configuration, sizes = record.split(given, family.name)
        normal = normalize_configuration(configuration, family.parameters, family.name)
        return cls(family, str(entry), record, dict(normal), record.bucket(sizes))

    def variants(self) -> Iterator[Variant]:
        """Yield the variants that the family declares, the default first; some may name kernels that do not exist."""
        return self.record.variants(self.family.parameters)

    def request(self, variant: Variant) -> dict[str, Any]:
        """Return the arguments of ``launcher`` and ``plan`` for a variant."""
        how = {"entry": self.entry} if len(self.family.entrypoints) > 1 else {}
        return {**how, **self.configuration, **dict(variant.parameters)}

    def launcher(self, variant: Variant) -> Launcher:
        """Return the launcher of a variant."""
        launcher: Launcher = self.family.launcher(**self.request(variant))
        return launcher

    def link(self, variant: Variant) -> None:
        """Link the kernel of a variant into the caches, without loading it."""
        self.family.plan(**self.request(variant)).link()

    def answer(self, entry: Entry) -> Best | None:
        """Return the first of what was measured whose variant is declared and whose kernel exists; None if none is."""
        declared, gone = set(self.variants()), set[object]()
        for trial in entry.ranked(declared.__contains__):
            if trial.variant.parameters not in gone:
                try:
                    launcher = self.launcher(trial.variant)
                except (PlanError, LinkError):  # it is not there for this configuration
                    gone.add(trial.variant.parameters)
                    continue
                return Best(launcher, trial.variant, "measured" if entry.bucket == self.bucket else "guess")
        return None

    def default(self) -> Best:
        """Return the first variant that exists.

        Raises:
            PlanError: If there is none.
            JitltoError: If it cannot be linked or loaded.
        """
        failure = PlanError("no variant exists", code="plan-not-tuned", where=f"{self.family.name}/{self.entry}")
        for number, variant in enumerate(self.variants()):
            try:
                return Best(self.launcher(variant), variant, "default")
            except PlanError as error:
                failure = failure if number else error  # that of the declared default
        raise failure
