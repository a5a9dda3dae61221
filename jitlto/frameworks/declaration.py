"""Declarations of operators: what a framework has to know to call a family's kernel as one of its own operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from jitlto.base.cached import cached_property
from jitlto.base.errors import OperatorError
from jitlto.base.frozen import Shared
from jitlto.base.text import check_type, suggest
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Call, Case, Flag, Launch, Output, Scalar, Seam
from jitlto.frameworks.shapes import DTYPES, Dimensions, DType, bind_shape, parse_shape, shape_of
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import family as find_family

if TYPE_CHECKING:
    from jitlto.plan.plan import Plan


@dataclass(frozen=True)
class Backward:
    """The gradients of an operator, computed by a second operator.

    Args:
        operator: The second operator.
        arguments: What it is called with: names of arguments and outputs of the first operator, and ``grad_`` followed
            by the name of an output for the gradient of that output.
        gradients: For each output of the second operator, the argument of the first that it is the gradient of.
            Gradients of complex numbers are PyTorch's, the conjugates of JAX's.
    """

    operator: Operator
    arguments: Sequence[str]
    gradients: Sequence[str]


_SCALARS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
_FLAGS: Mapping[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "str": (str,)}  # no float: -0.0 equals 0.0
#: The operators of the process that are in use.
declared: WeakSet[Operator] = WeakSet()


@dataclass(frozen=True, eq=False)
class Operator(Shared):
    """An operator of a framework that launches a kernel of a family.

    Nothing is loaded when it is declared. :func:`jitlto.torch_operator` makes PyTorch's operator of it.

    Args:
        qualname: ``namespace::name``.
        family: The family's name, the family, or a function without arguments that returns it, called once.
        arguments: What the operator is called with.
        outputs: What it returns.
        configuration: Returns the parameter values that choose the kernel.
        launch: Returns the launch configuration.
        parameters: The kernel's arguments, in order: the name of an array, an output, a scalar, a flag or a size; a
            number, a boolean or None; or a function of the :class:`Case` that returns one of these three.
        dtypes: The dtypes that each name may stand for.
        entry: As for :meth:`KernelFamily.launcher <jitlto.KernelFamily.launcher>`.
        link_options: The same.
        backward: How gradients are computed.
        examples: The calls that ``jitlto check --operators`` proves: alternatives, each of which gives values to flags,
            sizes and names of dtypes. What one leaves out has all of its dtypes, both values of a boolean, or 64 for a
            size; the values of all other flags are to be named.
        prologue: Where a function can make the elements of an argument.
        epilogue: Where a function can be applied to the elements of the output.
        sources: The functions there, for :meth:`with_epilogue` and :func:`jitlto.torch_fusion` to say.

    Raises:
        OperatorError: If the declaration contradicts itself.
    """

    qualname: str
    family: str | KernelFamily | Callable[[], KernelFamily]
    arguments: Sequence[Argument]
    outputs: Sequence[Output]
    configuration: Callable[[Case], Mapping[str, object]]
    launch: Callable[[Case], Launch]
    parameters: Sequence[Any]
    dtypes: Mapping[str, Sequence[str]] | None = None
    entry: str | None = None
    link_options: Mapping[str, object] | None = None
    backward: Backward | None = None
    examples: Sequence[Mapping[str, Sequence[object]]] = ({},)
    prologue: Seam | None = None
    epilogue: Seam | None = None
    sources: Sequence[Callable[[Case], tuple[str, str]]] = ()

    def __post_init__(self) -> None:
        _check(self)
        declared.add(self)

    @property
    def namespace(self) -> str:
        """The part of its name before the colons."""
        return self.qualname.partition("::")[0]

    @property
    def name(self) -> str:
        """The part of its name after the colons."""
        return self.qualname.partition("::")[2]

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arguments that are arrays."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Array))

    @cached_property
    def first_array(self) -> int:
        """The position of an array that is always given, which says where the kernel runs."""
        return next(n for n, each in enumerate(self.arguments) if isinstance(each, Array) and not each.optional)

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """The arguments that choose."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Flag))

    @cached_property
    def defaults(self) -> tuple[tuple[int, object], ...]:
        """Position and default of each argument that has one."""
        return tuple((n, each.default) for n, each in enumerate(self.arguments) if each.default is not REQUIRED)

    @cached_property
    def patterns(self) -> dict[str, Dimensions]:
        """The shapes of arguments and outputs that are given as text, by name."""
        parts: tuple[Array | Output, ...] = (*self.arrays, *self.outputs)
        return {part.name: parse_shape(part.shape, self.qualname) for part in parts if isinstance(part.shape, str)}

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The names in the shapes of arguments, with the ``*`` of several sizes."""
        names = (size for array in self.arrays for size in self.patterns[array.name] if isinstance(size, str))
        return tuple(dict.fromkeys(names))

    def bind(self, values: Sequence[Any]) -> Case:
        """Bind the names of the declaration to what one call is given.

        Args:
            values: For each argument, in order: of an array, its shape and its dtype's name, or None if it is not
                given; of a flag, its value; of a scalar, anything.

        Raises:
            OperatorError: If an array does not have the declared dtype or shape.
        """
        bound: dict[str, Any] = {}
        given = set()
        for argument, value in zip(self.arguments, values, strict=True):
            if isinstance(argument, Flag):
                bound[argument.name] = value
            elif isinstance(argument, Array) and not (value is None and argument.optional):
                if argument.optional:
                    given.add(argument.name)
                wrong = "is missing" if value is None else self._bind_array(argument, value, bound)
                if wrong:
                    hint = f"it is declared as {argument.dtype} with the shape ({', '.join(argument.shape.split())})"
                    raise self.error(f"{argument.name} {wrong}", hint)
        return Case(bound, frozenset(given), self.qualname)

    def _bind_array(self, array: Array, value: tuple[Sequence[Any], str], bound: dict[str, Any]) -> str | None:
        """Bind the names of an array's shape and dtype; return what does not fit."""
        shape, dtype = value
        known = (self.dtypes or {}).get(array.dtype, (array.dtype,))
        if dtype not in known:
            return f"has dtype {dtype}, not {' or '.join(known)}"
        if array.dtype not in DTYPES and bound.setdefault(array.dtype, DType(dtype)) != dtype:
            return f"has dtype {dtype}, and another array {bound[array.dtype]}"
        return bind_shape(self.patterns[array.name], shape, bound)

    def error(self, what: str, hint: str | None = None, case: str = "call") -> OperatorError:
        """Return an error about this operator, by default of a call."""
        return OperatorError(what, code=f"operator-{case}", where=self.qualname, hint=hint)

    def results(self, case: Case) -> tuple[tuple[tuple[Any, ...], str], ...]:
        """Return shape and dtype of each output of a call."""
        found = []
        for output in self.outputs:
            shape = output.shape(case) if callable(output.shape) else shape_of(self.patterns[output.name], case)
            dtype = output.dtype(case) if callable(output.dtype) else output.dtype
            dtype = dtype if dtype in DTYPES else getattr(case, str(dtype))
            if dtype not in DTYPES:
                what = f"output {output.name} has an unknown dtype {dtype!r}"
                raise self.error(what, f"the dtypes are {', '.join(DTYPES)}")
            found.append((tuple(shape), str(dtype)))
        return tuple(found)

    def resolve(self, case: Case) -> Call:
        """Return all that follows from a case whose sizes are ints."""
        chosen = {
            name: value.cpp if isinstance(value, DType) else value for name, value in self.configuration(case).items()
        }
        launch: Launch | None = self.launch(case)
        if not isinstance(launch, Launch):
            raise self.error(f"the function for the launch returned {type(launch).__name__}, not a Launch")
        if 0 in (launch.grid if isinstance(launch.grid, tuple) else (launch.grid,)):
            launch = None
        parts = enumerate((*self.arguments, *self.outputs))
        places: dict[str, int | None] = {"prologue": None, "epilogue": None}  # where nothing is fused
        places |= {part.name: place for place, part in parts if not isinstance(part, Flag)}
        missing = {array.name for array in self.arrays if array.optional} - case.given
        parameters: list[tuple[Any, Any]] = []
        for each in self.parameters:
            if isinstance(each, tuple):
                parameters.append((tuple(places[name] for name in each), None))
            elif not isinstance(each, str):
                parameters.append((None, each(case) if callable(each) else each))
            elif each in places:
                parameters.append((None if each in missing else places[each], None))
            else:
                parameters.append((None, getattr(case, each)))
        sources = dict(source(case) for source in self.sources)
        return Call(self.results(case), chosen, launch, tuple(parameters), sources)

    @cached_property
    def loaded(self) -> KernelFamily:
        """The family, found on first use."""
        if isinstance(self.family, str):
            return find_family(self.family)
        return self.family if isinstance(self.family, KernelFamily) else self.family()

    def plan(self, call: Call) -> Plan:
        """Plan the kernel of a call."""
        planner = self.loaded.planner(self.entry, **call.configuration)
        for name, text in call.sources.items():
            planner.add_source(text, name)
        return planner.plan(link_options=self.link_options)

    def launcher(self, call: Call) -> Any:
        """Return the launcher of the kernel of a call."""
        if call.sources:
            return self.loaded.load(self.plan(call))
        return self.loaded.launcher(entry=self.entry, link_options=self.link_options, **call.configuration)

    def with_epilogue(self, expression: str, *, dtype: str | None = None, **inputs: str | float) -> Operator:
        """Return an operator whose kernel applies a function to each element of the output before it is written.

        Args:
            expression: Of ``v``, the element, and of inputs: ``"gelu(v * scale + bias[col])"``. An input is written as
                ``bias[col]`` with a value a column (of the last dimension), ``x[row]`` a row, ``x[row, col]`` an
                element, or ``x`` for one. Operators and functions are those of Python and PyTorch: see
                docs/operators.md.
            dtype: That of the new output; by default that of the old one.
            **inputs: Of each array its dtype; of a number that each call is given, ``float``; or the number itself. The
                first two become arguments, in their order, behind those without a default.

        Raises:
            OperatorError: If it declares no ``epilogue``, or the expression cannot be computed.
        """
        from jitlto.frameworks.fusion import with_epilogue

        return with_epilogue(self, expression, dtype, inputs)  # type: ignore[no-any-return]


