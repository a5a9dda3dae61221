"""The diagnosis that ``jitlto doctor`` prints: what is installed, what is missing, and how to get it."""

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from jitlto.base import config
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError, ToolchainError
from jitlto.base.user_caches import user_caches
from jitlto.check.links import require_readable
from jitlto.compile import nvcc
from jitlto.cuda import device, driver, libraries, nvjitlink, toolkit
from jitlto.cuda.compatibility import linkable_architectures, ltoir_links, newest_ptx_isa
from jitlto.database import MERGE_HINT, FragmentDatabase
from jitlto.launch.core import extension
from jitlto.runtime.discovery import editable, entry_points
from jitlto.runtime.discovery.registry import Registry
from jitlto.stores.address import parse_store
from jitlto.stores.upkeep import examine


@dataclass(frozen=True)
class Component:
    """One component or setting: its state, the remedy if it is not ok, and whether linking or building needs it."""

    name: str
    value: str
    ok: bool = True
    remedy: str | None = None
    required: bool = False
    builds: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """All findings, in display order."""

    findings: tuple[Component, ...]

    @property
    def well(self) -> bool:
        """True if linking can work."""
        return all(finding.ok or not finding.required for finding in self.findings)

    @property
    def builds(self) -> bool:
        """True if what compiles is there; with the extras that end in ``-run`` it is not."""
        return all(finding.ok or not finding.builds for finding in self.findings)

    @property
    def summary(self) -> str:
        """What works, in a line."""
        if not self.well:
            return "linking cannot work yet: see ✗ above"
        if not self.builds:
            return "linking works, building does not: see – above"
        wrong = any(not f.ok and f.name in ("database", "installed family", "shared store") for f in self.findings)
        return "building and linking work" + (", but not with all databases and stores: see – above" if wrong else "")


def diagnose() -> Diagnosis:
    """Examine the toolchain, the driver, devices, caches, shared stores, databases and installed families.

    Raises:
        JitltoError: If a setting of this process is invalid.
    """
    settings = config.current()
    found = [*_toolchain(), *_fitting(), *_devices(), _core(), _cache_directory(settings)]
    return Diagnosis((*found, *_stores(settings), *_databases(settings), *_installed(settings)))


def _toolchain() -> Iterator[Component]:
    yield Component("jitlto", f"{_package('jitlto') or 'run from a checkout'}, Python {platform.python_version()}")
    for name in ("cuda-core", "cuda-bindings"):
        found = _package(name)
        yield Component(name, found or "missing", found is not None, toolkit.install_hint(), required=True)
    yield _probe("nvJitLink (linker)", lambda: f"{nvjitlink.version()} at {toolkit.find_library('nvJitLink')}", True)
    compiler = _probe("NVRTC (compiler)", lambda: f"{toolkit.nvrtc_version()} at {toolkit.find_library('nvrtc')}")
    yield compiler
    yield _probe("nvFatbin", lambda: f"{toolkit.nvfatbin_version()} at {toolkit.find_library('nvfatbin')}")
    if compiler.ok:
        yield _probe("CUDA headers", lambda: _header("cuda_fp16.h"))
        yield _probe("CCCL headers", lambda: _header("cuda/std/cstdint"))
    program = toolkit.find_binary("nvdisasm")
    remedy = "pip install nvidia-cuda-nvdisasm (works with CUDA 12 too), or install a CUDA toolkit"
    yield Component("nvdisasm", program or "not found (only `--dump sass` needs it)", program is not None, remedy)
    yield replace(_probe("nvcc", _nvcc), builds=False)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _header(header: str) -> str:
    found = next((str(root) for root in toolkit.header_roots() if (root / header).is_file()), None)
    if found is None:
        raise ToolchainError("missing", hint=toolkit.install_hint())
    return found


def _nvcc() -> str:
    found = nvcc.Compiler()
    return f"{found.version} at {found.path}, host compiler {found.host_version} at {found.host_path}"


def _probe(name: str, find: Callable[[], str], links: bool = False) -> Component:
    """Return what is found, or why it is not."""
    try:
        return Component(name, find(), required=links, builds=not links)
    except ToolchainError as error:
        what = f"{error.what} ({error.where})" if error.where else error.what
        return Component(name, f"missing: {what}", False, error.hint, links, not links)


