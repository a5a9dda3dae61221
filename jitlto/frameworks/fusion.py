"""Operators with a function in the place of a group: what the seams of a declaration are for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import eq
from typing import Any, NamedTuple, TypeAlias

from jitlto.frameworks.functions import Function, Input, prelude
from jitlto.frameworks.parts import REQUIRED, Array, Case, Scalar, Seam

#: An operator of ``declaration``, which imports this module.
Operator: TypeAlias = Any

#: How many inputs a function has at most, and how many of them are arrays.
MOST_INPUTS, _MOST_ARRAYS = 16, 8


class Fused(NamedTuple):
    """A function in the place of a group: what it reads, and what prints it for elements of a dtype."""

    seam: Seam
    inputs: Sequence[Input]
    make: Callable[[str], Function]

    def find_inputs(self, places: Mapping[str, int]) -> int | tuple[int, ...] | None:
        """Return what the kernel is passed: an array, or else a table of all inputs, by their places in a call."""
        found = tuple(places[each.name] for each in self.inputs)
        return found[0] if len(found) == 1 and self.inputs[0].dtype != "float" else found or None

    def sources(self, operator: Operator, case: Case, shape: Sequence[int], dtype: str) -> dict[str, str]:
        """Return the CUDA C++ that takes the group's place in a call, by the name that messages have for it.

        Raises:
            OperatorError: If an input does not have the sizes that are read for an output of some shape.
        """
        for name, dtype_, access in self.inputs if operator.fused.get("epilogue") is self else ():
            sizes = () if dtype_ == "float" else getattr(case, f"{name}_sizes")
            if not is_read(access, sizes, shape):
                what = f"{name} has the shape {sizes}, but is read by {access}"
                raise operator.error(what, f"the output has the shape {shape}")
        text = self.seam.source(case) if callable(self.seam.source) else self.seam.source
        return {f"{self.seam.group}.cu": f"{prelude()}{self.make(dtype).text}{text}"}


def is_read(access: str, sizes: Sequence[Any], whole: Sequence[Any], same: Callable[[Any, Any], bool] = eq) -> bool:
    """Return whether an array of some sizes can be read so, for elements of a whole."""
    rows, columns = whole[:-1], whole[-1:]
    ones = (1,) * len(rows)
    wanted = {"element": whole, "row": (*rows, 1), "column": (*ones, *columns), "one": (*ones, 1)}.get(access, sizes)
    missing = (1,) * (len(wanted) - len(sizes))
    sizes = (*sizes, *missing) if access == "row" else (*missing, *sizes)
    return len(sizes) == len(wanted) and all(map(same, sizes, wanted))


def fuse(
    operator: Operator, side: str, inputs: Sequence[Input], make: Callable[[str], Function], name: str
) -> Operator:
    """Return an operator with a function at a seam, the ``prologue`` or the ``epilogue``.

    The function's inputs become arguments, before those that have a default. Of the argument that a prologue makes, a
    call is given shape and dtype. ``name`` tells a function from others.

    Raises:
        OperatorError: If there is no seam, or the function has too many inputs.
    """
    seam = getattr(operator, side)
    if seam is None:
        raise operator.error(f"the operator declares no {side}", f"declare one: Operator(..., {side}=Seam(...))", side)
    arrays = [each for each in inputs if each.dtype != "float"]
    if len(arrays) > _MOST_ARRAYS or len(inputs) > MOST_INPUTS:
        what = f"a function of {len(inputs)} inputs, {len(arrays)} of them arrays"
        raise operator.error(what, f"use {MOST_INPUTS} at most, {_MOST_ARRAYS} of them arrays", side)
    made = seam.array if side == "prologue" else None
    arguments = [replace(each, optional=True) if each.name == made else each for each in operator.arguments]
    for each in inputs:
        is_array = each in arrays
        arguments.append(Array(*each[:2], f"*{each.name}_sizes") if is_array else Scalar(each.name, "float"))
    digest = hashlib.sha256(f"{operator.qualname} {side} {name}".encode()).hexdigest()
    changes: dict[str, Any] = {side: None, "fused": {**operator.fused, side: Fused(seam, inputs, make)}}
    return replace(
        operator,
        qualname=f"{operator.qualname}_{digest[:16]}",
        arguments=sorted(arguments, key=lambda argument: argument.default is not REQUIRED),
        parameters=[None if each == made else each for each in operator.parameters],
        backward=None,
        **changes,
    )
