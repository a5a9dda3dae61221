"""The interface of compilers: :class:`CompileJob`, :class:`CompileResult` and :class:`Toolchain`.

A job holds its source and headers, and a result its images, so that both can be sent between processes and machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from jitlto.base.versions import Architecture, Version
from jitlto.compile.signatures import Parameters
from jitlto.cuda.bodies import hash_weak
from jitlto.cuda.ptx import Module
from jitlto.record.fragment import ImageKind, Symbol
from jitlto.record.headers import Source

#: Name in ``family.toml`` → the module that has a class ``Compiler`` for it.
_MODULES = {"nvrtc": "jitlto.compile.nvrtc", "nvcc": "jitlto.compile.nvcc"}


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One source to compile, and how."""

    toolchain: str  # nvrtc or nvcc
    identity: str  # of the client's compiler for these images; a worker with a different one rejects the job
    source: Source
    architectures: tuple[Architecture, ...]  # at least one, sorted
    options: tuple[str, ...]
    images: tuple[ImageKind, ...]  # LTO-IR, PTX for the lowest architecture, or both
    sharers: int = 1  # jobs of this build with the same includes; decides whether to make a snapshot
    #: The lowest architecture and later ones; LTO-IR is added for those of them where the code differs.
    candidates: tuple[Architecture, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """The compiled form of one source. All tuples are sorted."""

    toolchain: str  # nvrtc or nvcc
    version: Version  # of the toolchain
    target: Architecture  # the lowest architecture, from which the symbols are
    isa: Version  # of the compiler's PTX
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]
    #: The mangled name of each kernel, and the size and alignment of each of its parameters, in bytes.
    kernels: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    #: LTO-IR for each architecture and relocatable PTX for the lowest, each in a fatbin of its own.
    images: tuple[tuple[ImageKind, Architecture, bytes], ...]
    reads: tuple[str, ...]  # names of the headers that the compiler read and found by itself, perhaps of others too
    log: str  # warnings
    #: The mangled name of each kernel, with the names and types of its parameters as far as its text tells them.
    parameters: tuple[tuple[str, Parameters], ...] = ()
    #: Of what is weak in the PTX image: the name, and the hash of the definition.
    bodies: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_module(
        cls,
        toolchain: Toolchain,
        module: Module,
        images: Iterable[tuple[ImageKind, Architecture, bytes]],
        reads: tuple[str, ...],
        log: str,
    ) -> CompiledSource:
        """Create a compiled source with the symbols and kernels of its PTX."""
        kernels = ((s.name, module.declarations[s.name].parameters) for s in module.provides if s.kind == "kernel")
        images = tuple(sorted(images))
        has_ptx = any(kind is ImageKind.PTX for kind, _, _ in images)
        return cls(
            toolchain.name, toolchain.version, module.target, module.isa, module.provides, module.requires,
            tuple(sorted(kernels)), images, reads, log, bodies=hash_weak(module) if has_ptx else (),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A compiled source, with the time and place of its compile."""

    compiled: CompiledSource
    seconds: float  # of wall time
    worker: str  # host and process


class Toolchain(Protocol):
    """An installed compiler. Created once per process; :meth:`compile` runs in worker processes, in directory ``/``."""

    name: str  # nvrtc or nvcc
    version: Version

    @property
    def identity(self) -> str:
        """Everything that may change its output: version, build, and the host compiler if one is used. No paths."""
        ...

    def identify(self, images: Sequence[ImageKind]) -> str:
        """Return the identity, with that of any other library that these images need."""
        ...

    def header_roots(self) -> Sequence[Path]:
        """Return the directories that are searched after the family's own.

        NVRTC gets the headers in them with a job; nvcc has them, and names those that it read by
        :func:`~jitlto.compile.header_places.name_of_toolkit`.
        """
        ...

    def load(self) -> None:
        """Load the libraries that compiles need, so that forks of this process have them."""
        ...

    def compile(self, job: CompileJob) -> CompiledSource:
        """Compile one job.

        Raises:
            CompileError: If the compiler rejects the source; ``log`` names the source by
                :func:`jitlto.compile.nvrtc_program.program_name`.
            ToolchainError: If the compiler cannot be run.
        """
        ...

    def compile_ltoir(self, job: CompileJob, architecture: Architecture) -> tuple[bytes, tuple[str, ...]]:
        """Compile one job to LTO-IR for another architecture.

        Returns:
            The LTO-IR, not in a fatbin, and the headers as in :attr:`CompiledSource.reads`.

        Raises:
            CompileError, ToolchainError: As :meth:`compile`.
        """
        ...

    def compile_ptx(self, job: CompileJob, architecture: Architecture) -> Module:
        """Compile one job to PTX for an architecture.

        Raises:
            CompileError, ToolchainError: As :meth:`compile`.
        """
        ...


def find_toolchain(name: str, shared_directory: Path | None = None) -> Toolchain:
    """Return the compiler called ``name``.

    Args:
        name: ``nvrtc`` or ``nvcc``.
        shared_directory: A private directory in which processes that compile together find each other's snapshots; by
            default no snapshots are made.

    Raises:
        ToolchainError: If it is not installed.
    """
    # Imported by name: the modules of the compilers import this one.
    make = import_module(_MODULES[name]).Compiler
    toolchain: Toolchain = make(shared_directory=shared_directory) if name == "nvrtc" else make()
    return toolchain
