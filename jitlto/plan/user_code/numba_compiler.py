"""Compilation of callers' Python functions by numba-cuda, each time that one is planned: what it refers to may change.

Numba is imported only when a function has to be compiled.
"""

import dis
import hashlib
import inspect
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from jitlto.base import types
from jitlto.base.errors import CompileError, InterfaceMismatchError, JitltoError
from jitlto.base.frozen import Shared
from jitlto.base.mangling import qualified_name, split_top_level
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Architecture
from jitlto.cuda import toolkit
from jitlto.plan.user_code.adapter import USE_CPP
from jitlto.plan.user_code.compilation import UserCode
from jitlto.record.fragment import Symbol

_NUMBA_TYPES = {
    "b1": "boolean", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PythonFunction(Shared):
    """A caller's function and the group that it replaces."""

    function: FunctionType
    group: str

    def __reduce__(self) -> str:
        """Raise an error, because its code is this process's."""
        raise JitltoError(
            "a Python function cannot be sent to another process with the planner that it was added to",
            code="jitlto-not-portable",
            where=self.where,
            hint="add it there: planner.add_function(...)",
        )

    @property
    def where(self) -> str:
        """Its name, file and line, for messages."""
        code = self.function.__code__
        return f"{self.function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def compile_function(
    function: PythonFunction, symbol: Symbol, base: Architecture, *, fast_math: bool = False
) -> UserCode:
    """Compile a Python function with the name and types of the symbol that its adapter calls.

    Raises:
        InterfaceMismatchError: If Numba lacks one of the types.
        CompileError: If Numba cannot compile it for these types.
        ToolchainError: If numba-cuda is not installed.
    """
    # The types are the template arguments in the symbol's name.
    result, *parameters = split_top_level(qualified_name(symbol.name).partition("<")[2].removesuffix(">"))
    numba_types = [_numba_type(function, result, result=True), *(_numba_type(function, each) for each in parameters)]
    described = f"{numba_types[0]}({', '.join(numba_types[1:])})"
    if _needs_none(function.function, function.function.__code__, is_void=result == "void"):
        what, hint = f"may be None where a value is needed, as {described}", "give a value on every path"
        raise CompileError(what, code="compile-python-none", where=function.where, hint=hint)
    with toolkit.needed("cannot import numba.cuda, which is needed to compile Python functions", "numba"):
        cuda = import_module("numba.cuda")
    toolkit.find_library("nvvm")
    try:
        return _compile(cuda, function.function, symbol.name, numba_types, base, fast_math)
    except Exception as error:
        log = str(error).strip() or repr(error)
        indented = "\n".join(f"    {line}" for line in log.splitlines() if line.strip())
        what = f"Numba cannot compile the function as {described}\n{indented}"
        hint = "use only what numba.cuda supports in a device function, and nothing that may raise an exception"
        raise CompileError(what, code="compile-python", where=function.where, hint=hint, log=log) from error


def _needs_none(function: FunctionType, code: CodeType, *, is_void: bool) -> bool:
    """Return whether a function uses None other than to compare with it, or to return it if it returns nothing.

    Where a value turns out to be None, Numba raises an exception. A device has none, and goes on with another value.
    """
    outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    instructions = list(dis.get_instructions(code))
    for one, following in zip(instructions, [*(each.opname for each in instructions[1:]), ""], strict=True):
        is_name = one.opname in ("LOAD_GLOBAL", "LOAD_DEREF")
        is_constant = one.opname in ("LOAD_CONST", "RETURN_CONST")
        is_none = outside.get(one.argval, "") is None if is_name else is_constant and one.argval is None
        is_compared = following == "IS_OP" or following.endswith("_NONE")  # a jump
        is_returned = following == "RETURN_VALUE" or one.opname == "RETURN_CONST"
        if is_none and not is_compared and not (is_returned and is_void):
            return True
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return any(_needs_none(function, each, is_void=is_void) for each in inner)


def _numba_type(function: PythonFunction, type_name: str, *, result: bool = False) -> str:
    """Return Numba's name of a C++ type: ``void``, ``float32``, ``float32*``, ``void*``."""
    if result and type_name == "void":
        return "void"
    if type_name.endswith("*"):
        pointed = types.find_scalar(type_name[:-1])
        known = _NUMBA_TYPES.get(pointed.typestr) if pointed else None
        return f"{known or 'void'}*"
    scalar = types.find_scalar(type_name)
    if scalar is None or scalar.typestr not in _NUMBA_TYPES:
        raise InterfaceMismatchError(
            f"{'returns' if result else 'takes'} {type_name}, which has no Numba type",
            code="plan-interface-mismatch-type",
            where=function.where,
            hint=USE_CPP,
        )
    if result and scalar.typestr in ("b1", "i1", "u1", "i2", "u2"):
        return "int32"  # the adapter narrows it
    return _NUMBA_TYPES[scalar.typestr]


@uninterrupted
def _compile(
    cuda: Any, function: FunctionType, name: str, numba_types: list[str], base: Architecture, fast_math: bool
) -> UserCode:
    def numba_type(text: str) -> Any:
        if not text.endswith("*"):
            return getattr(cuda.types, text)
        return cuda.types.voidptr if text == "void*" else cuda.types.CPointer(getattr(cuda.types, text[:-1]))

    def compile_to(output: str) -> Any:
        result, *parameters = map(numba_type, numba_types)
        how = {"debug": False, "lineinfo": False, "fastmath": fast_math, "opt": True, "cc": divmod(base.number, 10)}
        abi = {"device": True, "abi": "c", "abi_info": {"abi_name": name}}
        return cuda.compile(function, result(*parameters), output=output, **abi, **how)[0]

    ltoir, text = bytes(compile_to("ltoir")), str(compile_to("ptx"))
    return UserCode(text, hashlib.sha256(ltoir + b"\0" + text.encode()).hexdigest(), ltoir)