def _check(operator: Operator) -> None:
    """Check a declaration; names that a call lacks are found where the call is bound.

    Raises:
        OperatorError: If its parts contradict each other.
    """
    check_type(operator.qualname, str, "an operator's name must be text")
    for argument in operator.arguments:
        check_type(argument, (Array, Scalar, Flag), "an argument must be an Array, a Scalar or a Flag")
    for output in operator.outputs:
        check_type(output, Output, "an output must be an Output")
    _check_names(operator)
    _check_arguments(operator)
    if not any(not array.optional for array in operator.arrays):
        what = "no argument is an array that is always given, which says on which device the kernel runs"
        raise operator.error(what, "declare one", case="argument")
    if not operator.outputs and not any(array.mutated for array in operator.arrays):
        what = "an operator without outputs and mutated arguments has no effect"
        raise operator.error(what, "declare what the kernel writes to", case="output")
    for parameter in operator.parameters:
        if not (isinstance(parameter, str | int | float | None) or callable(parameter) or operator.sources):
            what = f"parameter {parameter!r} is neither a name nor a number, None or a function"
            raise operator.error(what, "name what the kernel is passed", case="parameter")
    if operator.backward is not None:
        _check_backward(operator, operator.backward)
    for side, parts in (("prologue", operator.arrays), ("epilogue", operator.outputs)):
        if (seam := getattr(operator, side)) is not None:
            check_type(seam, Seam, f"{side} must be a Seam")
            _check_known(operator, f"{side}: unknown array", seam.array, {part.name for part in parts}, side)
            if side not in operator.parameters or len(operator.outputs) != 1:
                hint = f'name "{side}" in parameters where the kernel takes the inputs of a function'
                raise operator.error(f"{side}: the operator has no such parameter, or not one output", hint, side)


