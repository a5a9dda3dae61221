"""Sources compiled by NVRTC, each once."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from jitlto.base.errors import ToolchainError
from jitlto.base.versions import Architecture
from jitlto.compile import nvcc
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.cuda import nvjitlink, toolkit
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import ImageForm, ImageKind
from jitlto.record.headers import Source

BASE = Architecture(75)


def forms(
    architectures: Sequence[Architecture], kinds: Iterable[ImageKind] = (ImageKind.LTOIR, ImageKind.PTX)
) -> tuple[ImageForm, ...]:
    """Return what a family has by default: LTO-IR for each architecture, PTX for the first."""
    return tuple((kind, each) for kind in kinds for each in architectures[: 1 if kind is ImageKind.PTX else None])


@dataclass(frozen=True)
class Compiled:
    """What NVRTC makes of one source: bare LTO-IR for each architecture, relocatable PTX for the lowest."""

    ltoir: dict[Architecture, bytes]
    ptx: str
    module: Module


def compile_source(source: Source, architectures: Sequence[Architecture], options: Sequence[str]) -> Compiled:
    """Compile one source, with all its headers."""
    nvrtc.check_no_nul(source)
    ltoir = {each: nvrtc.run_step(source, nvrtc.Step(ImageKind.LTOIR, each, options)).data for each in architectures}
    ptx = nvrtc.run_step(source, nvrtc.Step(ImageKind.PTX, min(architectures), options)).data.decode()
    return Compiled(ltoir, ptx, parse_ptx(ptx))


@cache
def compiled(text: str, arch: int = BASE.number) -> Compiled:
    """Return a source compiled for an architecture, without headers."""
    return compile_source(Source(text.encode(), {}), [Architecture(arch)], ["--std=c++17"])


@cache
def relocatable_cubin(text: str, arch: str = "sm_90") -> bytes:
    """Return a source compiled to machine code that can still be linked."""
    bindings = toolkit.bindings("nvrtc")
    _, program = bindings.nvrtcCreateProgram(text.encode(), b"user.cu", 0, [], [])
    try:
        options = [f"--gpu-architecture={arch}".encode(), b"--relocatable-device-code=true", b"--std=c++17"]
        (status,) = bindings.nvrtcCompileProgram(program, len(options), options)
        assert status == bindings.nvrtcResult.NVRTC_SUCCESS
        _, size = bindings.nvrtcGetCUBINSize(program)
        buffer = b" " * size
        bindings.nvrtcGetCUBIN(program, buffer)
    finally:
        bindings.nvrtcDestroyProgram(program)
    return buffer


def archive(directory: Path, text: str, code: str, *more: str) -> bytes:
    """Return a library of one object for each text, as nvcc makes it; skip the test where there is no such nvcc."""
    try:
        compiler = nvcc.Compiler()
    except ToolchainError as error:
        pytest.skip(error.what)
    if compiler.version > nvjitlink.version() or compiler.version.major != nvjitlink.version().major:
        pytest.skip("nvcc is of another release than nvJitLink")
    number, objects = code.rpartition("_")[2], [f"{n}.o" for n in range(1 + len(more))]
    for each, name in zip((text, *more), objects, strict=True):
        (directory / "mine.cu").write_text(each)
        options = "-dc", "-gencode", f"arch=compute_{number},code={code}", "mine.cu", "-o", name
        subprocess.run([compiler.path, *options], cwd=directory, check=True)
    subprocess.run([compiler.path, "-lib", *objects, "-o", "mine.a"], cwd=directory, check=True)
    return (directory / "mine.a").read_bytes()
