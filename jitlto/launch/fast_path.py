"""The fast path of launches: a function generated for one signature, equivalent to ``launcher.bind(...)()``.

A list of converters costs one call per parameter. The generated function tests each argument inline: an array of the
right dtype gives its address, a Python number in range is passed as it is, and everything else goes to the parameter's
converter (:mod:`jitlto.launch.arguments`), which handles all cases. Launch configurations are reused.

It has code for the types of arrays and streams that launches have used so far, and is generated again when a launch
uses a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CodeType
from typing import Any

import numpy as np

from jitlto.base.types import Parameter, Scalar, find_scalar
from jitlto.launch import streams
from jitlto.launch.arguments import ArgumentConverter, pointed_type
from jitlto.launch.array_types import ArrayType, element_typestr, find_array_type
from jitlto.launch.streams import as_stream, default_stream, handle_code

# The largest Python int that cuda.core takes: it sends all of them as 8 bytes, signed.
_LARGEST = (1 << 63) - 1
# Each type in the code costs those after it a comparison.
_MOST_TYPES = 6
_MOST_OTHERS = 64
# Scalars whose arguments NumPy's scalar types represent.
_INTEGERS = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"))
_FLOATS = frozenset(("f2", "f4", "f8"))
_MISSING = object()  # in the place of an argument
_ELEMENTS = _INTEGERS | _FLOATS | {"b1", "c8", "c16", "bfloat16"}

_TEMPLATE = """
def make({constants}):
    def __call__(self, stream, grid, block, {parameters}*more, **how):
        # Not parameters of this function: Python would look up the default of each in every launch.
        attributes = read_attributes(**how) if how else None
        if {miscounted}:
            given = [argument for argument in ({arguments}*more,) if argument is not missing]
            raise self._convert.count_error(len(given))
        try:
            pass
{conversions}
        except JitltoError:
            raise
        except Exception:  # an array that is read otherwise than others of its type
            {targets} = self._convert(({arguments}))
        last_grid, last_block, config, last_stream, converted = self._last
        if attributes is not None:
            try:
                config = self._configs[grid, block, *attributes]
            except (KeyError, TypeError):
                config = self._configure(grid, block, *attributes)
            if attributes[1] is not None or attributes[2]:  # cluster, cooperative
                stream = last_stream = converted = as_stream(stream, reusable=False)
        elif grid is not last_grid or block is not last_block:
            try:
                config = self._configs[grid, block]
                self._last = grid, block, config, last_stream, converted
            except (KeyError, TypeError):  # an extent that may change is not remembered
                config = self._configure(grid, block)
        if stream is last_stream:
            stream = default_stream() if converted is None else converted
        elif type(stream) is not Stream:
            if stream is None:
                try:
                    stream = thread.default
                except AttributeError:
                    stream = default_stream()
{streams}
            else:
                stream = convert_stream(stream)
        try:
            launch(stream, config, self.kernel, {values})
        except JitltoError:
            raise
        except Exception as error:
            raise self._launch_error(error, grid, block, how.get("shared_memory", 0)) from error

    return __call__
"""

_STREAM = """
            elif type(stream) is {kind}:
                try:
                    handle = {handle}
                    stream = streams[handle] if handle else thread.default
                except Exception:
                    stream = as_stream(stream)
"""

# Streams that keep their handles, or objects with them: the last one is not converted again. None stands for the
# default stream, each thread's own. In one tuple with the configuration, because threads replace it.
_LASTING_STREAM = """
            elif type(stream) is {kind}:
                try:
                    kept = {kept}
                    if kept is not last_stream:
                        handle = {handle}
                        converted = (streams.get(handle) or as_stream(stream)) if handle else None
                        self._last = *self._last[:3], kept, converted
                except Exception:
                    converted = as_stream(stream)
                stream = default_stream() if converted is None else converted
"""

_OWN_STREAM = "            elif type(stream) is {kind}: pass"  # streams and graph builders of cuda.core itself

_INTERFACE_NAME = "__cuda_array_interface__"
_INTERFACE = """
elif type(a{number}) is array{position}:
    shown = a{number}.__cuda_array_interface__
    b{number}, readonly = shown["data"]
    if type(b{number}) is not int or not b{number} or shown["typestr"] != {typestr!r} or shown.get("strides"){readonly}:
        b{number} = converters[{number}](a{number})
