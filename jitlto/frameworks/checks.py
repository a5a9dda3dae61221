"""Checks of a declaration, when it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from keyword import iskeyword
from typing import Any

from jitlto.base.errors import OperatorError
from jitlto.base.text import check_type, suggest
from jitlto.frameworks.parts import REQUIRED, Array, Flag, Output, Scalar
from jitlto.frameworks.shapes import DTYPES, parse_shape

_SCALARS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
_FLAGS: Mapping[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "str": (str,)}  # no float: -0.0 equals 0.0


class Checks:
    """The checks of one declaration.

    Args:
        operator: The declaration, whose module imports this one.

    Raises:
        OperatorError: If its parts contradict each other.
    """

    def __init__(self, operator: Any) -> None:
        self._where: str = operator.qualname
        self._dtypes: Mapping[str, Any] = operator.dtypes or {}
        check_type(self._where, str, "an operator's name must be text")
        for argument in operator.arguments:
            check_type(argument, (Array, Scalar, Flag), "an argument must be an Array, a Scalar or a Flag")
        for output in operator.outputs:
            check_type(output, Output, "an output must be an Output")
        parts = self._where.split("::")
        if len(parts) != 2 or not all(part.isidentifier() for part in parts):
            hint = "write namespace::name, each a Python identifier"
            raise OperatorError(f"invalid name {self._where!r}", code="operator-name", hint=hint)
        for variable, several in self._dtypes.items():
            if not several or variable in DTYPES:
                raise self._error("argument", f"dtypes[{variable!r}] is empty, or has the name of a dtype")
            for name in several:
                self._check_known(f"dtypes[{variable!r}]: unknown dtype", name, DTYPES)
        names = [part.name for part in (*operator.arguments, *operator.outputs)]
        for name in names:
            if not name.isidentifier() or iskeyword(name) or names.count(name) > 1 or name == "given":
                what = f"the name {name!r} is not a Python identifier, is taken, or occurs twice"
                raise self._error("name", what, "give each its own name")
        self._check_arguments(operator)
        shapes = {a.name: parse_shape(a.shape, self._where) for a in operator.arguments if isinstance(a, Array)}
        sizes = {size for shape in shapes.values() for size in shape if isinstance(size, str)}
        plain = {size.removeprefix("*") for size in sizes}
        if clash := sorted((plain & {*names, *self._dtypes}) or (plain if len(plain) < len(sizes) else ())):
            raise self._error("name", f"{clash[0]!r} names a size and something else", "rename one of them")
        # What an optional array alone has is unknown to a call without it.
        always = [a for a in operator.arguments if isinstance(a, Array) and not a.optional]
        if not always:
            what = "no argument is an array that is always given, which says on which device the kernel runs"
            raise self._error("argument", what, "declare one")
        sizes = {size for array in always for size in shapes[array.name] if isinstance(size, str)}
        self._check_outputs(operator, sizes, {array.dtype for array in always} & set(self._dtypes))
        texts = {a.name for a in operator.arguments if not isinstance(a, Array) and a.type == "str"}
        self._check_parameters(operator, {*(sizes & plain), *names} - texts)
        self._check_examples(operator, shapes)
        if operator.backward is not None:
            self._check_backward(operator)

    def _error(self, case: str, what: str, hint: str | None = None) -> OperatorError:
        return OperatorError(what, code=f"operator-{case}", where=self._where, hint=hint)

    def _check_known(self, what: str, name: object, known: Collection[str], case: str = "argument") -> None:
        if name not in known:
            hint = suggest(str(name), sorted(known)) or f"the names are {', '.join(sorted(known))}"
            raise self._error(case, f"{what} {name!r}", hint)

    def _check_arguments(self, operator: Any) -> None:
        optional = ""
        for argument in operator.arguments:
            name, default = argument.name, argument.default
            if isinstance(argument, Array):
                self._check_known(f"{name}: unknown dtype", argument.dtype, {*self._dtypes, *DTYPES})
            else:
                types = _FLAGS if isinstance(argument, Flag) else _SCALARS
                self._check_known(f"{name}: unknown type", argument.type, types)
                if default is not REQUIRED and type(default) not in types[argument.type]:
                    what = f"{name}: the default {default!r} is not of type {argument.type}"
                    raise self._error("argument", what, "correct the default")
                if type(default) is int and not -(2**63) <= default < 2**63:
                    what = f"{name}: the default {default} does not fit in 64 bits"
                    raise self._error("argument", what, "correct the default")
            if default is not REQUIRED:
                optional = name
            elif optional:
                what = f"{name} has no default, but follows {optional}, which has one"
                raise self._error("argument", what, "put it before the other")

    def _check_outputs(self, operator: Any, sizes: Collection[str], dtypes: Collection[str]) -> None:
        for output in operator.outputs:
            if not callable(output.dtype):
                self._check_known(f"{output.name}: unknown dtype", output.dtype, {*dtypes, *DTYPES})
            for size in parse_shape(output.shape, self._where) if isinstance(output.shape, str) else ():
                if isinstance(size, str):
                    self._check_known(f"output {output.name}: no array that is always given has a size", size, sizes)
        if not operator.outputs and not any(isinstance(a, Array) and a.mutated for a in operator.arguments):
            what = "an operator without outputs and mutated arguments has no effect"
            raise self._error("output", what, "declare what the kernel writes to")

    def _check_parameters(self, operator: Any, known: Collection[str]) -> None:
        for parameter in operator.parameters:
            if isinstance(parameter, str):
                self._check_known("no array, output, number or size is named", parameter, known, "parameter")
            elif not isinstance(parameter, int | float | None) and not callable(parameter):
                what = f"parameter {parameter!r} is neither a name nor a number, None or a function"
                raise self._error("parameter", what, "name what the kernel is passed")

    def _check_examples(self, operator: Any, shapes: Mapping[str, tuple[str | int, ...]]) -> None:
        types: dict[str, tuple[type, ...]] = {a.name: _FLAGS[a.type] for a in operator.arguments if isinstance(a, Flag)}
        for size in {size for shape in shapes.values() for size in shape if isinstance(size, str)}:
            types[size.removeprefix("*")] = (tuple,) if size[0] == "*" else (int,)
        for alternative in operator.examples:
            check_type(alternative, Mapping, "examples must be dicts of values by name")
            for name, values in alternative.items():
                self._check_known("examples: no flag, size or name of dtypes is", name, {*types, *self._dtypes})
                check_type(values, (tuple, list), "an example must be a tuple of values")
                several = self._dtypes.get(name)
                wrong = [v for v in values if (type(v) not in types[name] if several is None else v not in several)]
                if wrong or not values:
                    what = f"{wrong[0]!r} is no {name}" if wrong else f"{name} has no values"
                    raise self._error("argument", f"examples: {what}", "correct the example")

    def _check_backward(self, operator: Any) -> None:
        backward, second = operator.backward, operator.backward.operator
        known = {part.name for part in (*operator.arguments, *operator.outputs)}
        known |= {f"grad_{output.name}" for output in operator.outputs}
        arrays = {argument.name for argument in operator.arguments if isinstance(argument, Array)}
        for a in (*operator.arguments, *second.arguments):
            if isinstance(a, Array) and a.mutated:
                what = f"backward: {a.name} is mutated, and an operator with gradients mutates nothing"
                raise self._error("backward", what)
        for names, allowed, made in (
            (backward.arguments, known, second.arguments),
            (backward.gradients, arrays, second.outputs),
        ):
            for name in names:
                self._check_known("backward: unknown name", name, allowed, "backward")
            if len(names) != len(made):
                what = f"backward: {len(names)} names given for {len(made)} arguments or outputs of {second.qualname}"
                raise self._error("backward", what, f"the names are {', '.join(sorted(allowed))}")
