"""Compilation of CUDA C++ with NVRTC, from contents to contents: no include path, no file, no driver.

The build side compiles fragments with it, the run side callers' own device functions.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Architecture, Version
from jitlto.compile.diagnostics import find_hint, make_source_error
from jitlto.cuda import toolkit
from jitlto.cuda.nvfatbin import RECIPES
from jitlto.cuda.ptx import ANCHOR
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source, split_leading_includes

#: The name by which a program includes what follows its leading includes. Where no header of that name is given, NVRTC
#: opens the file, at that moment: see :mod:`jitlto.compile.snapshot`.
REST = "/proc/self/fd/99"

#: What NVRTC has in place of an option of nvcc: code without annotations is device code too.
_FORMS = {"expt-relaxed-constexpr": "--device-as-default-execution-space"}
_NAME_DIGITS = 20  # 80 bits
_SEED = Version(12, 9)  # the first that was found to have --frandom-seed


class Step(NamedTuple):
    """One run of the compiler: what it makes, for what, and how."""

    kind: ImageKind
    architecture: Architecture
    options: Sequence[str]  # an author's


class Output(NamedTuple):
    """Output of one run of the compiler: its log, and what the step makes; PTX without a NUL."""

    log: str
    data: bytes
    ptx: bytes = b""  # that a cubin was made of


def identify(source: Source, architecture: Architecture, options: Sequence[str]) -> str:
    """Return the SHA-256 of everything that images of a source are made from.

    NVRTC writes the working directory into LTO-IR, so equal sources do not give equal bytes in every process; they do
    give equal identities.
    """
    made_from = [source.sha256, str(toolkit.nvrtc_version()), str(architecture), *options]
    return hashlib.sha256("\0".join(made_from).encode()).hexdigest()


def check_no_nul(source: Source) -> None:
    """Check that no text has a NUL byte, where NVRTC would end it."""
    for name, content in ((program_name(source.text), source.text), *source.headers.items()):
        if b"\0" in content:
            line = content[: content.index(b"\0")].count(b"\n") + 1
            log = f"{name}({line}): error: a NUL byte"
            raise CompileError("NUL byte in a source", code="compile-nul-byte", log=log)


def anchor(text: bytes, version: Version) -> bytes:
    """Return what to append to a source so that an NVRTC without ``--frandom-seed`` makes the same bytes of it again.

    NVRTC makes the names of internal symbols from the first function or variable that the source defines with external
    linkage. Only where there is none, as where all functions are templates, does it use the time and the process id.
    """
    if version >= _SEED:
        return b""
    name = ANCHOR + hashlib.sha256(text).hexdigest()
    return f'\nextern "C" __device__ void {name}() {{}}\n'.encode()


def program_name(text: bytes) -> str:
    """Return the name under which NVRTC sees a source, from its text alone.

    Names of internal symbols are made from it: a header that the compiler does not read must not change
    them. The linked kernel carries them, so it is short; where two of them are equal,
    the symbols still are local to a fragment.
    """
    return f"{hashlib.sha256(text).hexdigest()[:_NAME_DIGITS]}.cu"


class Program(NamedTuple):
    """Input of NVRTC: the leading includes of a source, followed by an include of the rest, called :data:`REST`.

    Sources with equal leading includes make one program, and differ in that header alone. NVRTC adds a hash of what a
    program defines to the names of internal symbols, so those of two sources differ although the program's name does
    not.
    """

    name: str
    text: bytes
    rest: bytes

    @classmethod
    def from_source(cls, source: Source) -> Program:
        """Return the program of a source; ``rest`` is empty for a source without leading includes."""
        head, rest = split_leading_includes(source.text)
        if not head:
            return cls.whole(source)
        rest += anchor(source.text, toolkit.nvrtc_version())
        name = program_name(head)
        text = head + b'#include "%s"\n' % REST.encode()
        return cls(name, text, b'#line 1 "%s"\n' % program_name(source.text).encode() + rest)

    @classmethod
    def whole(cls, source: Source) -> Program:
        """Return the program that is the whole source; its errors name lines of the leading includes too."""
        return cls(program_name(source.text), source.text + anchor(source.text, toolkit.nvrtc_version()), b"")


@cache
def translate_option(option: str) -> str | None:
    """Return NVRTC's form of an option of nvcc, None if it has none: NVRTC itself is asked which it takes."""
    nvrtc, form = toolkit.bindings("nvrtc"), _FORMS.get(option.lstrip("-"), option)
    status, handle = nvrtc.nvrtcCreateProgram(b"", b"", 0, [], [])
    _check(nvrtc, status)
    (status,) = nvrtc.nvrtcCompileProgram(handle, 1, [form.encode()])
    nvrtc.nvrtcDestroyProgram(handle)
    return None if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION else form


def run_step(source: Source, step: Step) -> Output:
    """Run NVRTC once.

    Raises:
        CompileError: If NVRTC rejects the source or an option.
        ToolchainError: If NVRTC cannot be loaded.
    """
    program = Program.from_source(source)
    if program.rest:
        with contextlib.suppress(CompileError):
            return run_program(program, {**source.headers, REST: program.rest}, step)
    return run_program(Program.whole(source), source.headers, step)


@uninterrupted
def run_program(program: Program, headers: Mapping[str, bytes], step: Step) -> Output:
    """Run NVRTC once on a program, with all its headers; errors as :func:`run_step`."""
    nvrtc, recipe = toolkit.bindings("nvrtc"), RECIPES[step.kind]
    names = sorted(headers)
    arguments = [
        *step.options,
        "--relocatable-device-code=true",
        *recipe.options,
        f"--gpu-architecture={recipe.architecture}_{step.architecture}",
        *([f"--frandom-seed={program.name.removesuffix('.cu')}"] if toolkit.nvrtc_version() >= _SEED else []),
        "--no-source-include",  # else headers that lie in the working directory are read
    ]
    status, handle = nvrtc.nvrtcCreateProgram(
        program.text,
        program.name.encode(),
        len(names),
        [headers[name] for name in names],
        [name.encode("utf-8", "surrogateescape") for name in names],
    )
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(handle, len(arguments), [a.encode() for a in arguments])
        log = _read(nvrtc, handle, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            own = {each: translate_option(each) for each in step.options if not each.startswith("--std=")}
            hint = ", ".join(f"write {o} for {each}" if o else f"remove {each}" for each, o in own.items() if o != each)
            hint = hint and f'in the options of family.toml, {hint}; or set toolchain = "nvcc"'
            raise make_source_error("NVRTC", log, hint)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            reason = f"{nvrtc.nvrtcGetErrorString(status)[1].decode()} (options: {' '.join(arguments)})"
            raise make_source_error("NVRTC", log or reason, find_hint(log))
        data = _read(nvrtc, handle, recipe.name.upper())
        ptx = _read(nvrtc, handle, "PTX").rstrip(b"\0") if step.kind is ImageKind.SASS else b""
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    if not data:
        raise CompileError(f"NVRTC returned no {recipe.name}", code="compile-empty-output", log=log)
    return Output(log, data.rstrip(b"\0") if step.kind is ImageKind.PTX else data, ptx)


def _read(nvrtc: Any, program: object, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(nvrtc, status)
    if size <= 1:
        return b""  # only the terminator; the interpreter shares one-byte objects, so they must not be filled
    buffer: bytes = b" " * size
    _check(nvrtc, *getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer


def _check(nvrtc: Any, status: object) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolchainError(f"NVRTC failed: {status}", code="toolchain-failed", hint=toolkit.install_hint())
