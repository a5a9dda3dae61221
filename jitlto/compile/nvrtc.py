"""The NVRTC toolchain: :mod:`jitlto.compile.nvrtc_program` with snapshots and a list of the headers read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jitlto.base.cached import cached_property
from jitlto.base.versions import Architecture
from jitlto.compile import ltoir_symbols
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.header_trace import TRACES_HEADERS, HeaderTraces
from jitlto.compile.nvrtc_program import Output, Step
from jitlto.compile.snapshot import Snapshots
from jitlto.cuda import nvfatbin, toolkit
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source, split_leading_includes

# Anything in a source that may include or look for a header, in any spelling of a directive.
_MAY_READ = re.compile(rb"include|import|embed|%:|\?\?=")
_LEAST_SHARERS = 6  # a trace costs as much as one compile of the shared includes


class Compiler:
    """NVRTC, as a :class:`~jitlto.compile.compiler.Toolchain`."""

    name = "nvrtc"

    def __init__(self, *, shared_directory: Path | None = None) -> None:
        self.version = toolkit.nvrtc_version()
        self._snapshots = Snapshots(shared_directory)
        self._traces = HeaderTraces(shared_directory)

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

    def external(self, name: str) -> str | None:  # noqa: ARG002 - NVRTC finds no header by itself
        """None, because every header is sent with the job."""
        return None

    def external_text(self, name: str) -> bytes | None:  # noqa: ARG002 - as external()
        """None, because every header is sent with the job."""
        return None

    def compile(self, job: CompileJob) -> CompiledSource:
        """Compile one job, see :func:`jitlto.compile.nvrtc_program.compile_source`."""
        steps: list[Step] = []
        ptx = ImageKind.PTX in job.images
        following = [Step.from_options("ptx", each, job.options) for each in job.architectures if ptx]

        def run(source: Source, step: Step) -> Output:
            steps.append(step)
            return self._snapshots.run(source, step, job.sharers, following)

        compiled = nvrtc.compile_source(job.source, job.architectures, job.options, ptx=ptx, run=run)
        images: list[tuple[ImageKind, Architecture, bytes]] = []
        if ImageKind.LTOIR in job.images:
            images += [(ImageKind.LTOIR, a, nvfatbin.wrap_ltoir(data, a)) for a, data in compiled.ltoir.items()]
        if ptx:
            target = compiled.module.target
            images.append((ImageKind.PTX, target, nvfatbin.wrap_ptx(compiled.ptx.encode(), target)))
        return CompiledSource.from_module(self, compiled.module, images, self._reads(job, steps), compiled.warnings)

    def compile_ltoir(self, job: CompileJob, architecture: Architecture) -> tuple[bytes, tuple[str, ...]]:
        """Compile one job to LTO-IR for another architecture."""
        step = Step.from_options("ltoir", architecture, job.options)
        output = self._snapshots.run(job.source, step, job.sharers)
        return output.data, tuple(sorted(job.source.headers))

    def _reads(self, job: CompileJob, steps: Sequence[Step]) -> tuple[str, ...]:
        """The headers that these steps read, or all of the job's if nobody asks or tracing would cost too much."""
        every = tuple(sorted(job.source.headers))
        head, rest = split_leading_includes(job.source.text)
        if not job.lists_reads or job.sharers < _LEAST_SHARERS or not head or self.version < TRACES_HEADERS:
            return every
        if _MAY_READ.search(rest):
            return every
        # Each step defines different macros, which may select headers.
        traced = self._traces.find(job, head, steps)
        return every if traced is None else tuple(sorted(traced))
