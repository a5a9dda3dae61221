"""What an author declares for tuning: choices that change a kernel's speed and not its result, and kinds of problems.

A *problem* is a configuration without the free parameters, and sizes by name. A *variant* is one choice of free
parameters, launch and link options. Sizes fall into *buckets*, for each of which one variant is the best.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert

from jitlto.base.cached import decoder
from jitlto.base.errors import PlanError
from jitlto.record.expressions import ExpressionError, evaluate, number_or_text

#: What a launch choice may set, beside parameters that it is only for.
LAUNCH_NAMES = ("block", "cluster", "grid", "shared_memory")
#: Link options that change the speed alone.
LINK_NAMES = ("max_registers", "optimization", "ptxas")
Pairs: TypeAlias = tuple[tuple[str, str], ...]
LinkPairs: TypeAlias = "tuple[tuple[str, int | tuple[str, ...]], ...]"

#: One to three extents of a launch.
Extents: TypeAlias = Annotated[tuple[Annotated[int, Meta(ge=1, lt=1 << 31)], ...], Meta(min_length=1, max_length=3)]

_LARGEST_SIZE = 1 << 62


class Variant(Struct, frozen=True, order=True):
    """One choice among kernels and launches that compute the same.

    Args:
        parameters: Values of the free parameters, sorted by name.
        launch: Texts of expressions by ``block``, ``cluster``, ``grid`` and ``shared_memory``, sorted; empty if
            the caller decides.
        link: Link options in place of the family's, sorted.
    """

    parameters: Pairs = ()
    launch: Pairs = ()
    link: LinkPairs = ()

    @property
    def kernel(self) -> tuple[Pairs, LinkPairs]:
        """What of it determines the kernel, and not only its launch."""
        return self.parameters, self.link

    def __str__(self) -> str:
        """The choices as people read them."""
        link = (f"{name}={' '.join(v) if isinstance(v, tuple) else v}" for name, v in self.link)
        return " ".join([*(f"{name}={value}" for name, value in (*self.parameters, *self.launch)), *link]) or "default"


class TuneRecord(Struct, frozen=True, omit_defaults=True):
    """What an entrypoint's table ``tune`` declares.

    Args:
        free: Parameters whose value changes the speed and not the result, sorted.
        default: The value of each that is used where nothing was measured; sorted.
        sizes: The named sizes of a problem and how they fall into buckets (each value on its own, by powers of two, or
            from each bound to the next), sorted by name.
        launch: The launch choices, in the matrix's order; each sorted by name.
        link: Alternatives for link options, sorted by name.
        when: Conditions that a variant has to meet for a problem.
        tolerance: Largest difference between the results of two variants, relative to the larger value; 0 for the same
            bits.
    """

    free: tuple[str, ...] = ()
    default: Pairs = ()
    sizes: tuple[tuple[str, Literal["exact", "log2"] | tuple[int, ...]], ...] = ()
    launch: tuple[Pairs, ...] = ()
    link: tuple[tuple[str, tuple[int | tuple[str, ...], ...]], ...] = ()
    when: tuple[str, ...] = ()
    tolerance: float = 0.0

    def variants(self, values: Mapping[str, Sequence[str]], configuration: Mapping[str, str]) -> Iterator[Variant]:
        """Yield all variants for a problem, the default first.

        Args:
            values: The values of each parameter of the family.
            configuration: The problem's.
        """
        preferred = dict(self.default)
        choices = [sorted(values.get(name, ()), key=lambda v, n=name: (v != preferred.get(n), len(v), v))  # type: ignore[misc]
                   for name in self.free]  # fmt: skip
        links = [((), *(((name, each),) for each in several)) for name, several in self.link]
        for chosen in itertools.product(*choices):
            parameters = tuple(zip(self.free, chosen, strict=True))
            launches = dict.fromkeys(
                launch
                for each in self.launch
                if (launch := _launch_for(each, {**configuration, **dict(parameters)})) is not None
            )
            for launch in launches if self.launch else [()]:
                for options in itertools.product(*links):
                    yield Variant(parameters, launch, tuple(itertools.chain.from_iterable(options)))

    def bucket(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """Return the bucket of a problem's sizes, sorted by name."""
        return tuple((name, _bucket(sizes[name], rule)) for name, rule in self.sizes)

    def split(self, problem: Mapping[str, object], family: str) -> tuple[dict[str, object], dict[str, int]]:
        """Return the configuration of a problem and its sizes.

        Raises:
            PlanError: If a size is missing or not a whole number, or a free parameter is given.
        """
        names = [name for name, _ in self.sizes]
        free = f" other than {', '.join(self.free)}" if self.free else ""
        expected = f"a problem has the sizes {', '.join(names) or 'none'}, and a value of each parameter{free}"

        def error(what: str, hint: str = "") -> PlanError:
            return PlanError(what, code="plan-problem", where=family, hint=hint or expected)

        sizes: dict[str, int] = {}
        for name in names:
            try:
                sizes[name] = operator.index(problem[name])  # type: ignore[arg-type]  # which it finds out
            except (KeyError, TypeError):
                raise error(f"size {name} is missing, or is not a whole number") from None
            if not 0 <= sizes[name] <= _LARGEST_SIZE:
                raise error(f"size {name}={sizes[name]} is negative or too large")
        if given := [name for name in self.free if name in problem]:
            hint = f"leave it out, or ask for this kernel with launcher({given[0]}=...)"
            raise error(f"{given[0]} is free: it is what is chosen for a problem", hint)
        return {name: value for name, value in problem.items() if name not in names}, sizes


