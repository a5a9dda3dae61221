"""Compilation of callers' Python functions by numba-cuda, each time that one is planned: what it refers to may change.

Numba is imported only when a function has to be compiled.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from jitlto.base import types
from jitlto.base.errors import CompileError, InterfaceMismatchError, JitltoError, ToolchainError
from jitlto.base.frozen import Shared
from jitlto.base.mangling import demangle, split_top_level
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import ptx, toolkit
from jitlto.plan.user_code.adapter import USE_CPP, qualified_name
from jitlto.record.fragment import Symbol

_NUMBA_TYPES = {
    "b1": "boolean", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64",
}  # fmt: skip
_RELEASE = re.compile(r"^// Cuda compilation tools, release (\d+\.\d+)", re.M)


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


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's types by Numba's names: ``void``, ``float32``, ``float32*``, ``void*``."""

    result: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.result}({', '.join(self.parameters)})"


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """The code that Numba generated for a function."""

    ltoir: bytes
    ptx: str

    @property
    def version(self) -> Version | None:
        """The toolkit whose libNVVM wrote it."""
        match = _RELEASE.search(self.ptx)
        return Version.parse(match[1]) if match else None

    @property
    def identity(self) -> str:
        """SHA-256 of the code."""
        return hashlib.sha256(self.ltoir + b"\0" + self.ptx.encode()).hexdigest()


def compile_function(
    function: PythonFunction, symbol: Symbol, base: Architecture, *, fast_math: bool = False
) -> CompiledFunction:
    """Compile a Python function with the name and types of the symbol that its adapter calls.

    Raises:
        InterfaceMismatchError: If the function takes a different number of arguments, or Numba lacks one of the types.
        CompileError: If Numba cannot compile it for these types.
        ToolchainError: If numba-cuda is not installed.
    """
    signature = _signature(function, symbol.name)
    _check_code(function.function, function.function.__code__, signature)
    return _compile(function, symbol.name, signature, base, fast_math)


def _signature(function: PythonFunction, inner: str) -> Signature:
    """Return Numba's signature of the function that the adapter calls, from the template arguments in its name."""
    called = qualified_name(demangle(inner))
    result, *parameters = split_top_level(called.partition("<")[2].removesuffix(">"))
    signature = Signature(
        _numba_type(function, result, result=True), tuple(_numba_type(function, parameter) for parameter in parameters)
    )
    try:
        inspect.signature(function.function).bind(*parameters)
    except TypeError:
        raise InterfaceMismatchError(
            f"takes {inspect.signature(function.function)}, but the kernel calls it with {len(parameters)} arguments "
            f"({', '.join(parameters)})",
            code="plan-interface-mismatch-count",
            where=function.where,
            hint="give it one parameter for each argument of the call",
        ) from None
    return signature


def _check_code(function: FunctionType, code: CodeType, signature: Signature) -> None:
    """Check for what Numba compiles to a wrong value, or to code that libNVVM does not read.

    Where a value turns out to be None, Numba raises an exception. A device has none, and goes on with another value.

    Raises:
        CompileError: If the function raises an exception, or uses None other than to compare with it.
    """
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip(instructions, [*(each.opname for each in instructions[1:]), ""], strict=True):
        is_returned = following == "RETURN_VALUE" or instruction.opname == "RETURN_CONST"
        line = instruction.positions.lineno if instruction.positions else None
        where = f"{function.__qualname__} ({code.co_filename}:{line or code.co_firstlineno})"
        if instruction.opname == "RAISE_VARARGS":
            what, hint = "raises an exception, which device code cannot", "leave out raise and assert: return a value"
            raise CompileError(what, code="compile-python-raise", where=where, hint=hint)
        is_compared = following == "IS_OP" or following.endswith("_NONE")  # a jump
        may_be = is_compared or (is_returned and signature.result == "void")
        if _is_none(function, instruction) and not may_be:
            what, hint = f"may be None where a value is needed, as {signature}", "give a value on every path"
            raise CompileError(what, code="compile-python-none", where=where, hint=hint)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(function, constant, signature)


def _is_none(function: FunctionType, instruction: dis.Instruction) -> bool:
    """Return whether an instruction loads None, also by the name of a variable outside of the function."""
    if instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        with contextlib.suppress(ValueError):  # a name that is not bound yet
            cell = cells.get(instruction.argval)
            return (cell.cell_contents if cell else function.__globals__.get(instruction.argval, "")) is None
    return instruction.opname in ("LOAD_CONST", "RETURN_CONST") and instruction.argval is None


def _numba_type(function: PythonFunction, type_name: str, *, result: bool = False) -> str:
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


def _import_numba() -> Any:
    """Import numba.cuda, and check that it has what it compiles with."""
    try:
        numba = import_module("numba.cuda")
    except ImportError as error:
        what = f"cannot import numba.cuda, which is needed to compile Python functions: {error}"
        raise ToolchainError(what, code="toolchain-missing", hint=toolkit.install_hint("numba")) from error
    try:
        toolkit.build_id("nvvm")
    except ToolchainError as error:
        raise ToolchainError(
            f"libNVVM, which Numba compiles with, is missing: {error.what}",
            code="toolchain-missing",
            hint="install nvidia-nvvm for CUDA 13, nvidia-cuda-nvcc-cu12 for CUDA 12",
        ) from error
    return numba


@uninterrupted
def _compile(
    function: PythonFunction, name: str, signature: Signature, base: Architecture, fast_math: bool
) -> CompiledFunction:
    cuda = _import_numba()
    numba_types: Any = cuda.types

    def numba_type(text: str) -> Any:
        if not text.endswith("*"):
            return getattr(numba_types, text)
        return numba_types.voidptr if text == "void*" else numba_types.CPointer(getattr(numba_types, text[:-1]))

    def compile_to(output: str) -> Any:
        return cuda.compile(
            function.function,
            numba_type(signature.result)(*map(numba_type, signature.parameters)),
            device=True,
            debug=False,
            lineinfo=False,
            fastmath=fast_math,
            opt=True,
            abi="c",
            abi_info={"abi_name": name},
            cc=divmod(base.number, 10),
            output=output,
        )[0]

    try:
        compiled = CompiledFunction(bytes(compile_to("ltoir")), str(compile_to("ptx")))
        ptx.parse_ptx(compiled.ptx)
    except Exception as error:
        raise _compile_error(function, signature, error) from error
    return compiled


def _compile_error(function: PythonFunction, signature: Signature, error: Exception) -> CompileError:
    log = str(error).strip() or repr(error)
    indented = "\n".join(f"    {line}" for line in log.splitlines() if line.strip())
    hint = "use only what numba.cuda supports in a device function"
    if type(error).__name__ == "CudaSupportError":
        hint = (
            "Numba needs a device to compile a function that calls a different compiled function; without a device, "
            "use a single function"
        )
    elif "ERROR_INVALID_IR" in log:
        hint = "leave out what may raise an exception, such as an index into a tuple that is not a constant"
    elif isinstance(error, AttributeError):
        hint = toolkit.install_hint("numba")
    what = f"Numba cannot compile the function as {signature}\n{indented}"
    return CompileError(what, code="compile-python", where=function.where, hint=hint, log=log)