def _check_known(operator: Operator, what: str, name: object, known: Collection[str], case: str = "argument") -> None:
    if name not in known:
        hint = suggest(str(name), sorted(known)) or f"the names are {', '.join(sorted(known))}"
        raise operator.error(f"{what} {name!r}", hint, case)


def _check_names(operator: Operator) -> None:
    """Check that each name is one, stands for one thing, and is used where there are examples of it."""
    dtypes = operator.dtypes or {}
    if not re.fullmatch(r"[^\W\d]\w*::[^\W\d]\w*", operator.qualname, re.ASCII):  # as in PyTorch's schemas
        what = f"invalid name {operator.qualname!r}"
        raise operator.error(what, "write namespace::name, each an ASCII identifier", case="name")
    for variable, several in dtypes.items():
        if not several or variable in DTYPES:
            raise operator.error(f"dtypes[{variable!r}] is empty, or has the name of a dtype", case="argument")
        for name in several:
            _check_known(operator, f"dtypes[{variable!r}]: unknown dtype", name, DTYPES)
    sizes = [size.removeprefix("*") for size in operator.sizes]
    parts = [part.name for part in (*operator.arguments, *operator.outputs)]
    for name in (names := [*parts, *sizes, *dtypes]):
        if not name.isascii() or not name.isidentifier() or iskeyword(name) or names.count(name) > 1 or name == "given":
            what = f"the name {name!r} is not an ASCII identifier, is taken, or stands for two things"
            raise operator.error(what, "give each its own name", case="name")
    chosen = {*sizes, *dtypes, *(flag.name for flag in operator.flags)}
    for name, values in (item for example in operator.examples for item in example.items()):
        _check_known(operator, "examples: no flag, size or name of dtypes is", name, chosen)
        if not isinstance(values, tuple | list) or not values:
            raise operator.error(f"examples: {name} has no tuple of values", case="argument")


