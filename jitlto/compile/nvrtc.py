"""The NVRTC toolchain: :mod:`jitlto.compile.nvrtc_program` with snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jitlto.base.cached import cached_property
from jitlto.base.versions import Architecture
from jitlto.compile import ltoir_symbols
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.nvrtc_program import Step
from jitlto.compile.snapshot import Snapshots
from jitlto.cuda import nvfatbin, toolkit
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import ImageKind


class Compiler:
    """NVRTC, as a :class:`~jitlto.compile.compiler.Toolchain`."""

    name = "nvrtc"

    def __init__(self, *, shared_directory: Path | None = None) -> None:
        self.version = toolkit.nvrtc_version()
        self._snapshots = Snapshots(shared_directory)

    @cached_property
    def identity(self) -> str:
        """The release and the build id of the library, and the release of nvFatbin, which compresses images."""
        return f"nvrtc {self.version} {toolkit.build_id('nvrtc')} nvfatbin {toolkit.nvfatbin_version()}"

    def identify(self, images: Sequence[ImageKind]) -> str:
        """The identity; without PTX nvJitLink reads the symbols if it can, and lists other helpers of kernels."""
        return f"{self.identity} with nvJitLink" if ImageKind.PTX not in images and self._has_linker else self.identity

    @cached_property
    def _has_linker(self) -> bool:
        return ltoir_symbols.can_read(self.version)

    def header_roots(self) -> Sequence[Path]:
        """The directories of the toolkit's and CCCL's headers."""
        return toolkit.header_roots()

    def load(self) -> None:
        """Load NVRTC, nvFatbin and nvJitLink."""
        for name in ("nvrtc", "nvfatbin"):
            toolkit.bindings(name)
        self.identify(())

    def compile(self, job: CompileJob) -> CompiledSource:
        """Compile one job, see :func:`jitlto.compile.nvrtc_program.compile_source`."""
        ptx = ImageKind.PTX in job.images
        following = [Step.from_options("ptx", each, job.options) for each in job.architectures if ptx]
        run = partial(self._snapshots.run, sharers=job.sharers, following=following)
        compiled = nvrtc.compile_source(job.source, job.architectures, job.options, ptx=ptx, run=run)
        images: list[tuple[ImageKind, Architecture, bytes]] = []
        if ImageKind.LTOIR in job.images:
            images += [(ImageKind.LTOIR, a, nvfatbin.wrap_ltoir(data, a)) for a, data in compiled.ltoir.items()]
        if ptx:
            target = compiled.module.target
            images.append((ImageKind.PTX, target, nvfatbin.wrap_ptx(compiled.ptx.encode(), target)))
        return CompiledSource.from_module(self, compiled.module, images, (), compiled.warnings)

    def compile_ltoir(self, job: CompileJob, architecture: Architecture) -> tuple[bytes, tuple[str, ...]]:
        """Compile one job to LTO-IR for another architecture."""
        step = Step.from_options("ltoir", architecture, job.options)
        output = self._snapshots.run(job.source, step, job.sharers)
        return output.data, ()

    def compile_ptx(self, job: CompileJob, architecture: Architecture) -> Module:
        """Compile one job to PTX for an architecture."""
        step = Step.from_options("ptx", architecture, job.options)
        return parse_ptx(self._snapshots.run(job.source, step, job.sharers).data.decode())