def _fitting() -> Iterator[Component]:
    """Yield what nvJitLink links, and whether it fits the compiler and the driver."""
    try:
        linker = nvjitlink.version()
    except ToolchainError:
        return
    architectures = ", ".join(f"sm_{number}" for number in linkable_architectures(linker))
    yield Component("links LTO-IR of", f"CUDA {linker.major}.0 to {linker}, for {architectures}")
    yield Component("links PTX up to", f"ISA {newest_ptx_isa(linker)}, across CUDA majors too, without LTO")
    with suppress(ToolchainError):
        compiler = toolkit.nvrtc_version()
        if not ltoir_links(compiler, linker):
            state = f"NVRTC {compiler} is newer than nvJitLink {linker}, or of a different CUDA major version"
            remedy = "install both from the same CUDA release"
            yield Component("NVRTC → nvJitLink", state, False, remedy, required=True)
    cuda = driver.cuda_version()
    if cuda is not None:
        refused = driver.find_incompatibility(cuda, linker, None)
        yield Component("driver", f"for CUDA {cuda}", refused is None, ": ".join(refused) if refused else None)


def _devices() -> Iterator[Component]:
    try:
        current = device.current()
    except JitltoError as error:
        remedy = "needed only to launch kernels, not to build, plan or link"
        yield Component("driver and devices", error.what, False, remedy)
        return
    for each in libraries.Device.get_all_devices():
        major, minor = each.compute_capability
        mark = ", current" if each.device_id == current.device_id else ""
        yield Component(f"device {each.device_id}", f"{each.name}, sm_{major}{minor}{mark}")


def _core() -> Component:
    """Tell whether launches use the compiled core; without it they work too, and take longer."""
    try:
        core = extension()
    except JitltoError as error:
        return Component("compiled launches", error.what, False, error.hint, required=True)
    state = f"in use: {core.__file__}" if core is not None else "not in use: launches take longer"
    return Component("compiled launches", state)


def _cache_directory(settings: Config) -> Component:
    problems = [cache.problem() for cache in user_caches(settings) if cache.setting != "off"]
    problem = next(filter(None, problems), None)
    remedy = "set JITLTO_CACHE_DIR to a directory that only you can write to"
    return Component("cache directory", problem or str(settings.cache_dir), problem is None, remedy)


def _stores(settings: Config) -> Iterator[Component]:
    """Yield what can be said of the shared store and of the keys: nothing that a process would fail without."""
    if settings.store:
        try:
            for value, remedy in examine(parse_store(settings.store, "JITLTO_STORE"), settings):
                yield Component("shared store", value, remedy is None, remedy)
        except JitltoError as error:
            yield Component("shared store", f"{error.where}: {error.what}", False, error.hint)


def _databases(settings: Config) -> Iterator[Component]:
    if not settings.database_path:
        yield Component("databases", "none on JITLTO_DATABASE_PATH")
    for path in settings.database_path:
        try:
            for database in map(FragmentDatabase, Registry((path,)).files()):
                trouble = _link_trouble(database)
                value = f"{database.path}: {', '.join(database.families)}; {len(database.fragments())} fragments"
                yield Component("database", value, trouble is None, trouble)
        except (JitltoError, OSError) as error:
            remedy = "correct JITLTO_DATABASE_PATH, or build the database again"
            yield Component("database", f"{path}: {getattr(error, 'what', error)}", False, remedy)


def _installed(settings: Config) -> Iterator[Component]:
    """Yield the families of installed packages, without building any."""
    families = sorted(entry_points.families(), key=lambda each: (each.family, each.distribution))
    if not families:
        yield Component("installed families", "none")
    for each in families:
        place, trouble = f"{each.family} of {each.title}", None
        try:
            path = editable.locate_database(each, each.source, settings) if each.source else each.location
            place = f"{place}: {path}"
            if path.is_relative_to(settings.cache_dir) and not path.exists():
                yield Component("installed family", f"{place}: not built yet; first use builds it")
                continue
            with FragmentDatabase(path) as database:
                held = each.family in database.families
                trouble = _link_trouble(database) if held else "the database holds no such family"
        except (JitltoError, OSError) as error:
            trouble = getattr(error, "what", str(error))
        value = f"{place}: {trouble}" if trouble else place
        yield Component("installed family", value, trouble is None, each.remedy)


def _link_trouble(database: FragmentDatabase) -> str | None:
    """Return why a database does not link."""
    if database.part is not None:
        return f"{database.part} of a build: {MERGE_HINT}"
    try:
        require_readable(database.fragments(), str(database.path))
    except ToolchainError:
        return None  # a finding of its own
    except JitltoError as error:
        return f"{error.what}: {error.hint}"
    return None
