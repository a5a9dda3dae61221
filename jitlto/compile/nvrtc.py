"""The NVRTC toolchain: :mod:`jitlto.compile.nvrtc_program` with snapshots."""

from collections.abc import Sequence
from pathlib import Path

from jitlto.base.cached import cached_property
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompileJob, Made, Toolchain
from jitlto.compile.nvrtc_program import Step
from jitlto.compile.snapshot import Snapshots
from jitlto.cuda import toolkit
from jitlto.record.fragment import ImageForm, ImageKind


class Compiler(Toolchain):
    """NVRTC; see :class:`~jitlto.compile.compiler.Toolchain`."""

    name = "nvrtc"

    def __init__(self, *, shared_directory: Path | None = None) -> None:
        self.version = toolkit.nvrtc_version()
        self._snapshots = Snapshots(shared_directory)

    @cached_property
    def identity(self) -> str:
        """The release and the build id of the library, and the release of nvFatbin, which compresses images."""
        build = toolkit.build_id(toolkit.find_library("nvrtc"))
        return f"nvrtc {self.version} {build} nvfatbin {toolkit.nvfatbin_version()}"

    def header_roots(self) -> Sequence[Path]:
        """The directories of the toolkit's and CCCL's headers."""
        return toolkit.header_roots()

    def make(self, job: CompileJob, forms: Sequence[ImageForm]) -> Made:
        """Run NVRTC for each architecture and kind."""
        nvrtc.check_no_nul(job.source)
        of_cubins = (*job.options, *(f"--ptxas-options={each}" for each in job.cubin_options))
        steps = [Step(kind, each, of_cubins if kind is ImageKind.SASS else job.options) for kind, each in forms]
        outputs = {}
        for n, (form, step) in enumerate(zip(forms, steps, strict=True)):
            outputs[form] = self._snapshots.run(job.source, step, job.sharers, steps[n + 1 :])
        texts = {(ImageKind.PTX, each): out.ptx for (kind, each), out in outputs.items() if kind is ImageKind.SASS}
        return Made(outputs[forms[0]].log, texts | {form: output.data for form, output in outputs.items()})