"""


class FastPath:
    """What has been learnt about the launches of kernels with one signature.

    Args:
        signature: The kernels' parameters.
        convert: Converts their arguments.
        namespace: Where the generated code looks up ``launch``, ``Stream``, ``read_attributes`` and ``JitltoError``.
        install: Called with a new function when there is something to learn.
    """

    def __init__(
        self,
        signature: Sequence[Parameter],
        convert: ArgumentConverter,
        namespace: dict[str, Any],
        install: Callable[[Callable[..., None]], None],
    ) -> None:
        self._signature = signature
        self._converters = convert.converters
        self._namespace = namespace
        self._install = install
        self._lock = threading.Lock()
        # Type → how its arrays are read; None for the array interface.
        self._arrays: dict[type, ArrayType | None] = {}
        # The dtypes that the converter accepted, by parameter and type of array: where no scalar says the right one.
        self._accepted: dict[tuple[int, type], set[Any]] = {}
        # Type → code for the handle of its streams; an empty one for types of cuda.core.
        self._streams: dict[type, str] = {}
        self._others: set[type] = set()  # types of arguments and streams without a faster way

    def learn(self, stream: Any, args: Sequence[Any]) -> None:
        """Learn the types of a launch's arguments, right or wrong, and install a function for them."""
        for number, (convert, argument) in enumerate(zip(self._converters, args, strict=False)):
            if pointed_type(self._signature[number]) is None or argument is None:
                continue
            try:
                address = convert(argument)
            except Exception:  # noqa: BLE001, S112 - the launch itself raises it
                continue
            self._learn_array(number, argument, address)
        with suppress(Exception):  # the launch itself raises it
            self._learn_stream(stream)
        self._update()

    def compile(self) -> Callable[..., None]:
        """Generate the method ``__call__`` of launchers whose kernels have the signature."""
        constants: dict[str, Any] = {
            "as_stream": as_stream,
            "converters": tuple(
                convert if pointed_type(parameter) is None else self._pointer_converter(number)
                for number, (parameter, convert) in enumerate(zip(self._signature, self._converters, strict=True))
            ),
            "convert_stream": self._convert_stream,
            "default_stream": default_stream,
            "missing": _MISSING,
            "streams": streams.streams_by_handle,
            "thread": streams.thread,
        }
        for number, (kind, how) in enumerate(self._arrays.items()):
            constants[f"array{number}"] = kind
            constants |= {f"{name}{number}": getattr(kind, name) for name in (how.methods if how is not None else ())}
        lines: list[str] = []
        for number, parameter in enumerate(self._signature):
            lines += [f"            {line}" for line in self._conversion(number, parameter, constants)]
        stream_lines: list[str] = []
        for number, (kind, code) in enumerate(self._streams.items()):
            constants[f"stream{number}"] = kind
            kept, handle = streams.LASTING.get(code, ("", code.format("stream")))
            template = _LASTING_STREAM if kept else _STREAM if code else _OWN_STREAM
            stream_lines.append(template.format(kind=f"stream{number}", kept=kept, handle=handle).strip("\n"))
        numbers = range(len(self._signature))
        source = _TEMPLATE.format(
            constants=", ".join(constants),
            parameters="".join(f"a{number}=missing, " for number in numbers),
            miscounted=f"a{numbers[-1]} is missing or more" if numbers else "more",
            conversions="\n".join(lines),
            streams="\n".join(stream_lines),
            arguments="".join(f"a{number}, " for number in numbers),
            values=(values := "".join(f"b{number}, " for number in numbers)),
            targets=values or "()",
        )
        made: dict[str, Any] = {}
        exec(_compile(source), self._namespace, made)  # noqa: S102 - the text above, with numbers
        return made["make"](**constants)  # type: ignore[no-any-return]

    def _conversion(self, number: int, parameter: Parameter, constants: dict[str, Any]) -> list[str]:
        """Return the lines that convert one argument, and add the objects that they use to ``constants``."""
        target = pointed_type(parameter)
        known = find_scalar(parameter.type.strip() if target is None else target)
        if target is not None:
            return self._pointer(number, known, constants, constant="const" in target.split())
        return _scalar(number, known, constants)

    def _pointer(self, number: int, known: Scalar | None, constants: dict[str, Any], *, constant: bool) -> list[str]:
        name, value = f"a{number}", f"b{number}"
        lines: list[str] = []
        element = known if known is not None and known.typestr in _ELEMENTS else None
        for position, (kind, how) in enumerate(self._arrays.items()):
            if how is None:
                if element is not None and element.typestr != "bfloat16":  # the interface has no name for that
                    typestr, readonly = element_typestr(element), "" if constant else " or readonly"
                    text = _INTERFACE.format(number=number, position=position, typestr=typestr, readonly=readonly)
                    lines += text.strip("\n").split("\n")
                continue
            test, dtypes = how.test, f"dtype{position}_{element.typestr}" if element else f"dtypes{number}_{position}"
            if element is None:
                fits = f"{name}.dtype in {dtypes}"
                constants[dtypes] = self._accepted.setdefault((number, kind), set())
            elif (check := how.find_check(element)) is not None:
                fits, test = f"has_{dtypes}({name})", how.checked_test
                constants[f"has_{dtypes}"] = check
            elif (dtype := how.find_dtype(element)) is not None:
                fits = f"{name}.dtype is {dtypes}"
                constants[dtypes] = dtype
            else:
                continue
            lines += [
                f"elif type({name}) is array{position} and {fits} and {test.format(name, position)}:",
                f"    {value} = {how.address.format(name, position)} or converters[{number}]({name})",
            ]
        lines += [f"elif {name} is None:", f"    {value} = 0", "else:", f"    {value} = converters[{number}]({name})"]
        return [lines[0].removeprefix("el"), *lines[1:]]

    def _pointer_converter(self, number: int) -> Callable[[Any], int]:
        """Return the converter of a pointer parameter, which also learns the types of arrays."""
        convert = self._converters[number]

        def convert_pointer(argument: Any) -> int:
            address: int = convert(argument)
            if self._learn_array(number, argument, address):
                self._update()
            return address

        return convert_pointer

    def _learn_array(self, number: int, array: Any, address: int) -> bool:
        """Learn from an argument that the converter accepted; return whether there is new code to generate."""
        kind = type(array)
        if kind in self._others:
            return False
        with self._lock:
            new = kind not in self._arrays
            if new:
                how = find_array_type(kind)
                agrees = False if how is None else how.agrees(array, address)
                shown = not agrees and _has_interface(array)
                if agrees is None or (not agrees and not shown and hasattr(kind, _INTERFACE_NAME)):
                    return False  # another array of this type may tell more
                if not (agrees or shown) or len(self._arrays) >= _MOST_TYPES:
                    self._add_other(kind)
                    return False
                self._arrays[kind] = how if agrees else None
            if self._arrays[kind] is not None:
                accepted = self._accepted.setdefault((number, kind), set())
                if len(accepted) < _MOST_OTHERS:
                    accepted.add(array.dtype)
            return new

    def _convert_stream(self, stream: Any) -> Any:
        converted = as_stream(stream)
        if self._learn_stream(stream):
            self._update()
        return converted

    def _learn_stream(self, stream: Any) -> bool:
        """Learn the type of a stream; return whether there is new code to generate."""
        kind = type(stream)
        if stream is None or kind is int or kind is self._namespace.get("Stream") or kind in self._others:
            return False
        code = "" if kind.__module__.partition(".")[0] == "cuda" else handle_code(stream)
        with self._lock:
            if kind in self._streams:
                return False
            if code is None or len(self._streams) >= _MOST_TYPES:
                self._add_other(kind)
                return False
            self._streams[kind] = code
            return True

    def _add_other(self, kind: type) -> None:
        if len(self._others) < _MOST_OTHERS:
            self._others.add(kind)

    def _update(self) -> None:
        with self._lock:  # the last function that is installed knows everything
            self._install(self.compile())


