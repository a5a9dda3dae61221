"""The compilers that fragments can be made with, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from jitlto.build.compilers.compiled_source import Job, Unit
from jitlto.model.versions import Version

#: Name in ``family.toml`` → the module that has a class ``Compiler`` for it.
_MODULES = {"nvrtc": "jitlto.build.compilers.nvrtc", "nvcc": "jitlto.build.compilers.nvcc"}


class Toolchain(Protocol):
    """A compiler at hand. Made once a process; :meth:`compile` runs in worker processes whose directory is ``/``."""

    #: ``nvrtc`` or ``nvcc``.
    name: str
    version: Version
    #: All that may change its output: version, build, and the host compiler where it has a part. No path.
    identity: str

    def header_roots(self) -> Sequence[Path]:
        """Where headers are looked up that travel with a job, beside the family's own include directories."""
        ...

    def compile(self, job: Job) -> Unit:
        """Compile one job.

        Raises
        ------
        CompileError
            If the compiler refuses the source; ``log`` names the source by
            :func:`jitlto.cuda.nvrtc.program_name`.
        ToolchainError
            If the compiler cannot be run.
        """
        ...

    def external(self, name: str) -> str | None:
        """SHA-256 of a header that the compiler finds by itself, as it is now; None if it is gone.

        Such headers stand in :attr:`Unit.reads` under names that begin with ``<``: ``<toolkit>/cuda_fp16.h``,
        ``<host>/usr/include/math.h``.
        """
        ...


def find(name: str) -> Toolchain:
    """The compiler called ``name``.

    Raises
    ------
    ToolchainError
        If it is not installed.
    """
    toolchain: Toolchain = import_module(_MODULES[name]).Compiler()
    return toolchain
