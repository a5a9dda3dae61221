"""Compiling with nvcc, with the same bytes in every directory and process and wherever nvcc is installed.

Three paths would get into nvcc's output, and each is replaced by a constant: the working directory (through ``PWD``),
the source's full path (from which names of internal symbols are made) and the toolkit's directory (through a link
beside the source).
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from jitlto.base.cached import cached_property
from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.files import temporary_directory
from jitlto.base.versions import Version
from jitlto.compile import diagnostics, headers
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompileJob, Made, Toolchain
from jitlto.compile.includes import scan_quickly
from jitlto.cuda import toolkit
from jitlto.cuda.nvfatbin import RECIPES
from jitlto.record.fragment import ImageForm, ImageKind

_INSTALL = (
    "install a CUDA toolkit and set CUDA_HOME, or `pip install nvidia-cuda-nvcc nvidia-cuda-cccl` for CUDA 13; and "
    "GCC's C++ compiler (g++), or set NVCC_CCBIN to a different host compiler"
)
_KEPT = "kept"  # intermediate files, in the private directory
_HERE = "/proc/self/cwd"
_TOOLKIT = "toolkit"  # the link to it
#: The source is beside nothing, and too deep for ``../include/`` to be the family's headers.
SOURCE = "s/o/u/r/c/e"
# For finding programs and libraries. Variables that change the result (CPATH, NVCC_APPEND_FLAGS) are left out.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
# Flag 1: a file is entered. A #line directive leaves a marker without flags, so it can neither fake nor hide one.
_ENTERED = re.compile(rb'\n# \d+ "(.*)" 1(?: [234])*$', re.M)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_HOST_LIST = re.compile(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", re.M | re.S)
_GCC_MESSAGE = re.compile(r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (fatal error|error|warning|note): ", re.M)
_GCC_MISSING = re.compile(r"^(.*\(\d+\)): fatal error: (.+): No such file or directory$", re.M)


class Compiler(Toolchain):
    """The installed nvcc with its host compiler; see :class:`~jitlto.compile.compiler.Toolchain`.

    Args:
        shared_directory: Where headers of jobs lie, if anywhere; see :func:`~jitlto.compile.headers.lay_out`.

    Attributes:
        path, host_path: Where nvcc and its host compiler are.
        host_version: What the host compiler says of itself.

    Raises:
        ToolchainError: If nvcc or a host compiler is missing or does not run.
    """

    name = "nvcc"

    def __init__(self, *, shared_directory: Path | None = None) -> None:
        self._environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._environment |= {"PWD": _HERE, "LC_ALL": "C"}
        nvcc = toolkit.find_binary("nvcc")
        if nvcc is None:
            raise ToolchainError("nvcc is not installed", code="toolchain-missing", hint=_INSTALL)
        self.host_path = _find_host_compiler()
        text = self._query([nvcc, "--version"])
        self.host_version = host = self._query([self.host_path, "--version"]).partition("\n")[0]
        machine = self._query([self.host_path, "-dumpmachine"]).strip()
        front_end = self._query([self.host_path, "-print-prog-name=cc1plus"]).strip()
        builds = [toolkit.build_id(program) for program in (self.host_path, front_end) if Path(program).is_file()]
        self._own_identity = "\n".join([text.strip(), host, machine, *builds])
        # The file found may be a script or a link, so ask nvcc for its directory and include directories.
        settings = self._query([nvcc, "--dryrun", "-ccbin", self.host_path, "-E", "-x", "cu", os.devnull])
        folder = re.search(r"^#\$ _HERE_=(.*\S)", settings, re.M)
        release = re.search(r"release (\d+\.\d+)", text)
        if release is None or folder is None:
            what = "nvcc prints no version or directory"
            raise ToolchainError(what, code="toolchain-failed", where=nvcc, hint=_INSTALL)
        self.version = Version.parse(release[1])
        self._top, self._nvcc = Path(folder[1]).parent, f"{_TOOLKIT}/{Path(folder[1]).name}/nvcc"
        self.path = Path(folder[1]) / "nvcc"
        verbose = self._query([self.host_path, "-E", "-v", "-x", "c++", os.devnull])
        self._shared = shared_directory
        self._name, self._searched = cache(self._find_name), cache(self._find_searched)  # many sources read the same
        match = _HOST_LIST.search(verbose)
        host_directories = map(str.strip, match[1].splitlines() if match else ())
        self._directories = (*_include_roots(settings), *map(Path, map(os.path.normpath, host_directories)))

    @cached_property
    def identity(self) -> str:
        """What nvcc and the host compiler say of themselves, and the release of nvFatbin, which compresses images."""
        return f"{self._own_identity}\nnvfatbin {toolkit.nvfatbin_version()}"

    def header_roots(self) -> Sequence[Path]:
        """The directories of the toolkit's headers and the host's, which nvcc searches itself."""
        return self._directories

    def make(self, job: CompileJob, forms: Sequence[ImageForm]) -> Made:
        """Run nvcc once; ``log`` has NVRTC's format and name of the source."""
        source, names = nvrtc.program_name(job.source.text), headers.header_paths(job.source.headers)
        options = [*job.options, *(f"-Xptxas={each}" for each in job.cubin_options)]
        command = [self._nvcc, *options, "-rdc=true", "-fatbin", "-x", "cu", f"{SOURCE}/{source}"]
        for root in headers.include_directories(job.source.headers):
            command += ["-I", root]
        command += ["-ccbin", self.host_path, "--keep", "--keep-dir", _KEPT, "-o", f"{_KEPT}/all.fatbin"]
        if "clang" not in self._own_identity:  # GCC takes the path behind all links for the toolkit's, if it is shorter
            command += ["-Xcompiler", "-fno-canonical-system-headers"]
        # The seed depends on the text alone, like the name: headers that are not read must not change the result.
        command += [f"--frandom-seed={source}", "-Xcicc", f"--orig_src_path_name,{_HERE}/{source}"]
        architectures = dict.fromkeys(architecture for _, architecture in forms)
        for a in architectures:
            codes = [f"{RECIPES[kind].code}_{a}" for kind, each in forms if each == a]
            command += ["-gencode", f"arch={a.compute},code=[{','.join(codes)}]"]
        with temporary_directory("jitlto-nvcc-") as name:
            work, kept = Path(name), Path(name) / _KEPT
            headers.lay_out(work, job.source.headers, self._shared)
            (work / SOURCE).mkdir(parents=True)
            (work / SOURCE / source).write_bytes(job.source.text)
            (work / _TOOLKIT).symlink_to(self._top, target_is_directory=True)
            kept.mkdir()
            result = self._run(command, work)
            log = _log(result.stderr + result.stdout, names)
            if result.returncode:
                raise diagnostics.make_source_error("nvcc", log, _hint(log))
            reads = self._reads(job, names, [path.read_bytes() for path in kept.glob("*.ii")])
            stems = {a: f"{Path(source).stem}{f'.{a.compute}' * (len(architectures) > 1)}" for a in architectures}
            texts = [(ImageKind.PTX, a) for kind, a in forms if kind is ImageKind.SASS]
            files = {(kind, a): kept / f"{stems[a]}.{RECIPES[kind].name.lower()}" for kind, a in (*forms, *texts)}
            for (kind, a), file in files.items():  # a cubin beside other code for its architecture has a longer name
                longer = file.with_suffix(f".{RECIPES[kind].code}_{a}{file.suffix}")
                files[kind, a] = longer if longer.exists() else file
            return Made(log, {form: _read(file) for form, file in files.items()}, reads)

    def _reads(self, job: CompileJob, names: Mapping[str, str], preprocessed: Iterable[bytes]) -> tuple[str, ...]:
        """The headers that were read, and what they and the source search for.

        Raises:
            CompileError: If one is in no directory that headers are searched in: its absolute path was included.
        """
        paths = {os.path.normpath(path.removeprefix(f"{_HERE}/")) for text in preprocessed for path in _entered(text)}
        own = [names[path] for path in paths & names.keys()]
        external = {self._name(path) for path in paths - names.keys()}
        searched = {each for name in external for each in self._searched(name)}
        source = headers.name_searched({include.name for include in scan_quickly(job.source.text)})
        return tuple(sorted({*own, *external, headers.name_searched(searched), source}))

    def _find_name(self, path: str) -> str:
        path = re.sub(rf"^{_TOOLKIT}/", f"{self._top}/", path)
        above = [(len(str(each)), n) for n, each in enumerate(self._directories) if path.startswith(f"{each}/")]
        if not above:
            what, hint = f"{path} is included by its absolute path", "give the header's directory under include"
            hint += ", and its name relative to it"
            raise CompileError(what, code="compile-absolute-include", hint=hint)
        length, number = max(above)
        return headers.name_of_toolkit(number, path[length + 1 :])

    def _find_searched(self, name: str) -> set[str]:
        """Return the names that a header of the toolkit asks for, also beside itself, and its own (for macros)."""
        number, path = headers.split_name(name)
        try:
            includes = scan_quickly((self._directories[number] / path).read_bytes())
        except OSError:  # gone since it was read
            includes = []
        beside = (f"{os.path.dirname(path)}/{each.name}" for each in includes if each.quoted)  # noqa: PTH120
        return {path, *beside, *(each.name for each in includes)}

    def _query(self, command: Sequence[str]) -> str:
        result = self._run(command, Path("/"))
        if result.returncode:
            reason = (result.stderr or result.stdout).strip().partition("\n")[0]
            what = f"{Path(command[0]).name} failed: {reason}"
            raise ToolchainError(what, code="toolchain-failed", where=command[0], hint=_INSTALL)
        return result.stdout + result.stderr

    def _run(self, command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
        environment = self._environment | ({} if directory == Path("/") else {"TMPDIR": str(directory)})
        try:
            result = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, stdin=subprocess.DEVNULL,
                check=False, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except OSError as error:
            what = f"cannot run {Path(command[0]).name}: {error}"
            raise ToolchainError(what, code="toolchain-failed", hint=_INSTALL) from error
        if result.returncode < 0:
            raise _killed(Path(command[0]).name, -result.returncode)
        if match := re.search(r"'(.+?)' died due to signal (\d+)", result.stderr):
            raise _killed(match[1], int(match[2]))
        return result


def _find_host_compiler() -> str:
    wanted = os.environ.get("NVCC_CCBIN") or "gcc"
    if Path(wanted).is_dir():
        wanted = str(Path(wanted) / "gcc")
    found = shutil.which(wanted)
    if found is None:
        what = f"nvcc's host compiler {wanted!r} is not installed"
        raise ToolchainError(what, code="toolchain-missing", hint=_INSTALL)
    return str(Path(found).absolute())


def _include_roots(settings: str) -> tuple[Path, ...]:
    """Return the include directories that nvcc prints, in order, without those inside a different one."""
    words = [w for line in re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", settings, re.M) for w in shlex.split(line)]
    roots = [Path(os.path.normpath(w.removeprefix("-I"))) for w in words if w not in ("-I", "-isystem")]
    return tuple(dict.fromkeys(r for r in roots if not any(r != other and r.is_relative_to(other) for other in roots)))


def _entered(preprocessed: bytes) -> set[str]:
    """Return the files that a preprocessed text was made from, with the preprocessor's paths.

    Line markers are exact; a dependency file is not, because nvcc writes ``-MD`` from one of several runs of the
    preprocessor, and a header under ``#if __CUDA_ARCH__`` may be read in a different one.
    """

    def plain(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code

    found = set(_ENTERED.findall(preprocessed))
    return {_ESCAPE.sub(plain, path).decode("utf-8", "surrogateescape") for path in found}


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ToolchainError(f"nvcc wrote no {path.name}", code="toolchain-failed", hint=_INSTALL)
    return path.read_bytes().rstrip(b"\0") if path.suffix == ".ptx" else path.read_bytes()


def _log(text: str, names: Mapping[str, str]) -> str:
    """Convert a log to NVRTC's format: names of headers, and the preprocessor's messages like the front end's."""
    text = text.replace(f"{_HERE}/", "")
    text = re.sub(rf"\b{_TOOLKIT}/\S*?include/", "<toolkit>/", text)
    text = text.replace(f"{SOURCE}/", "")
    text = re.sub(r"\binclude\d*/[^\s:(]+", lambda match: names.get(os.path.normpath(match[0]), match[0]), text)
    text = _GCC_MESSAGE.sub(r"\1(\2): \3: ", text)
    return _GCC_MISSING.sub(r'\1: catastrophic error: cannot open source file "\2"', text).strip()


def _hint(log: str) -> str | None:
    if "cc1plus" in log:
        return _INSTALL
    if diagnostics.is_host_header(log):
        return f"the host's C++ library is missing: {_INSTALL}"
    return diagnostics.find_hint(log)


def _killed(program: str, number: int) -> ToolchainError:
    name = next((each.name for each in signal.Signals if each == number), f"signal {number}")
    hint = "out of memory or a compiler bug: build with fewer jobs"
    return ToolchainError(f"{program} was killed by {name}", code="toolchain-killed", hint=hint)
