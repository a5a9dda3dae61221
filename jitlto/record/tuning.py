"""What an author declares for tuning: choices that change a kernel's speed and not its result, and kinds of problems.

A *problem* is a configuration without the free parameters, and sizes by name. A *variant* is one choice of free
parameters and block. Sizes fall into *buckets*, for each of which one variant is the best.
"""

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from jitlto.base.errors import PlanError

Pairs: TypeAlias = tuple[tuple[str, str], ...]
#: The one to three extents of a block; none if the caller decides.
Block: TypeAlias = Annotated[tuple[Annotated[int, Meta(ge=1, le=1024)], ...], Meta(max_length=3)]

_LARGEST_SIZE = 1 << 62


class Variant(Struct, frozen=True, order=True):
    """One choice among kernels and launches that compute the same.

    Args:
        parameters: Values of the free parameters, sorted by name.
        block: The extents of the block, empty if the caller decides.
    """

    parameters: Pairs = ()
    block: Block = ()

    def __str__(self) -> str:
        """The choices as people read them."""
        block = [("block", "x".join(map(str, self.block)))] if self.block else []
        return " ".join(f"{name}={value}" for name, value in (*self.parameters, *block)) or "default"


class TuneRecord(Struct, frozen=True, omit_defaults=True):
    """What an entrypoint's table ``tune`` declares.

    Args:
        free: The parameters whose value changes the speed and not the result, and the value of each that is used where
            nothing was measured; sorted.
        block: The blocks to choose from, the default first.
        sizes: The named sizes of a problem, sorted, and how they fall into buckets: each value, or each power of two.
        tolerance: Largest difference between the results of two variants, relative to the larger value; 0 for the same
            bits.
    """

    free: Pairs = ()
    block: tuple[Block, ...] = ()
    sizes: tuple[tuple[str, Literal["exact", "log2"]], ...] = ()
    tolerance: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    def variants(self, values: Mapping[str, Sequence[str]]) -> Iterator[Variant]:
        """Yield all variants, the default first.

        Args:
            values: The values of each parameter of the family.
        """
        choices = [
            sorted(values.get(name, ()), key=lambda value, first=first: (value != first, len(value), value))  # type: ignore[misc]
            for name, first in self.free
        ]
        for chosen in itertools.product(*choices):
            parameters = tuple((name, value) for (name, _), value in zip(self.free, chosen, strict=True))
            yield from (Variant(parameters, block) for block in self.block or ((),))

    def bucket(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """Return the bucket of a problem's sizes, sorted by name."""
        return tuple((name, sizes[name] if rule == "exact" else _power(sizes[name])) for name, rule in self.sizes)

    def split(self, problem: Mapping[str, object], family: str) -> tuple[dict[str, object], dict[str, int]]:
        """Return the configuration of a problem and its sizes.

        Raises:
            PlanError: If a size is missing or not a whole number, or a free parameter is given.
        """
        names, free = [name for name, _ in self.sizes], [name for name, _ in self.free]
        besides = f" other than {', '.join(free)}" if free else ""
        expected = f"a problem has the sizes {', '.join(names) or 'none'}, and a value of each parameter{besides}"

        def error(what: str, hint: str = expected) -> PlanError:
            return PlanError(what, code="plan-problem", where=family, hint=hint)

        sizes: dict[str, int] = {}
        for name in names:
            try:
                sizes[name] = operator.index(problem[name])  # type: ignore[arg-type]  # which it finds out
            except (KeyError, TypeError):
                raise error(f"size {name} is missing, or is not a whole number") from None
            if not 0 <= sizes[name] <= _LARGEST_SIZE:
                raise error(f"size {name}={sizes[name]} is negative or too large")
        for name in free:
            if name in problem:
                hint = f"leave it out, or ask for this kernel with launcher({name}=...)"
                raise error(f"{name} is free: it is what is chosen for a problem", hint)
        return {name: value for name, value in problem.items() if name not in names}, sizes


def _power(value: int) -> int:
    """Return the largest power of two that is not above a size."""
    return 1 << value.bit_length() - 1 if value else 0