def _has_interface(array: Any) -> bool:
    try:
        return hasattr(array, _INTERFACE_NAME)
    except Exception:  # noqa: BLE001 - a library's refusal for this array
        return False


def _compile(source: str) -> CodeType:
    return compile(source, "<jitlto launch>", "exec")


def _scalar(number: int, known: Scalar | None, constants: dict[str, Any]) -> list[str]:
    name, value = f"a{number}", f"b{number}"
    slow = f"{value} = converters[{number}]({name})"
    if known is None or known.typestr not in _INTEGERS | _FLOATS | {"b1"}:
        return [slow]
    if known.typestr == "b1":
        constants |= {"true": np.bool_(True), "false": np.bool_(False)}
        return [f"{value} = true if {name} is True else false if {name} is False else converters[{number}]({name})"]
    if known.typestr == "f8":
        return [f"{value} = {name} if type({name}) is float else converters[{number}]({name})"]
    kind = f"type_{known.typestr}"
    make = constants[kind] = np.dtype(known.typestr).type
    if known.typestr in _FLOATS:
        high = float(np.finfo(make).max)
        test, fitting = f"type({name}) is float and {-high!r} <= {name} <= {high!r}", f"{kind}({name})"
    else:
        limits = np.iinfo(make)
        # A Python int is sent as 8 bytes; the kernel reads only as many of the lowest as its type has.
        test = f"type({name}) is int and {int(limits.min)} <= {name} <= {min(int(limits.max), _LARGEST)}"
        fitting = name
    return [
        f"if {test}:",
        f"    {value} = {fitting}",
        f"elif type({name}) is {kind}:",
        f"    {value} = {name}",
        "else:",
        f"    {slow}",
    ]
