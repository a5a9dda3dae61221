"""The diagnosis that ``jitlto doctor`` prints: installed CUDA components, their compatibility, and what is missing."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from jitlto.base.config import Config
from jitlto.base.errors import DatabaseError, JitltoError, LinkError, ToolchainError
from jitlto.base.user_caches import user_caches
from jitlto.base.versions import Version
from jitlto.compile import nvcc
from jitlto.cuda import device, driver, libraries, nvjitlink, toolkit
from jitlto.cuda.compatibility import (
    check_target,
    choose_target,
    linkable_architectures,
    ltoir_links,
    newest_ptx_isa,
    select_images,
)
from jitlto.database import MERGE_HINT, FragmentDatabase
from jitlto.launch.core import extension
from jitlto.runtime import session
from jitlto.runtime.discovery import registry
from jitlto.runtime.discovery.entry_points import reinstall_command
from jitlto.runtime.discovery.installed import installed_families
from jitlto.stores.address import parse_store
from jitlto.stores.upkeep import examine

_DATABASE, _INSTALLED, _STORE = "database", "installed family", "shared store"


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
        wrong = {finding.name for finding in self.findings if not finding.ok}
        if not self.well:
            return "linking cannot work yet: see ✗ above"
        if not self.builds:
            return "linking works, building does not: see – above"
        if wrong & {_DATABASE, _INSTALLED}:
            return "building and linking work, but there are problems with databases: see – above"
        if _STORE in wrong:
            return "building and linking work, but not with all shared stores: see – above"
        return "building and linking work"


def diagnose() -> Diagnosis:
    """Examine the toolchain, the driver, devices, caches, shared stores, databases and installed families."""
    settings, wrong = _settings()
    findings = [*_packages(), *_toolchain(), *_driver(), *wrong, *_extension(settings), _cache_directory(settings)]
    findings += [*_stores(settings), *_databases(settings)]
    if wrong:
        findings.append(Component(_INSTALLED, "not examined until the settings above are corrected", False))
    else:
        findings += _installed()
    return Diagnosis(tuple(findings))


def _packages() -> Iterator[Component]:
    own = _package("jitlto") or "not installed, run from a checkout"
    yield Component("jitlto", f"{own}, Python {platform.python_version()}", required=True)
    for name in ("cuda-core", "cuda-bindings"):
        found = _package(name)
        yield Component(name, found or "missing", found is not None, toolkit.install_hint(), required=True)
    arrays = [name for name in ("cupy-cuda12x", "cupy-cuda13x") if _package(name)]
    if len(arrays) > 1:
        what = f"{' and '.join(arrays)} are both installed and provide the same module"
        remedy = "pip uninstall one of them, and use a separate environment for each CUDA major version"
        yield Component("CuPy", what, False, remedy)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extension(settings: Config) -> Iterator[Component]:
    """Tell whether launches use the compiled core; without it they work too, and take longer."""
    name, remedy = "compiled launches", "install jitlto from a wheel for this platform, or where there is a C compiler"
    try:
        core = extension()
    except JitltoError as error:
        if error.code == "jitlto-extension-missing":
            yield Component(name, error.what, False, error.hint, required=True)
        return  # others are settings, which are findings of their own
    if core is not None:
        yield Component(name, f"in use: {core.__file__}")
    elif settings.extension == "off":
        yield Component(name, "turned off by JITLTO_EXTENSION")
    else:
        yield Component(name, "not built: launches go the Python way, and take longer", True, remedy)


def _toolchain() -> Iterator[Component]:
    yield _library("NVRTC (compiler)", "nvrtc", toolkit.nvrtc_version, links=False)
    yield _library("nvJitLink (linker)", "nvJitLink", nvjitlink.version)
    yield _library("nvFatbin", "nvfatbin", toolkit.nvfatbin_version, links=False)
    nvrtc, linker = (_version(query) for query in (toolkit.nvrtc_version, nvjitlink.version))
    try:
        roots = toolkit.header_roots() if nvrtc else ()
    except ToolchainError as error:
        yield Component("headers", error.what, False, error.hint, required=True)
    else:
        for name, header in (("CUDA headers", "cuda_fp16.h"), ("CCCL headers", "cuda/std/cstdint")):
            found = next((str(root) for root in roots if (root / header).is_file()), None)
            yield Component(name, found or "missing", found is not None, toolkit.install_hint(), builds=True)
    nvdisasm = toolkit.find_binary("nvdisasm")
    remedy = "pip install nvidia-cuda-nvdisasm (works with CUDA 12 too), or install a CUDA toolkit"
    yield Component("nvdisasm", nvdisasm or "not found (only `--dump sass` needs it)", nvdisasm is not None, remedy)
    try:
        compiler = nvcc.Compiler()
    except ToolchainError as error:
        yield Component("nvcc", f'{error.what} (only toolchain = "nvcc" needs it)', False, error.hint)
    else:
        yield Component("nvcc", f"{compiler.version} at {compiler.path}")
        yield Component("host compiler", f"{compiler.host_version} at {compiler.host_path}")
        yield Component("nvcc's headers", ", ".join(map(str, compiler.toolkit_headers)))
    if linker is None:
        return
    architectures = ", ".join(f"sm_{number}" for number in linkable_architectures(linker))
    yield Component("links LTO-IR of", f"CUDA {linker.major}.0 to {linker}, for {architectures}")
    yield Component("links PTX up to", f"ISA {newest_ptx_isa(linker)}, across CUDA majors too, without LTO")
    if nvrtc is not None:
        fits = ltoir_links(nvrtc, linker)
        state = f"NVRTC {nvrtc} is newer than nvJitLink {linker}, or of a different CUDA major version"
        remedy = "install both from the same CUDA release"
        yield Component("NVRTC → nvJitLink", "compatible" if fits else state, fits, remedy, required=True)


def _library(title: str, library: str, query: Callable[[], Version], *, links: bool = True) -> Component:
    try:
        where = toolkit.find_library(library)
        return Component(title, f"{query()} at {where}", required=links, builds=not links)
    except ToolchainError as error:
        searched = f"; searched: {error.where}" if error.where else ""
        building = "" if links else "; only building, and compiling callers' sources, needs it"
        what = f"missing: {error.what}{searched}{building}"
        return Component(title, what, False, error.hint, required=links, builds=not links)


def _version(query: Callable[[], Version]) -> Version | None:
    try:
        return query()
    except ToolchainError:
        return None


def _driver() -> Iterator[Component]:
    cuda, linker = driver.cuda_version(), _version(nvjitlink.version)
    if cuda is not None:
        refused = driver.find_incompatibility(cuda, linker, None) if linker else None
        yield Component("driver", f"for CUDA {cuda}", refused is None, ": ".join(refused) if refused else None)
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


def _settings() -> tuple[Config, list[Component]]:
    """Return the settings of this process without the invalid ones, and these as findings."""
    environment, wrong = dict(os.environ), list[Component]()
    while True:
        try:
            return Config.read(environment), wrong
        except JitltoError as error:
            if environment.pop(str(error.where), None) is None:
                raise
            wrong.append(Component(str(error.where), error.what, False, error.hint, required=True))


def _cache_directory(settings: Config) -> Component:
    problems = [cache.problem() for cache in user_caches(settings) if cache.setting != "off"]
    problem = next(filter(None, problems), None)
    state = "exists" if os.path.lexists(settings.cache_dir) else "not created yet"
    value = f"{settings.cache_dir} ({state})" + (f": {problem}" if problem else "")
    remedy = "set JITLTO_CACHE_DIR to a directory that only you can write to"
    return Component("cache directory", value, problem is None, remedy)


def _stores(settings: Config) -> Iterator[Component]:
    """Yield what can be said of each shared store and of the keys: nothing that a process would fail without."""
    if not settings.store:
        return
    try:
        address = parse_store(settings.store, "JITLTO_STORE")
    except JitltoError as error:
        yield Component(_STORE, f"{error.where}: {error.what}", False, error.hint)
        return
    for value, remedy in examine(address, settings):
        yield Component(_STORE, value, remedy is None, remedy)


def _databases(settings: Config) -> Iterator[Component]:
    if not settings.database_path:
        yield Component("databases", "none on JITLTO_DATABASE_PATH")
    for path in settings.database_path:
        try:
            found = registry.Registry((path,))
            databases = [found.open(each) for each in found.files()]
        except JitltoError as error:
            remedy = ": ".join(filter(None, ("it is on JITLTO_DATABASE_PATH", error.hint)))
            yield Component(_DATABASE, f"{error.where}: {error.what}", False, remedy)
            continue
        except OSError as error:
            yield Component(_DATABASE, f"{path}: {error.strerror}", False, "it is on JITLTO_DATABASE_PATH")
            continue
        for database in databases:
            made = sorted({image.version for fragment in database.fragments() for image in fragment.images})
            held = f"{len(database.fragments())} fragments, compiled by {', '.join(map(str, made))}"
            trouble = _link_trouble(database)
            value = f"{database.path}: {', '.join(database.families)}; {held}"
            yield Component(_DATABASE, value, trouble is None, trouble)


def _installed() -> Iterator[Component]:
    """Yield the families of installed packages, and problems with their databases."""
    listed = installed_families(session.default.registry)
    if not listed:
        yield Component("installed families", "none")
    for each in listed:
        unbuilt = each.editable is not None and each.database is None  # its first use builds it
        trouble, remedy = each.trouble, each.remedy or reinstall_command(each.distribution)
        if trouble is None and each.database is not None:
            try:
                with FragmentDatabase(each.database) as database:
                    trouble, remedy = _link_trouble(database), ""
            except DatabaseError as error:
                trouble = error.what
        place = each.database or f"editable, from {each.editable}"
        value = f"{each.family} of {each.distribution} {each.version}: {place}" + (f": {trouble}" if trouble else "")
        yield Component(_INSTALLED, value, trouble is None or unbuilt, None if each.editable else remedy or None)


def _link_trouble(database: FragmentDatabase) -> str | None:
    """Return why fragments do not link with link-time optimisation for the architectures that they were built for."""
    linker = _version(nvjitlink.version)
    if database.part is not None:
        return f"{database.part} of a build: {MERGE_HINT}"
    trouble = None
    for fragment in database.fragments():
        if linker is None or not fragment.images:
            continue
        target = choose_target([fragment], "lto", max(i.architecture for i in fragment.images), linker, requested=True)
        try:
            select_images([fragment], target)
            check_target(target.linked_for, linker)
        except LinkError as error:
            return f"{error.what.removeprefix(str(fragment.key)).strip()}: {error.hint}"
        if target.foreign:
            trouble = f"LTO-IR of CUDA {target.foreign} does not link with nvJitLink {linker}: PTX is linked instead"
        elif target.jit_base:
            trouble = f"nvJitLink {linker} does not link for {target.architecture.sm}: the driver compiles PTX instead"
    return trouble
