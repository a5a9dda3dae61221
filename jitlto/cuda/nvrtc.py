"""Compiling CUDA C++ with NVRTC, from contents to contents: no include path, no file, no driver.

On the ground floor because both wings compile: the build side fragments, the run side a user's own device function.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jitlto.cuda import toolkit
from jitlto.errors import CompileError, ToolchainError
from jitlto.model.headers import HeaderSearch, Source, split_leading_includes
from jitlto.model.mangling import demangle
from jitlto.model.ptx import Module, parse_ptx
from jitlto.model.versions import Architecture, Version

# Inlined helpers leave no trace in optimised PTX, yet stand in the LTO-IR, where the linker keeps one of each name.
# Compiled for debugging, with forced inlining off, every one of them shows.
PROBE_PRELUDE = b"#undef __forceinline__\n#define __forceinline__ __inline__\n"
#: What the log of a source says whose inline helpers could not be seen.
NOT_PROBED = "its inline helpers are not compared with those of others, for the compiler refuses it unoptimised"
#: The name by which a program includes what follows its head. Where no header of that name is given, NVRTC opens the
#: file, at that moment: see :mod:`jitlto.build.compilers.snapshot`.
REST = "/proc/self/fd/99"
_MISSING = re.compile(r'(?:cannot|could not) open source file "([^"]+)"')
_PROGRAM_NAME = re.compile(r"\b[0-9a-f]{64}\.cu\b")
_CONTEXT_LINES = 3
HOST_HEADERS = frozenset(
    [
        "algorithm",
        "array",
        "atomic",
        "cassert",
        "cfloat",
        "climits",
        "cmath",
        "concepts",
        "cstddef",
        "cstdint",
        "cstdlib",
        "cstring",
        "functional",
        "initializer_list",
        "iterator",
        "limits",
        "memory",
        "new",
        "numeric",
        "optional",
        "ratio",
        "span",
        "tuple",
        "type_traits",
        "utility",
        "variant",
        "stdint.h",
        "stddef.h",
    ]
)


#: The steps of a compile, and what each of them asks of NVRTC.
STEPS = {"ltoir": ("-dlto",), "ptx": (), "probe": ("--device-debug",)}


class Step(NamedTuple):
    """One run of the compiler: what it makes (``ltoir``, ``ptx`` or ``probe``), for what, with which options."""

    kind: str
    architecture: Architecture
    options: tuple[str, ...]

    @classmethod
    def of(cls, kind: str, architecture: Architecture, options: Sequence[str]) -> Step:
        """The step that makes ``kind`` with an author's options."""
        return cls(kind, architecture, (*options, "--relocatable-device-code=true", *STEPS[kind]))


