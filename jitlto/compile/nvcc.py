"""Compiling with nvcc, with the same bytes in every directory and process and wherever nvcc is installed.

Three paths would get into nvcc's output, and each is replaced by a constant: the working directory (through ``PWD``),
the source's full path (from which names of internal symbols are made) and the toolkit's directory (through a link
beside the source).
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.files import temporary_directory
from jitlto.base.versions import Architecture, Version
from jitlto.compile import diagnostics, header_tree, ltoir_symbols
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.header_tree import SOURCE, TOOLKIT
from jitlto.compile.search_path import SearchPath, entered_files, host_directories
from jitlto.cuda import nvfatbin, toolkit
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

_INSTALL = "install a CUDA toolkit and set CUDA_HOME, or `pip install nvidia-cuda-nvcc nvidia-cuda-cccl` for CUDA 13"
_INSTALL_HOST = "install GCC's C++ compiler (g++), or set NVCC_CCBIN to a different host compiler"
_KEPT = "kept"  # intermediate files, in the private directory
_HERE = "/proc/self/cwd"
# For finding programs and libraries. Variables that change the result (CPATH, NVCC_APPEND_FLAGS) are left out.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
_OF_MACHINE = "a build must not depend on files of this machine"
_REFUSED = {
    **dict.fromkeys(("-ccbin", "--compiler-bindir"), "set the environment variable NVCC_CCBIN to the host compiler"),
    **dict.fromkeys(
        ("-I", "-isystem", "--system-include", "-o", "--output-file", "-odir", "--output-directory", "-optf",
         "--options-file", "-M", "-MM", "-MD", "-MMD", "-MF", "-keep", "--keep", "-save-temps", "--save-temps",
         "-keep-dir", "--keep-dir", "-dryrun", "--dryrun", "-E", "-c", "-dc", "-ptx", "-cubin", "-fatbin", "-ldir",
         "-idp", "-ddp", "-Xcicc", "-time", "--time"),
        _OF_MACHINE,
    ),
}  # fmt: skip
_EXTERNAL = ("<toolkit", "<host")
_GCC_MESSAGE = re.compile(r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (fatal error|error|warning|note): ", re.M)
_GCC_MISSING = re.compile(r"^(.*\(\d+\)): fatal error: (.+): No such file or directory$", re.M)


class Compiler:
    """The installed nvcc with its host compiler, a :class:`~jitlto.compile.compiler.Toolchain`.

    Args:
        environment: Has ``PATH``, ``LD_LIBRARY_PATH`` and ``NVCC_CCBIN``; by default the process's own.

    Attributes:
        path, host_path: Where nvcc and its host compiler are.
        host_version: What the host compiler says of itself.
        toolkit_headers: The toolkit's include directories.

    Raises:
        ToolchainError: If nvcc or a host compiler is missing or does not run.
    """

    name = "nvcc"

    def __init__(self, environment: Mapping[str, str] | None = None, *, shared_directory: Path | None = None) -> None:
        self._shared = shared_directory
        environment = os.environ if environment is None else environment
        self._environment = {name: environment[name] for name in _ENVIRONMENT if name in environment}
        self._environment |= {"PWD": _HERE, "LC_ALL": "C"}
        nvcc = toolkit.find_binary("nvcc")
        if nvcc is None:
            raise ToolchainError("nvcc is not installed", code="toolchain-missing", hint=_INSTALL)
        self._host = self.host_path = _find_host_compiler(environment)
        text = self._query([nvcc, "--version"], _INSTALL)
        release = re.search(r"release (\d+\.\d+)", text)
        if release is None:
            raise ToolchainError("nvcc prints no version", code="toolchain-failed", where=nvcc, hint=_INSTALL)
        self.version = Version.parse(release[1])
        self.host_version = host = self._query([self._host, "--version"], _INSTALL_HOST).partition("\n")[0]
        machine = self._query([self._host, "-dumpmachine"], _INSTALL_HOST).strip()
        front_end = self._query([self._host, "-print-prog-name=cc1plus"], _INSTALL_HOST).strip()
        builds = [toolkit.file_id(Path(program)) for program in (self._host, front_end) if Path(program).is_file()]
        self.identity = "\n".join([text.strip(), host, machine, *builds, f"nvfatbin {toolkit.nvfatbin_version()}"])
        # The file found may be a script or a link, so ask nvcc for its directory and include directories.
        settings = self._query([nvcc, "--dryrun", "-ccbin", self._host, "-E", "-x", "cu", os.devnull], _INSTALL_HOST)
        folder = re.search(r"^#\$ _HERE_=(.*\S)", settings, re.M)
        if folder is None:
            raise ToolchainError("nvcc prints no directory", code="toolchain-failed", where=nvcc, hint=_INSTALL)
        self._top, self._nvcc = Path(folder[1]).parent, f"{TOOLKIT}/{Path(folder[1]).name}/nvcc"
        self.path = Path(folder[1]) / "nvcc"
        self.toolkit_headers = self._roots = _include_roots(settings)
        verbose = self._query([self._host, "-E", "-v", "-x", "c++", os.devnull], _INSTALL_HOST)
        self._search = SearchPath([*self._roots, *host_directories(verbose)])
        self._hashes: dict[str, str | None] = {}
        self._named: dict[frozenset[str], tuple[str, ...]] = {}

    def identify(self, images: Sequence[ImageKind]) -> str:
        """The identity; without PTX nvJitLink reads the symbols if it can."""
        return f"{self.identity}\nwith nvJitLink" if self._reads_ltoir(images) else self.identity

    def _reads_ltoir(self, images: Sequence[ImageKind]) -> bool:
        return ImageKind.PTX not in images and ltoir_symbols.can_read_all(self.version)

    def header_roots(self) -> Sequence[Path]:
        """Empty, because nvcc finds the headers of the toolkit and the host itself."""
        return []

    def load(self) -> None:
        """Load nvFatbin and nvJitLink."""
        toolkit.bindings("nvfatbin")
        self.identify(())

    def compile(self, job: CompileJob) -> CompiledSource:
        """Compile one job.

        Raises:
            CompileError: If nvcc rejects the source or an option; ``log`` has NVRTC's format and name of the source.
            ToolchainError: If nvcc cannot be run, is killed or does not write all files.
        """
        for option in job.options:
            if reason := _REFUSED.get(re.split(r"[=\s]", option, maxsplit=1)[0]):
                raise CompileError(f"option {option!r} is not allowed: {reason}", code="compile-options")
        with temporary_directory("jitlto-nvcc-") as name:
            return self._compile(Path(name), job)

    def _compile(self, work: Path, job: CompileJob) -> CompiledSource:
        architectures = sorted(job.architectures)
        reads_ltoir, makes_ltoir = self._reads_ltoir(job.images), ImageKind.LTOIR in job.images
        codes = ("lto_",) * makes_ltoir + ("compute_",) * (not reads_ltoir)
        log, reads = self._run_nvcc(work, job, architectures, codes)
        kept = partial(_kept, work / _KEPT, job.source, architectures)
        ltoir = {a: kept(a, ".ltoir") for a in architectures} if makes_ltoir else {}
        modules = ltoir_symbols.read_modules(ltoir, self.version) if reads_ltoir else None
        texts = [] if modules else self._texts(work, job, architectures, is_made=not reads_ltoir)
        modules = modules or [parse_ptx(text.decode()) for text in texts]
        images = [(ImageKind.LTOIR, a, nvfatbin.wrap_ltoir(data, a)) for a, data in ltoir.items()]
        if ImageKind.PTX in job.images:
            images.append((ImageKind.PTX, architectures[0], nvfatbin.wrap_ptx(texts[0], architectures[0])))
        module = nvrtc.merge_modules(architectures, modules)
        return CompiledSource.from_module(self, module, images, reads, log)

    def _texts(
        self, work: Path, job: CompileJob, architectures: Sequence[Architecture], *, is_made: bool
    ) -> list[bytes]:
        """The PTX for each architecture; nvcc runs again where it was not to make it."""
        if is_made:
            return [_kept(work / _KEPT, job.source, architectures, a, ".ptx").rstrip(b"\0") for a in architectures]
        with temporary_directory("jitlto-nvcc-") as name:
            self._run_nvcc(Path(name), job, architectures, ("compute_",))
            return self._texts(Path(name), job, architectures, is_made=True)

    def compile_ltoir(self, job: CompileJob, architecture: Architecture) -> tuple[bytes, tuple[str, ...]]:
        """Compile one job to LTO-IR for another architecture."""
        with temporary_directory("jitlto-nvcc-") as name:
            work = Path(name)
            _, reads = self._run_nvcc(work, job, [architecture], ("lto_",))
            return _kept(work / _KEPT, job.source, [architecture], architecture, ".ltoir"), reads

    def external(self, name: str) -> str | None:
        """SHA-256 of a header of the toolkit or the host at the first call; None if it does not exist."""
        if name not in self._hashes:
            kind, _, rest = name.partition(">")
            candidates = [root / rest[1:] for root in self._roots] if kind == "<toolkit" else [Path(rest)]
            path = next((path for path in candidates if path.is_file()), None) if kind in _EXTERNAL else None
            state = self._search.state(name)
            self._hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path else state
        return self._hashes[name]

    def _run_nvcc(
        self, work: Path, job: CompileJob, architectures: Sequence[Architecture], codes: Sequence[str]
    ) -> tuple[str, tuple[str, ...]]:
        """Run nvcc once, with code of these kinds for each architecture; return its log and what it read."""
        names = header_tree.header_paths(job.source.headers)
        header_tree.lay_out(work, job.source, self._shared)
        (work / TOOLKIT).symlink_to(self._top, target_is_directory=True)
        (work / _KEPT).mkdir()
        source = nvrtc.program_name(job.source)
        command = [self._nvcc, *job.options, "-rdc=true", "-fatbin", "-x", "cu", f"{SOURCE}/{source}"]
        for root in header_tree.include_directories(job.source.headers):
            command += ["-I", root]
        command += ["-ccbin", self._host, "--keep", "--keep-dir", _KEPT, "-o", f"{_KEPT}/all.fatbin"]
        if (
            "clang" not in self.identity
        ):  # GCC replaces the toolkit's path by the one behind all links, if it is shorter
            command += ["-Xcompiler", "-fno-canonical-system-headers"]
        # The seed depends on the text alone, like the name: headers that are not read must not change the result.
        command += [f"--frandom-seed={source}", "-Xcicc", f"--orig_src_path_name,{_HERE}/{source}"]
        for a in architectures:
            command += ["-gencode", f"arch={a.compute},code=[{','.join(f'{kind}{a}' for kind in codes)}]"]
        result = self._run(command, work)
        log = _log(result.stderr + result.stdout, names)
        if result.returncode:
            raise diagnostics.make_source_error("nvcc", log, _hint(log))
        preprocessed = [path.read_bytes() for path in (work / _KEPT).glob("*.ii")]
        return log, self._reads(job, names, preprocessed)

    def _reads(self, job: CompileJob, names: Mapping[str, str], preprocessed: Iterable[bytes]) -> tuple[str, ...]:
        """The headers that were read, and the searches for them.

        Raises:
            CompileError: If one is in no directory that headers are searched in: its absolute path was included.
        """
        own: set[str] = set()
        found: set[str] = set()
        for spelled in {path for text in preprocessed for path in entered_files(text)}:
            path = os.path.normpath(spelled.removeprefix(f"{_HERE}/"))
            if path in names:
                own.add(names[path])
            elif path.startswith(f"{TOOLKIT}/"):
                found.add(f"{self._top}/{path.removeprefix(f'{TOOLKIT}/')}")
            else:
                found.add(path)
        external = frozenset(found)
        texts = [job.source.text, *(job.source.headers[name] for name in own)]
        return tuple(sorted([*own, *self._external_names(external), *self._search.records(external, texts)]))

    def _external_names(self, paths: frozenset[str]) -> tuple[str, ...]:
        """The names of headers of the toolkit and the host; hundreds, and the same for many sources."""
        if paths not in self._named:
            if foreign := sorted(path for path in paths if not self._search.covers(path)):
                raise CompileError(
                    f"{foreign[0]} is included by its absolute path", code="compile-absolute-include",
                    hint="give the header's directory under include, and its name relative to it",
                )  # fmt: skip
            self._named[paths] = tuple(map(self._external_name, paths))
        return self._named[paths]

    def _external_name(self, path: str) -> str:
        root = next((f"{root}/" for root in self._roots if path.startswith(f"{root}/")), None)
        return f"<toolkit>/{path.removeprefix(root)}" if root else f"<host>{path}"

    def _query(self, command: Sequence[str], hint: str) -> str:
        result = self._run(command, Path("/"))
        if result.returncode:
            reason = (result.stderr or result.stdout).strip().partition("\n")[0]
            raise ToolchainError(
                f"{Path(command[0]).name} failed: {reason}", code="toolchain-failed", where=command[0], hint=hint
            )
        return result.stdout + result.stderr

    def _run(self, command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
        environment = self._environment | ({} if directory == Path("/") else {"TMPDIR": str(directory)})
        try:
            result = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, stdin=subprocess.DEVNULL,
                check=False, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(
                f"cannot run {Path(command[0]).name}: {error}", code="toolchain-failed", hint=_INSTALL
            ) from error
        if result.returncode < 0:
            raise _killed(Path(command[0]).name, -result.returncode)
        if match := re.search(r"'(.+?)' died due to signal (\d+)", result.stderr):
            raise _killed(match[1], int(match[2]))
        return result


def _find_host_compiler(environment: Mapping[str, str]) -> str:
    wanted = environment.get("NVCC_CCBIN") or "gcc"
    if Path(wanted).is_dir():
        wanted = str(Path(wanted) / "gcc")
    found = shutil.which(wanted, path=environment.get("PATH", os.defpath))
    if found is None:
        raise ToolchainError(
            f"nvcc's host compiler {wanted!r} is not installed", code="toolchain-missing", hint=_INSTALL_HOST
        )
    return str(Path(found).absolute())


def _include_roots(settings: str) -> tuple[Path, ...]:
    """Return the include directories that nvcc prints, in order, without those inside a different one."""
    words = [w for line in re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", settings, re.M) for w in shlex.split(line)]
    roots = [Path(os.path.normpath(w.removeprefix("-I"))) for w in words if w not in ("-I", "-isystem")]
    return tuple(dict.fromkeys(r for r in roots if not any(r != other and r.is_relative_to(other) for other in roots)))


def _kept(
    folder: Path, source: Source, architectures: Sequence[Architecture], architecture: Architecture, suffix: str
) -> bytes:
    middle = f".{architecture.compute}" if len(architectures) > 1 else ""
    path = folder / f"{Path(nvrtc.program_name(source)).stem}{middle}{suffix}"
    if not path.is_file():
        raise ToolchainError(
            f"nvcc wrote no {suffix} for {architecture.compute}", code="toolchain-failed", hint=_INSTALL
        )
    return path.read_bytes()


def _log(text: str, names: Mapping[str, str]) -> str:
    """Convert a log to NVRTC's format: names of headers, and the preprocessor's messages like the front end's."""
    text = text.replace(f"{_HERE}/", "")
    text = re.sub(rf"\b{TOOLKIT}/\S*?include/", "<toolkit>/", text)
    text = text.replace(f"{SOURCE}/", "")
    text = re.sub(r"\binclude\d*/[^\s:(]+", lambda match: names.get(os.path.normpath(match[0]), match[0]), text)
    text = _GCC_MESSAGE.sub(r"\1(\2): \3: ", text)
    return _GCC_MISSING.sub(r'\1: catastrophic error: cannot open source file "\2"', text).strip()


def _hint(log: str) -> str | None:
    if "cc1plus" in log:
        return _INSTALL_HOST
    if diagnostics.is_host_header(log):
        return f"the host's C++ library is missing: {_INSTALL_HOST}"
    return diagnostics.find_hint(log)


def _killed(program: str, number: int) -> ToolchainError:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return ToolchainError(
        f"{program} was killed by {name}",
        code="toolchain-killed",
        hint="out of memory or a compiler bug: build with fewer jobs",
    )