def _check_arguments(operator: Operator) -> None:
    """Check types, defaults and their order."""
    optional = ""
    for argument in operator.arguments:
        name, default = argument.name, argument.default
        if isinstance(argument, Array):
            _check_known(operator, f"{name}: unknown dtype", argument.dtype, {*(operator.dtypes or {}), *DTYPES})
        else:
            types = _FLAGS if isinstance(argument, Flag) else _SCALARS
            _check_known(operator, f"{name}: unknown type", argument.type, types)
            if default is not REQUIRED and type(default) not in types[argument.type]:
                raise operator.error(f"{name}: the default {default!r} is not of type {argument.type}", case="argument")
            if type(default) is int and not -(2**63) <= default < 2**63:
                raise operator.error(f"{name}: the default {default} does not fit in 64 bits", case="argument")
        if default is not REQUIRED:
            optional = name
        elif optional:
            what = f"{name} has no default, but follows {optional}, which has one"
            raise operator.error(what, "put it before the other", case="argument")


def _check_backward(operator: Operator, backward: Backward) -> None:
    """Check that gradients are computed from what there is, and mutate nothing."""
    check_type(backward.operator, Operator, "backward: the second operator must be an Operator")
    second, arrays = backward.operator, {array.name for array in operator.arrays}
    if any(array.mutated for array in (*operator.arrays, *second.arrays)):
        raise operator.error("backward: an operator with gradients mutates nothing", case="backward")
    allowed = {part.name for part in (*operator.arguments, *operator.outputs)}
    allowed |= {f"grad_{output.name}" for output in operator.outputs}
    for given, known, made in (
        (backward.arguments, allowed, second.arguments),
        (dict.fromkeys(backward.gradients), arrays, second.outputs),  # of two of one argument, one would get lost
    ):
        for name in given:
            _check_known(operator, "backward: unknown name", name, known, "backward")
        if len(given) != len(made):
            what = f"backward: {len(given)} names given for {len(made)} arguments or outputs of {second.qualname}"
            raise operator.error(what, f"the names are {', '.join(sorted(known))}", case="backward")
