"""The interface of compilers: :class:`CompileJob`, :class:`CompileResult` and :class:`Toolchain`.

A job holds its source and headers, and a result its images, so that both can be sent between processes and machines.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture, Version
from jitlto.compile import ltoir_symbols
from jitlto.compile.signatures import Parameters, mangled_parameters
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.bodies import hash_weak
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import ImageForm, ImageKind, Symbol, SymbolKind
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
    images: tuple[ImageForm, ...]  # sorted
    sharers: int = 1  # jobs of this build with the same includes; decides whether to make a snapshot
    #: The lowest architecture and later ones; LTO-IR is added for those of them where the code differs.
    candidates: tuple[Architecture, ...] = ()
    cubin_options: tuple[str, ...] = ()  # of ptxas, for cubins alone


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
    #: Each in a fatbin of its own.
    images: tuple[tuple[ImageKind, Architecture, bytes], ...]
    reads: tuple[str, ...]  # names of the headers that the compiler read and found by itself, perhaps of others too
    log: str  # warnings
    #: The mangled name of each kernel, with the names and types of its parameters as far as they are known: it or its
    #: text may tell them.
    parameters: tuple[tuple[str, Parameters], ...] = ()
    #: Of what is weak in the PTX image: the name, and the hash of the definition.
    bodies: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A compiled source, with the time and place of its compile."""

    compiled: CompiledSource
    seconds: float  # of wall time
    worker: str  # host and process


class Made(NamedTuple):
    """What runs of a front end have made."""

    log: str
    #: Not in fatbins; PTX without a NUL. Also the PTX that each cubin was made of.
    images: Mapping[ImageForm, bytes]
    reads: tuple[str, ...] = ()  # as of a compiled source


class Toolchain(ABC):
    """An installed compiler. Created once per process; :meth:`compile` runs in worker processes, in directory ``/``."""

    name: str  # nvrtc or nvcc
    version: Version

    @property
    @abstractmethod
    def identity(self) -> str:
        """Everything that may change its output: version, build, and the host compiler if one is used. No paths."""

    @abstractmethod
    def header_roots(self) -> Sequence[Path]:
        """Return the directories that are searched after the family's own.

        NVRTC gets the headers in them with a job; nvcc has them, and names those that it read by
        :func:`~jitlto.compile.headers.name_of_toolkit`.
        """

    @abstractmethod
    def make(self, job: CompileJob, forms: Sequence[ImageForm]) -> Made:
        """Run the front end for images.

        Raises:
            CompileError: If the compiler rejects the source; ``log`` names the source by
                :func:`jitlto.compile.nvrtc_program.program_name`.
            ToolchainError: If the compiler cannot be run.
        """

    def reads_ltoir(self) -> bool:
        """Return whether nvJitLink, of the same release, tells the symbols of its LTO-IR with kernels."""
        try:
            return nvjitlink.version() == self.version
        except ToolchainError:
            return False

    def identify(self, images: Sequence[ImageForm]) -> str:
        """Return the identity for such images: without PTX, what symbols are read with belongs to it."""
        is_alone = ImageKind.PTX in dict(images) or not self.reads_ltoir()
        return self.identity if is_alone else f"{self.identity} with nvJitLink"

    def compile(self, job: CompileJob) -> CompiledSource:
        """Compile one job; errors as of :meth:`make`."""
        architectures = sorted(job.architectures)
        texts = [(ImageKind.PTX, each) for each in architectures]
        wants_ptx = texts[0] in job.images
        cubins = [each for kind, each in job.images if kind is ImageKind.SASS and each not in job.architectures]
        is_read = not (wants_ptx or cubins) and b"__global__" in job.source.text and self.reads_ltoir()
        made = self.make(job, job.images if is_read else [*dict.fromkeys((*job.images, *texts))])
        ltoir = {each: data for (kind, each), data in made.images.items() if kind is ImageKind.LTOIR}
        modules = ltoir_symbols.read_modules(ltoir) if is_read else None
        if modules is None:
            found = self.make(job, texts).images if is_read else made.images
            texts += [(ImageKind.PTX, each) for each in cubins]
            modules = [parse_ptx(found[text].decode()) for text in texts]
        images = [(kind, each, nvfatbin.wrap(kind, made.images[kind, each], each)) for kind, each in job.images]
        module = merge_modules([*architectures, *cubins], modules)
        names = (symbol.name for symbol in module.provides if symbol.kind == "kernel")
        kernels = [(name, module.declarations[name].parameters) for name in sorted(names)]
        return CompiledSource(
            self.name, self.version, module.target, module.isa, module.provides, module.requires,
            tuple(kernels), tuple(sorted(images)), made.reads, made.log,
            tuple((name, mangled_parameters(name, len(sizes))) for name, sizes in kernels),
            hash_weak(modules[0]) if wants_ptx else (),
        )  # fmt: skip


def merge_modules(architectures: Sequence[Architecture], modules: Sequence[Module]) -> Module:
    """Return the module of the first architecture, which must provide what the others do, with all they require.

    It is left without what is weak and not provided for all; who requires that finds none.

    Raises:
        CompileError: If code under ``__CUDA_ARCH__`` makes a function or its parameters differ between architectures.
    """
    first = modules[0]
    common = set.intersection(*({symbol.name for symbol in module.provides} for module in modules))

    def needed(module: Module) -> set[Symbol]:
        # The toolkit's headers have inline functions and constants for some architectures alone, or of other names.
        return {s for s in module.provides if s.name in common or not s.weak or s.kind is SymbolKind.KERNEL}

    for architecture, module in zip(architectures[1:], modules[1:], strict=True):
        differing = sorted({s.name for s in needed(first) ^ needed(module)})
        if differing:
            raise CompileError(
                f"{demangle(differing[0])} differs between {architectures[0].compute} and {architecture.compute}",
                code="compile-architectures",
                hint="define every function for all of archs and sass alike; only bodies may depend on __CUDA_ARCH__",
            )
    required = {d.name: d for module in modules for d in module.declarations.values() if not d.defined}
    alone = {symbol.name for symbol in first.provides} - common
    return replace(first, declarations=required | {n: d for n, d in first.declarations.items() if n not in alone})


def find_toolchain(name: str, shared_directory: Path | None = None) -> Toolchain:
    """Return the compiler called ``name``.

    Args:
        name: ``nvrtc`` or ``nvcc``.
        shared_directory: A private directory in which processes that compile together find each other's snapshots and
            their headers; by default no snapshots are made.

    Raises:
        ToolchainError: If it is not installed.
    """
    # Imported by name: the modules of the compilers import this one.
    toolchain: Toolchain = import_module(_MODULES[name]).Compiler(shared_directory=shared_directory)
    return toolchain
