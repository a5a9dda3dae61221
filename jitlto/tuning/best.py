"""The best variant for a problem, looked up in wisdom; a problem that was asked for before costs one look-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitlto.base.cached import cached_property
from jitlto.base.errors import LinkError, PlanError
from jitlto.base.frozen import Shared
from jitlto.cuda import device
from jitlto.launch.core import called, remembered
from jitlto.plan.configuration import normalize_configuration
from jitlto.record.tuning import Launch, TuneRecord, Variant, applies, launch
from jitlto.tuning import devices, wisdom_file

if TYPE_CHECKING:
    from jitlto.launch.launcher import Launcher
    from jitlto.plan.cache_entry import LinkedKernel
    from jitlto.tuning.wisdom import Entry, Trial, Wisdom

_MOST_GUESSES = 8  # that are tried: each may have to be linked


class Best:
    """The variant to use for a problem.

    Args:
        launcher: Its kernel.
        variant: What was chosen.
        launch: How it is launched for the problem.
        origin: ``measured``, ``guess`` or ``default``.
        reason: Why it is a guess, or a default; empty if it was measured.
    """

    __slots__ = ("__weakref__", "_attributes", "launch", "launcher", "origin", "reason", "variant")

    def __init__(self, launcher: Launcher, variant: Variant, launch: Launch, origin: str, reason: str) -> None:
        self.launcher, self.variant, self.launch, self.origin, self.reason = launcher, variant, launch, origin, reason
        self._attributes: dict[str, Any] = {"shared_memory": launch.shared_memory} if launch.shared_memory else {}
        if launch.cluster is not None:
            self._attributes["cluster"] = launch.cluster

    def __repr__(self) -> str:
        return f"<Best {self.variant}: {self.origin}{': ' if self.reason else ''}{self.reason}>"

    def __call__(self, stream: Any, *arguments: Any) -> None:
        """Launch it as the family declares.

        Raises:
            PlanError: If the family declares no launch: then call ``launcher``, with a grid and a block.
        """
        if self.launch.grid is None or self.launch.block is None:
            hint = "call best.launcher(stream, grid, block, ...)"
            raise PlanError("the family declares no launch choices", code="plan-launch-choice", hint=hint)
        self.launcher(stream, self.launch.grid, self.launch.block, *arguments, **self._attributes)


@called
class Chooser(Shared):
    """Chooses the best variant for a problem. Made by :attr:`KernelFamily.best`. Thread-safe.

    Args:
        family: The family.
    """

    __slots__ = ("__dict__", "__weakref__")

    def __init__(self, family: Any) -> None:
        self._quick: dict[Any, Any] = {}  # problem → answer
        self._family = family

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again, in another process, by its family."""
        return getattr, (self._family, "best")

    @remembered(lambda: 0 if devices.are_alike() else device.ordinal() + 1)
    def __call__(self, **problem: object) -> Best:
        """Return the best variant for a problem: its sizes and parameters.

        Args:
            **problem: Sizes and parameters; ``entry``: the entrypoint's group, if several are tuned.

        Raises:
            PlanError: If it is no problem of the family, or no variant is for it.
            JitltoError: As :meth:`KernelFamily.launcher`.
        """
        return self.choose(problem)

    def forget(self) -> None:
        """Forget all answers, and what was read."""
        self._quick.clear()
        self.__dict__.pop("knowledge", None)

    @cached_property
    def knowledge(self) -> tuple[Wisdom, Wisdom]:
        """The wisdom that it looks problems up in, read at the first: the user's own, and that beside the database."""
        return wisdom_file.read_for(self._family.location, self._family.session.config.wisdom)

    def choose(self, problem: Mapping[str, object]) -> Best:
        """Return the best variant for a problem, without looking at earlier answers.

        What was measured with the kernel at hand goes before the nearest guess, and that before the default; of what
        is equally near, the user's own goes first.
        """
        asked = Problem.read(self._family, problem)
        if self._family.session.config.tuning == "off":
            return self._default(asked, "JITLTO_TUNING=off")
        bucket, kind = asked.record.bucket(asked.sizes), devices.current_kind()
        about = self._family.name, asked.entry, asked.configuration, bucket, kind
        measured = [entry for layer in self.knowledge for entry in layer.find(*about)]
        guess: Best | None = None
        for entry in sorted(measured, key=lambda each: each.distance(bucket))[:_MOST_GUESSES]:
            if guess is not None and entry.bucket != bucket:
                break
            usable = self._usable(asked, entry)
            if usable is not None:
                trial, launcher = usable
                reason = "it was measured with another version of the kernel, or of nvJitLink"
                if entry.bucket != bucket:
                    reason = f"it was measured for {' '.join(f'{name}={value}' for name, value in entry.bucket)}"
                elif launcher.chosen.digest == trial.kernel:
                    return asked.answer(launcher, trial.variant, "measured", "")
                guess = guess or asked.answer(launcher, trial.variant, "guess", reason)
        return guess or self._default(asked, "nothing was measured")

    @staticmethod
    def _usable(asked: Problem, measured: Entry) -> tuple[Trial, Launcher] | None:
        """Return the first of what was measured whose variant and kernel exist, and that kernel."""
        gone: set[object] = set()
        for trial in measured.ranked(asked.allows):
            if trial.variant.kernel not in gone and len(gone) < _MOST_GUESSES:
                try:
                    return trial, asked.launcher(trial.variant)
                except (PlanError, LinkError):  # it is not declared for this configuration
                    gone.add(trial.variant.kernel)
        return None

    @staticmethod
    def _default(asked: Problem, reason: str) -> Best:
        variant, launcher = asked.default()
        return asked.answer(launcher, variant, "default", reason)


