"""The diagnosis that ``jitlto doctor`` prints: what is installed, what is missing, and how to get it."""

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jitlto.base import __version__, config
from jitlto.base.config import Config
from jitlto.base.errors import DatabaseError, JitltoError, ToolchainError
from jitlto.base.text import pluralize
from jitlto.base.user_caches import user_caches
from jitlto.check.links import require_readable
from jitlto.compile import nvcc
from jitlto.cuda import device, driver, libraries, nvdisasm, nvjitlink, toolkit
from jitlto.cuda.compatibility import linkable_architectures, ltoir_links, newest_ptx_isa
from jitlto.database import FragmentDatabase
from jitlto.families.pyproject import find_sources
from jitlto.launch.core import extension
from jitlto.runtime.discovery import entry_points
from jitlto.runtime.discovery.entry_points import InstalledFamily
from jitlto.runtime.discovery.registry import DatabaseFile, Registry
from jitlto.stores.address import parse_store
from jitlto.stores.upkeep import examine


@dataclass(frozen=True)
class Component:
    """One component or setting: its state, and the remedy if it is not ok."""

    name: str
    value: str
    ok: bool = True
    remedy: str | None = None
    needed_for: str = ""  # linking, building, or use if it is a database or store; empty for what is optional


def diagnose() -> list[Component]:
    """Examine the toolchain, the driver, devices, caches, shared stores, databases and installed families.

    Raises:
        JitltoError: If a setting of this process is invalid.
    """
    settings = config.current()
    found = [*_toolchain(), *_fitting(), *_devices(), _core(), _cache_directory(settings)]
    return [*found, *_stores(settings), *_databases(settings), *installed_families()]


def _toolchain() -> Iterator[Component]:
    yield Component("jitlto", f"{__version__}, Python {platform.python_version()}")
    for name in ("cuda-core", "cuda-bindings"):
        yield _probe(name, partial(version, name), "linking")
    yield _probe(
        "nvJitLink (linker)", lambda: f"{nvjitlink.version()} at {toolkit.find_library('nvJitLink')}", "linking"
    )
    compiler = _probe("NVRTC (compiler)", lambda: f"{toolkit.nvrtc_version()} at {toolkit.find_library('nvrtc')}")
    yield compiler
    yield _probe("nvFatbin", lambda: f"{toolkit.nvfatbin_version()} at {toolkit.find_library('nvfatbin')}")
    if compiler.ok:
        yield _probe("CUDA headers", lambda: _header("cuda_fp16.h"))
        yield _probe("CCCL headers", lambda: _header("cuda/std/cstdint"))
    yield _probe("nvdisasm", nvdisasm.find_program, "")
    yield _probe("nvcc", _nvcc, "")


def _header(header: str) -> str:
    found = next((str(root) for root in toolkit.header_roots() if (root / header).is_file()), None)
    if found is None:
        raise ToolchainError("not found", hint=toolkit.install_hint())
    return found


def _nvcc() -> str:
    found = nvcc.Compiler()
    return f"{found.version} at {found.path}, host compiler {found.host_version} at {found.host_path}"


def _probe(name: str, find: Callable[[], str], needed_for: str = "building") -> Component:
    """Return what is found, or why it is not."""
    try:
        return Component(name, find(), needed_for=needed_for)
    except PackageNotFoundError:
        return Component(name, "missing", False, toolkit.install_hint(), needed_for)
    except ToolchainError as error:
        what = f"{error.what} ({error.where})" if error.where else error.what
        return Component(name, f"missing: {what}", False, error.hint, needed_for)


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
            yield Component("NVRTC → nvJitLink", state, False, remedy, "linking")
    cuda = driver.cuda_version()
    if cuda is not None:
        refused = driver.find_incompatibility(cuda, linker)
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
        return Component("compiled launches", error.what, False, error.hint, "linking")
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
                yield Component("shared store", value, remedy is None, remedy, "use")
        except JitltoError as error:
            yield Component("shared store", f"{error.where}: {error.what}", False, error.hint, "use")


def _databases(settings: Config) -> Iterator[Component]:
    if not settings.database_path:
        yield Component("databases", "none on JITLTO_DATABASE_PATH")
    for path in Registry(settings.database_path).files():
        yield _examine("database", path, "")


def installed_families() -> Iterator[Component]:
    """Yield the families of installed packages; none is compiled."""
    families = sorted(entry_points.families(), key=lambda each: (each.family, each.distribution))
    if not families:
        yield Component("installed families", "none")
    for each in families:
        title = f"{each.family} of {each.title}: "
        try:
            if each.source is not None and (path := find_sources(each.source, each.family)):
                yield Component("installed family", f"{title}{path}: compiled when it is used")
            else:
                yield _examine("installed family", each.location, title, each)
        except (JitltoError, OSError) as error:
            what, remedy = getattr(error, "what", str(error)), getattr(error, "hint", each.remedy)
            yield Component("installed family", f"{title}{what}", False, remedy, "use")


def _examine(name: str, path: Path, title: str, package: InstalledFamily | None = None) -> Component:
    """Return what a database holds, or why its kernels do not link."""
    try:
        with FragmentDatabase(path) as database:
            families, fragments = list(database.families), database.fragments()
            for family in [package.family] if package else families:
                DatabaseFile.from_database(database).require(family)
            with suppress(ToolchainError):  # a finding of its own
                require_readable(fragments, str(path))
    except JitltoError as error:
        remedy = package.remedy if package and isinstance(error, DatabaseError) else error.hint
        return Component(name, f"{title}{path}: {error.what}", False, remedy, "use")
    return Component(name, f"{title}{path}: {', '.join(families)}; {pluralize(len(fragments), 'fragment')}")
