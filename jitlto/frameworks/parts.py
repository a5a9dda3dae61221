"""The parts of a declaration of an operator, and what one call of it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeAlias

from jitlto.base.errors import OperatorError

if TYPE_CHECKING:
    from jitlto.launch.step import Extent

#: The default of an argument that has none.
REQUIRED: Any = Parameter.empty


@dataclass(frozen=True)
class Array:
    """An argument that is an array on the GPU.

    Args:
        name: A Python identifier.
        dtype: A dtype's name (``float32``), or the name of one of the operator's ``dtypes``.
        shape: Its dimensions, divided by blanks: a name, which stands for the same size everywhere; a number; or, once,
            ``*name`` for any number of dimensions.
        mutated: True if the kernel writes to it.
        optional: True if None may be given instead, which the kernel gets as a null pointer.
    """

    name: str
    dtype: str
    shape: str
    mutated: bool = False
    optional: bool = False

    @property
    def default(self) -> object:
        """None if it is optional."""
        return None if self.optional else REQUIRED


@dataclass(frozen=True)
class Scalar:
    """An argument that is a number, and is only passed on to the kernel.

    Args:
        name: A Python identifier.
        type: ``int``, ``float`` or ``bool``.
        default: Its value where none is given.
    """

    name: str
    type: str
    default: object = REQUIRED


@dataclass(frozen=True)
class Flag:
    """An argument that chooses the kernel, the shape of an output or the launch; known when a call is compiled.

    Args:
        name: A Python identifier.
        type: ``int``, ``bool`` or ``str``.
        default: Its value where none is given.
    """

    name: str
    type: str
    default: object = REQUIRED


Argument: TypeAlias = Array | Scalar | Flag


class Case:
    """What the functions of a declaration get: one call's sizes, dtypes and flags, as attributes.

    A name of a shape is its size, and ``*name`` the tuple of its sizes; a name of ``dtypes`` is a
    :class:`~jitlto.frameworks.shapes.DType`; a flag is its value.

    Attributes:
        given: The names of the optional arrays that were given.
    """

    def __init__(self, names: Mapping[str, Any], given: frozenset[str], where: str) -> None:
        self.__dict__.update(names)
        self.given = given
        self._where = where

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(n for n in self.__dict__ if n != "_where"))
        raise OperatorError(
            f"a call has no {name!r}", code="operator-name", where=self._where, hint=f"its names are {known}"
        )


@dataclass(frozen=True)
class Output:
    """An array that the operator makes and the kernel fills.

    Args:
        name: A Python identifier.
        dtype: As of :class:`Array`, or a function of the :class:`Case`.
        shape: The same; a function returns a tuple.
    """

    name: str
    dtype: str | Callable[[Case], str]
    shape: str | Callable[[Case], Sequence[Any]]


@dataclass(frozen=True)
class Seam:
    """A place where a function of element-wise operations takes the place of a group of the operator's family.

    Args:
        group: The group, whose function the kernel calls for each element.
        array: An argument, of which the function makes the elements (a prologue), or the output, to whose elements it
            is applied (an epilogue). It is contiguous, and its last dimension are the columns of a row.
        source: CUDA C++ that defines the group's function by ``fused::load(row, column, columns, value, info)`` or
            ``fused::store(output, row, column, columns, value, info)``; or a function of the :class:`Case` that returns
            it. Both are for ``value``, an array of one or more neighbours: numbers of 16 bits as float, complex ones as
            float2 or double2. ``info`` is what the kernel is passed for ``"prologue"`` or ``"epilogue"`` among the
            operator's ``parameters``.
    """

    group: str
    array: str
    source: str | Callable[[Case], str]


@dataclass(frozen=True)
class Launch:
    """The launch configuration of a call; arguments as for :meth:`Launcher.__call__ <jitlto.Launcher.__call__>`.

    A grid with an extent of 0 means that there is nothing to launch.
    """

    grid: Extent
    block: Extent
    shared_memory: int = 0
    cluster: Extent | None = None
    cooperative: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an operator, with all that follows from its shapes, dtypes and flags.

    Args:
        results: Shape and dtype of each output.
        configuration: The parameter values that choose the kernel.
        launch: Its launch configuration; None if there is nothing to launch.
        parameters: Of each argument of the kernel, its position among the operator's arguments and, behind these,
            outputs, or those of what a table in device memory holds; or None, and the value itself.
        sources: CUDA C++ that takes the place of groups, by the name that messages have for it.
    """

    results: tuple[tuple[tuple[Any, ...], str], ...]
    configuration: Mapping[str, Any]
    launch: Launch | None
    parameters: tuple[tuple[Any, Any], ...]
    sources: Mapping[str, str] = field(default_factory=dict)
