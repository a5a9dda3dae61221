"""Fingerprints of Python functions: bytecode, constants and everything that they refer to, as plain values.

Two functions with equal fingerprints compile to the same code, given the same versions of Python and of the libraries
that they use. A function for which this cannot be decided has no fingerprint.
"""

from __future__ import annotations

import builtins
import dis
import struct
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

#: Objects of these libraries are identified by name; the libraries' versions represent their content.
_LIBRARIES = frozenset({"builtins", "math", "cmath", "operator", "numpy", "numba"})


class _OpaqueError(Exception):
    """A value that cannot be described."""


def fingerprint(function: FunctionType) -> object | None:
    """Return everything that determines a function's behaviour, as plain JSON values; None if that is not possible.

    Code, constants, defaults, closure and global values can be described, and so can functions, types and modules of
    ``math``, ``cmath``, ``operator``, NumPy and Numba. Other functions, objects and modules cannot.
    """
    try:
        return _function(function)
    except _OpaqueError:
        return None


def _function(function: FunctionType) -> object:
    code = function.__code__
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a name that is not bound yet
        raise _OpaqueError from None
    loads = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return {
        "python": sys.version,
        "code": _code(code),
        "defaults": _value(function.__defaults__),
        "keywords": sorted([name, _value(value)] for name, value in (function.__kwdefaults__ or {}).items()),
        "closure": [_value(cell) for cell in cells],
        "globals": {name: _global(function, name) for name in sorted(loads)},
    }


def _global(function: FunctionType, name: str) -> object:
    if name in function.__globals__:
        return _value(function.__globals__[name])
    if hasattr(builtins, name):
        return ["builtin", name]
    raise _OpaqueError


def _code(code: CodeType) -> object:
    return [
        code.co_code.hex(),
        [_value(constant) for constant in code.co_consts],
        list(code.co_names),
        list(code.co_varnames),
        list(code.co_freevars),
        list(code.co_cellvars),
        [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
        code.co_exceptiontable.hex(),
    ]


def _value(value: object) -> object:
    """Describe a value by type and content; floats by their bits, so that NaN and -0.0 keep their identity."""
    if value is None or value is Ellipsis:
        return str(value)
    if type(value) in (bool, int, str):
        return [type(value).__name__, str(value)]
    if type(value) is bytes:
        return ["bytes", value.hex()]
    if type(value) is float:
        return ["float", struct.pack("<d", value).hex()]
    if type(value) is complex:
        return ["complex", struct.pack("<dd", value.real, value.imag).hex()]
    if type(value) is tuple:
        return ["tuple", [_value(item) for item in value]]
    return _of_library(value)


def _of_library(value: object) -> object:
    """Describe a library's module or object by its name, a NumPy scalar or array by its content."""
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] in _LIBRARIES:
            return ["module", value.__name__]
        raise _OpaqueError
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        if value.dtype.hasobject or value.dtype.names:
            raise _OpaqueError
        return ["array", value.dtype.str, list(value.shape), value.tobytes().hex()]
    if isinstance(value, (type, BuiltinFunctionType)):
        owner, name = value.__module__, value.__name__
    elif numpy is not None and isinstance(value, numpy.ufunc):
        owner, name = "numpy", value.__name__
    else:
        owner, name = "numba.core.types", str(value)  # singletons such as int32
    # The library must have the same object under that name.
    if owner.partition(".")[0] in _LIBRARIES and getattr(sys.modules.get(owner), name, None) is value:
        return ["of", owner, name]
    raise _OpaqueError