def applies(record: TuneRecord, variant: Variant, configuration: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    """Return whether a variant meets a family's conditions for a problem, and has a launch there."""
    values = _values(variant, configuration, sizes)
    try:
        launch(variant, configuration, sizes)
        return all(evaluate(condition, values) for condition in record.when)
    except (ExpressionError, PlanError):
        return False


class Launch(Struct, frozen=True):
    """How a variant is launched for one problem; extents as in a launch, None for what the caller decides."""

    grid: Extents | None = None
    block: Extents | None = None
    cluster: Extents | None = None
    shared_memory: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


def launch(variant: Variant, configuration: Mapping[str, str], sizes: Mapping[str, int]) -> Launch:
    """Return the launch of a variant for a problem.

    Raises:
        PlanError: If an expression has no value for it, or one that no launch can have.
    """
    values, found, texts = _values(variant, configuration, sizes), dict[str, object](), dict(variant.launch)
    try:
        for name in sorted(texts, key=lambda each: each == "grid"):  # the grid may depend on the others
            value = evaluate(texts[name], values)
            found[name] = value if isinstance(value, tuple) or name == "shared_memory" else (value,)
            if isinstance(value, int):
                values[name] = value
        decoder(Launch)
        return convert(found, Launch)
    except (ExpressionError, ValidationError) as error:
        what = f"the launch {variant} has no extents here: {error}"
        raise PlanError(what, code="plan-launch-choice", hint="correct the launch choices of the family") from None


def _values(variant: Variant, configuration: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, int | str]:
    texts = {**configuration, **dict(variant.parameters)}
    plain = {name: number_or_text(value) for name, value in texts.items()}
    chosen = {name: number_or_text(text) for name, text in variant.launch}
    return {**plain, **{name: value for name, value in chosen.items() if isinstance(value, int)}, **sizes}


def _launch_for(choice: Pairs, values: Mapping[str, str]) -> Pairs | None:
    """Return what a launch choice sets; None if it is for other values of parameters."""
    if any(name in values and values[name] != value for name, value in choice):
        return None
    return tuple((name, value) for name, value in choice if name in LAUNCH_NAMES)


def _bucket(value: int, rule: str | tuple[int, ...]) -> int:
    if rule == "exact":
        return value
    if rule == "log2":
        return 1 << value.bit_length() - 1 if value else 0
    return max((bound for bound in rule if isinstance(bound, int) and bound <= value), default=0)