class Output(NamedTuple):
    """What one run of the compiler gave: its log, and LTO-IR or PTX text."""

    log: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one source became.

    Parameters
    ----------
    ltoir : dict of Architecture to bytes
        Bare LTO-IR, not in a fatbin.
    ptx : str
        Relocatable PTX for the lowest architecture; empty if it was not wanted.
    module : jitlto.model.ptx.Module
        The same, or else unoptimised code, parsed.
    weak : tuple of (str, str)
        See :class:`~jitlto.model.fragment.Fragment`.
    version : Version
        NVRTC's.
    warnings : str
        The compiler's log.
    identity : str
        SHA-256 of all that it was made from. NVRTC writes the working directory into LTO-IR, so that equal sources do
        not give equal bytes in every process; this they have in common.
    """

    ltoir: dict[Architecture, bytes]
    ptx: str
    module: Module
    weak: tuple[tuple[str, str], ...]
    version: Version
    warnings: str
    identity: str


def compile_source(
    source: Source,
    architectures: Sequence[Architecture],
    options: Sequence[str],
    *,
    ptx: bool = True,
    run: Callable[[Source, Step], Output] | None = None,
) -> Compiled:
    """Compile one source to LTO-IR for each architecture and to PTX for the lowest.

    Parameters
    ----------
    source : Source
        With all its headers.
    architectures : sequence of Architecture
        At least one.
    options : sequence of str
        Further compiler options, e.g. ``--std=c++17``.
    ptx : bool
        Whether optimised PTX is wanted. Without it symbols are read from unoptimised code, which may call what the
        optimiser would remove.
    run : callable, optional
        Takes the place of :func:`run_step`.

    Raises
    ------
    CompileError
        If NVRTC refuses the source; ``log`` names the source ``<sha256>.cu``.
    ToolchainError
        If NVRTC cannot be loaded.
    """
    for name, content in ((program_name(source), source.text), *source.headers.items()):
        if b"\0" in content:
            line = content[: content.index(b"\0")].count(b"\n") + 1
            raise CompileError("a source is cut at a NUL byte", log=f"{name}({line}): error: a NUL byte")
    version = toolkit.nvrtc_version()
    run = run or run_step
    ordered = sorted(architectures)
    outputs = [run(source, Step.of("ltoir", a, options)) for a in ordered]
    ltoir = {a: output.data for a, output in zip(ordered, outputs, strict=True)}
    texts = [run(source, Step.of("ptx", a, options)).data.decode() for a in ordered] if ptx else []
    warnings = outputs[0].log
    try:
        probes = [run(source, Step.of("probe", a, options)).data.decode() for a in ordered]
    except CompileError as error:
        # NVRTC 13.5 refuses intrinsics such as __dp4a where it does not optimise.
        probes, warnings = [], not_probed(warnings, error)
        texts = texts or [run(source, Step.of("ptx", a, options)).data.decode() for a in ordered]
    probed = [parse_ptx(text) for text in probes]
    module = one_for_all(ordered, [parse_ptx(text) for text in texts] or probed)
    weak = [
        (name if a == ordered[0] else f"{name} {a}", body)
        for a, probe in zip(ordered, probed, strict=False)
        for name, body in probe.weak
    ]
    made_from = [source.sha256, str(version), *map(str, architectures), *options]
    identity = hashlib.sha256("\0".join(made_from).encode()).hexdigest()
    text = texts[0] if ptx else ""
    return Compiled(ltoir, text, module, tuple(sorted(weak)), version, warnings, identity)


def not_probed(log: str, error: CompileError) -> str:
    """The log of a source, with what is to be said of it if the probe fails."""
    return f"{log}\n{NOT_PROBED}: {error.log}".lstrip()


def one_for_all(architectures: Sequence[Architecture], modules: Sequence[Module]) -> Module:
    """The module of the lowest architecture, required to provide what the others do, with all that they require.

    Raises
    ------
    CompileError
        If code under ``__CUDA_ARCH__`` makes a function or its parameters differ between architectures.
    """
    first = modules[0]
    for architecture, module in zip(architectures[1:], modules[1:], strict=True):
        differing = sorted({s.name for s in set(first.provides) ^ set(module.provides)})
        if differing:
            raise CompileError(
                f"{demangle(differing[0])} is not the same for {architectures[0].compute} and {architecture.compute}",
                hint="define every function for all archs alike; only bodies may depend on __CUDA_ARCH__",
            )
    required = {d.name: d for module in modules for d in module.declarations.values() if not d.defined}
    return replace(first, declarations=required | first.declarations)


def program_name(source: Source) -> str:
    """The name under which NVRTC sees a source: from its text alone.

    Names of internal symbols are made from it, and a header that the compiler does not read must not change them.
    """
    return f"{hashlib.sha256(source.text).hexdigest()}.cu"


def compile_closure(
    search: HeaderSearch, text: bytes, architectures: Sequence[Architecture], options: Sequence[str]
) -> Compiled:
    """Compile a source whose headers are looked up in ``search``, includes through macros among them."""
    extra: list[str] = []
    while True:
        try:
            return compile_source(search.closure(text, extra), architectures, options)
        except CompileError as error:
            name = further_header(error, search, extra)
            if name is None:
                raise
            extra.append(name)


def further_header(error: CompileError, search: HeaderSearch, given: Sequence[str]) -> str | None:
    """The header for want of which a compile failed and that ``search`` has: one that is included through a macro.

    None if it failed of something else, or although the header was among those ``given``.
    """
    name = missing_header(error.log)
    return None if name is None or name in given or search.find(name) is None else name


def missing_header(log: str) -> str | None:
    """The header that a failed compile could not open, None if it failed of something else."""
    match = _MISSING.search(log)
    return match[1] if match else None


def annotate(error: CompileError, name: str, text: str, where: str) -> CompileError:
    """A compile error with the compiler's lines and the source's lines around the first few errors.

    Parameters
    ----------
    error : CompileError
        As raised by :func:`compile_source`.
    name : str
        What the log is to call the source.
    text : str
        The source.
    where : str
        What the message begins with.
    """
    log = _PROGRAM_NAME.sub(lambda _: name, error.log)
    if not log:  # our own refusal, not the compiler's
        return CompileError(error.what, where=where, hint=error.hint)
    if log.startswith(("nvrtc: error", "nvcc fatal")):
        return CompileError(
            f"the compiler refuses its options: {log}",
            where=where,
            hint="look at std, archs and options in family.toml, and in a package at those under [tool.jitlto]",
            log=log,
        )
    lines = text.splitlines()
    numbers = sorted({int(n) for n in re.findall(rf"^{re.escape(name)}\((\d+)\): [\w ]*error", log, re.M)})
    shown = numbers[:_CONTEXT_LINES]
    if not shown:  # an error in a header, whose lines the compiler shows
        indented = "\n".join(f"    {line}" for line in log.splitlines())
        return CompileError(f"does not compile\n{indented}", where=where, hint=error.hint, log=log)
    excerpts = "\n    ...\n".join(_excerpt(lines, number) for number in shown)
    indented = "\n".join(f"    {line}" for line in log.splitlines())
    return CompileError(f"does not compile\n{indented}\n  source:\n{excerpts}", where=where, hint=error.hint, log=log)


def _excerpt(lines: Sequence[str], number: int) -> str:
    first, last = max(1, number - _CONTEXT_LINES), min(len(lines), number + _CONTEXT_LINES)
    return "\n".join(f"  {'>' if n == number else ' '} {n:4} | {lines[n - 1]}" for n in range(first, last + 1))


def hint_for(log: str) -> str | None:
    """Advice on a compile error, where jitlto knows more than the compiler says."""
    name = missing_header(log)
    if name in HOST_HEADERS:
        standard = f"c{name[:-2]}" if name.endswith(".h") else name
        return (
            f"NVRTC has no host C++ library: include <cuda/std/{standard}> instead of <{name}>, or have nvcc compile "
            'the family: toolchain = "nvcc"'
        )
    if name and "@" in name:
        return f'{name} holds a placeholder of CMake: declare syntax = "cmake" for the group or the family'
    if name:
        return (
            f"{name} is neither beside the including file, nor in the family's include directories, nor in the toolkit"
        )
    return None


class Program(NamedTuple):
    """What NVRTC is given: the head of a source, which includes the rest by the name of :data:`REST`.

    Sources with one head make one program, and differ in that header alone. To the names of internal symbols NVRTC adds
    a hash of what a program defines, so that those of two sources differ although the program's name does not.
    """

    name: str
    text: bytes
    rest: bytes

    @classmethod
    def of(cls, source: Source, step: Step) -> Program:
        """The program of a source for a step; ``rest`` is empty for a source without includes at its head."""
        head, rest = split_leading_includes(source.text)
        if not head:
            return cls.whole(source, step)
        name = f"{hashlib.sha256(head).hexdigest()}.cu"
        text = _prelude(step) + head + b'#include "%s"\n' % REST.encode()
        return cls(name, text, b'#line 1 "%s"\n' % program_name(source).encode() + rest)

    @classmethod
    def whole(cls, source: Source, step: Step) -> Program:
        """The source as it is, as a program: its errors name lines of the head too."""
        reset = b"#line 1\n" if _prelude(step) else b""
        return cls(program_name(source), _prelude(step) + reset + source.text, b"")


def _prelude(step: Step) -> bytes:
    return PROBE_PRELUDE if step.kind == "probe" else b""


def run_step(source: Source, step: Step) -> Output:
    """Run NVRTC once.

    Raises
    ------
    CompileError
        If NVRTC refuses the source or an option.
    ToolchainError
        If NVRTC cannot be loaded.
    """
    program = Program.of(source, step)
    if program.rest:
        with contextlib.suppress(CompileError):
            return run(program, {**source.headers, REST: program.rest}, step)
    return run(Program.whole(source, step), source.headers, step)


def run(program: Program, headers: Mapping[str, bytes], step: Step, *more: str) -> Output:
    """Run NVRTC once on a program, with all its headers and ``more`` options; errors as :func:`run_step`."""
    nvrtc = toolkit.bindings("nvrtc")
    names = sorted(headers)
    arguments = [
        *step.options,
        f"--gpu-architecture={step.architecture.compute}",
        f"--frandom-seed={program.name.removesuffix('.cu')}",
        "--no-source-include",  # else headers that lie in the working directory are read
        *more,
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
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            reason = log or f"{nvrtc.nvrtcGetErrorString(status)[1].decode()} (options: {' '.join(arguments)})"
            raise CompileError("NVRTC refuses the source", log=reason, hint=hint_for(log))
        what = "LTOIR" if step.kind == "ltoir" else "PTX"
        data = _read(nvrtc, handle, what)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    if not data:
        raise CompileError(f"NVRTC returned no {what}", log=log)
    return Output(log, data if step.kind == "ltoir" else data.rstrip(b"\0"))


def _read(nvrtc: Any, program: object, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(nvrtc, status)
    if size <= 1:
        return b""  # nothing but the terminator; and a one-byte object is shared by the interpreter, not ours to fill
    buffer: bytes = b" " * size
    _check(nvrtc, *getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer


def _check(nvrtc: Any, status: object) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolchainError(f"NVRTC failed: {status}", hint=toolkit.INSTALL)