@dataclass(frozen=True)
class Problem:
    """A problem that is asked for: the entrypoint, its configuration without free parameters, and sizes."""

    family: Any  # a KernelFamily, whose module is above
    entry: str
    record: TuneRecord
    configuration: dict[str, str]
    sizes: dict[str, int]

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
        return cls(family, str(entry), record, dict(normal), sizes)

    @cached_property
    def declared(self) -> frozenset[Variant]:
        """The variants that the family declares for the configuration."""
        return frozenset(self.record.variants(self.family.parameters, self.configuration))

    def allows(self, variant: Variant) -> bool:
        """Return whether a variant is declared and meets all conditions."""
        return variant in self.declared and applies(self.record, variant, self.configuration, self.sizes)

    def variants(self) -> Iterator[Variant]:
        """Yield the variants for the problem, the default first; some may name kernels that do not exist."""
        for variant in self.record.variants(self.family.parameters, self.configuration):
            if applies(self.record, variant, self.configuration, self.sizes):
                yield variant

    def request(self, variant: Variant) -> dict[str, Any]:
        """Return the arguments of ``launcher`` and ``plan`` for a variant."""
        several = len(self.family.entrypoints) > 1
        how: dict[str, Any] = {"entry": self.entry} if several else {}
        if variant.link:
            how["link_options"] = dict(variant.link)
        return {**how, **self.configuration, **dict(variant.parameters)}

    def answer(self, launcher: Launcher, variant: Variant, origin: str, reason: str) -> Best:
        """Return a variant as an answer, with its launch for the problem."""
        return Best(launcher, variant, launch(variant, self.configuration, self.sizes), origin, reason)

    def launcher(self, variant: Variant) -> Launcher:
        """Return the launcher of a variant."""
        launcher: Launcher = self.family.launcher(**self.request(variant))
        return launcher

    def link(self, variant: Variant) -> LinkedKernel:
        """Link the kernel of a variant, or find it in a cache, without loading it."""
        linked: LinkedKernel = self.family.plan(**self.request(variant)).link()
        return linked

    def default(self) -> tuple[Variant, Launcher]:
        """Return the first variant for the problem that exists.

        Raises:
            PlanError: If there is none.
            JitltoError: If it cannot be linked or loaded.
        """
        failure: PlanError | None = None
        tried = set()
        for variant in self.variants():
            if variant.parameters in tried:
                continue
            tried.add(variant.parameters)
            try:
                return variant, self.launcher(variant)
            except PlanError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        what, hint = f"no variant is for {sizes}", f"its conditions: {'; '.join(self.record.when) or 'none'}"
        raise PlanError(what, code="plan-no-variant", where=f"{self.family.name}/{self.entry}", hint=hint)
