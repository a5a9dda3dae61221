"""Compiling CUDA C++ with NVRTC, from contents to contents: no include path, no file, no driver.

On the ground floor because both wings compile: the build side fragments, the run side a user's own device function.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitlto import toolkit
from jitlto.errors import CompileError, ToolchainError
from jitlto.headers import HeaderSearch, Source
from jitlto.mangling import demangle
from jitlto.ptx import Module, parse
from jitlto.versions import Architecture, Version

# Inlined helpers leave no trace in optimised PTX, yet stand in the LTO-IR, where the linker keeps one of each name.
# Compiled for debugging, with forced inlining off, every one of them shows.
_PROBE_PRELUDE = b"#undef __forceinline__\n#define __forceinline__ __inline__\n#line 1\n"
_MISSING = re.compile(r'(?:cannot|could not) open source file "([^"]+)"')
_PROGRAM_NAME = re.compile(r"\b[0-9a-f]{64}\.cu\b")
_CONTEXT_LINES = 3
_HOST_HEADERS = frozenset(
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


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one source became.

    Parameters
    ----------
    ltoir : dict of Architecture to bytes
        Bare LTO-IR, not in a fatbin.
    ptx : str
        Relocatable PTX for the lowest architecture.
    module : jitlto.ptx.Module
        The same, parsed.
    weak : tuple of (str, str)
        See :class:`~jitlto.fragment.Fragment`.
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


def compile_source(source: Source, architectures: Sequence[Architecture], options: Sequence[str]) -> Compiled:
    """Compile one source to LTO-IR for each architecture and to PTX for the lowest.

    Parameters
    ----------
    source : Source
        With all its headers.
    architectures : sequence of Architecture
        At least one.
    options : sequence of str
        Further compiler options, e.g. ``--std=c++17``.

    Raises
    ------
    CompileError
        If NVRTC refuses the source; ``log`` names the source ``<sha256>.cu``.
    ToolchainError
        If NVRTC cannot be loaded.
    """
    for name, content in ((f"{source.sha256}.cu", source.text), *source.headers.items()):
        if b"\0" in content:
            line = content[: content.index(b"\0")].count(b"\n") + 1
            raise CompileError("a source is cut at a NUL byte", log=f"{name}({line}): error: a NUL byte")
    version = toolkit.nvrtc_version()
    base = min(architectures)
    common = [*options, "--relocatable-device-code=true"]
    ordered = sorted(architectures)
    compiled = [_run(source, source.text, a, common) for a in ordered]
    log, text = compiled[0]
    ltoir = {a: _run(source, source.text, a, [*common, "-dlto"])[1] for a in ordered}
    try:
        probes = [_run(source, _PROBE_PRELUDE + source.text, a, [*common, "--device-debug"])[1] for a in ordered]
    except CompileError as error:
        error.hint = (
            "the source compiles, but not for debugging (--device-debug), which jitlto needs to see inline functions"
        )
        raise
    module = _one_for_all(ordered, [parse(other.decode()) for _, other in compiled])
    weak = [
        (name if a == base else f"{name} {a}", body)
        for a, probe in zip(ordered, probes, strict=True)
        for name, body in parse(probe.decode()).weak
    ]
    made_from = [source.sha256, str(version), *map(str, architectures), *options]
    identity = hashlib.sha256("\0".join(made_from).encode()).hexdigest()
    return Compiled(ltoir, text.decode(), module, tuple(sorted(weak)), version, log, identity)


def _one_for_all(architectures: Sequence[Architecture], modules: Sequence[Module]) -> Module:
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
    """The name under which NVRTC sees a source: its content, for names of internal symbols are made from it."""
    return f"{source.sha256}.cu"


def compile_closure(
    search: HeaderSearch, text: bytes, architectures: Sequence[Architecture], options: Sequence[str]
) -> Compiled:
    """Compile a source whose headers are looked up in ``search``, includes through macros among them."""
    extra: list[str] = []
    while True:
        try:
            return compile_source(search.closure(text, extra), architectures, options)
        except CompileError as error:
            name = missing_header(error.log)
            if name is None or name in extra or search.find(name) is None:
                raise
            extra.append(name)


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
    if log.startswith("nvrtc: error"):
        return CompileError(
            f"NVRTC refuses its options: {log}",
            where=where,
            hint="look at std, archs and options in family.toml",
            log=log,
        )
    lines = text.splitlines()
    numbers = sorted({int(n) for n in re.findall(rf"^{re.escape(name)}\((\d+)\): [\w ]*error", log, re.M)})
    shown = numbers[:_CONTEXT_LINES] or [0]  # an error in a header: the source's first lines, none of them marked
    excerpts = "\n    ...\n".join(_excerpt(lines, number) for number in shown)
    indented = "\n".join(f"    {line}" for line in log.splitlines())
    return CompileError(f"does not compile\n{indented}\n  source:\n{excerpts}", where=where, hint=error.hint, log=log)


def _excerpt(lines: Sequence[str], number: int) -> str:
    first, last = max(1, number - _CONTEXT_LINES), min(len(lines), number + _CONTEXT_LINES)
    return "\n".join(f"  {'>' if n == number else ' '} {n:4} | {lines[n - 1]}" for n in range(first, last + 1))


def hint_for(log: str) -> str | None:
    """Advice on a compile error, where jitlto knows more than the compiler says."""
    name = missing_header(log)
    if name in _HOST_HEADERS:
        standard = f"c{name[:-2]}" if name.endswith(".h") else name
        return f"NVRTC has no host C++ library: include <cuda/std/{standard}> instead of <{name}>"
    if name:
        return (
            f"{name} is neither beside the including file, nor in the family's include directories, nor in the toolkit"
        )
    return None


def _run(source: Source, text: bytes, architecture: Architecture, options: Sequence[str]) -> tuple[str, bytes]:
    nvrtc = toolkit.bindings("nvrtc")
    names = sorted(source.headers)
    arguments = [
        *options,
        f"--gpu-architecture={architecture.compute}",
        f"--frandom-seed={source.sha256}",
        "--no-source-include",  # else headers that lie in the working directory are read
    ]
    status, program = nvrtc.nvrtcCreateProgram(
        text,
        program_name(source).encode(),
        len(names),
        [source.headers[name] for name in names],
        [name.encode("utf-8", "surrogateescape") for name in names],
    )
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [a.encode() for a in arguments])
        log = _read(nvrtc, program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            reason = log or f"{nvrtc.nvrtcGetErrorString(status)[1].decode()} (options: {' '.join(arguments)})"
            raise CompileError("NVRTC refuses the source", log=reason, hint=hint_for(log))
        kind = "LTOIR" if "-dlto" in arguments else "PTX"
        output = _read(nvrtc, program, kind)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if not output:
        raise CompileError(f"NVRTC returned no {kind}", log=log)
    return log, output.rstrip(b"\0") if kind == "PTX" else output


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
