"""The diagnosis that ``jitlto doctor`` prints: installed CUDA components, their compatibility, and what is missing."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jitlto.base.config import Config
from jitlto.base.errors import DatabaseError, JitltoError, ToolchainError
from jitlto.base.user_caches import user_caches
from jitlto.base.versions import Version
from jitlto.compile import nvcc
from jitlto.cuda import device, driver, libraries, nvjitlink, toolkit
from jitlto.cuda.compatibility import linkable_architectures, ltoir_links, newest_ptx_isa
from jitlto.cuda.driver import Driver, Forward
from jitlto.cuda.prediction import LinkMethod, find_incompatibility, preview_link
from jitlto.database import MERGE_HINT, FragmentDatabase
from jitlto.launch.core import extension
from jitlto.packaging.pyproject import with_project_stores
from jitlto.runtime import session
from jitlto.runtime.discovery import registry
from jitlto.runtime.discovery.entry_points import reinstall_command
from jitlto.runtime.discovery.installed import installed_families
from jitlto.stores.address import parse_addresses
from jitlto.stores.examine import examine_stores

_DATABASE, _INSTALLED, _STORE = "database", "installed family", "shared store"
_BUILDING = "; only building, and compiling callers' sources, needs it"


@dataclass
class Component:
    """One component or setting: its state, and the remedy if it is not ok."""

    name: str
    value: str
    ok: bool
    required: bool
    remedy: str | None


@dataclass
class Diagnosis:
    """All findings, in display order."""

    findings: list[Component] = field(default_factory=list)
    builds: bool = True  # whether what compiles is there; with the extras that end in -run it is not
    searched: str | None = None  # where, if a library is missing

    def require(self, name: str, value: str, ok: bool = True, remedy: str | None = None) -> None:
        """Add a finding that linking depends on."""
        self.findings.append(Component(name, value, ok, True, remedy))

    def mention(self, name: str, value: str, ok: bool = True, remedy: str | None = None) -> None:
        """Add a finding that linking does not depend on."""
        self.findings.append(Component(name, value, ok, False, remedy))

    def require_to_build(self, name: str, missing: str, remedy: str | None) -> None:
        """Add what building lacks, and linking does not need."""
        self.builds = False
        self.mention(name, missing + _BUILDING, False, remedy)

    @property
    def well(self) -> bool:
        """True if linking can work."""
        return all(finding.ok or not finding.required for finding in self.findings)

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
    diagnosis = Diagnosis()
    _packages(diagnosis)
    nvrtc, linker = _find_toolchain_versions(diagnosis)
    _nvcc(diagnosis)
    _compatibility(diagnosis, nvrtc, linker)
    _driver(diagnosis, linker)
    settings = _settings(diagnosis)
    _extension(diagnosis, settings)
    _cache_directory(diagnosis, settings)
    _stores(diagnosis, settings)
    _databases(diagnosis, settings, linker)
    _installed(diagnosis, linker)
    return diagnosis


def _packages(diagnosis: Diagnosis) -> None:
    own = _package("jitlto") or "not installed, run from a checkout"
    diagnosis.require("jitlto", f"{own}, Python {platform.python_version()}")
    for name in ("cuda-core", "cuda-bindings"):
        found = _package(name)
        diagnosis.require(name, found or "missing", found is not None, toolkit.install_hint())
    arrays = [name for name in ("cupy-cuda12x", "cupy-cuda13x") if _package(name)]
    if len(arrays) > 1:
        remedy = "pip uninstall one of them, and use a separate environment for each CUDA major version"
        diagnosis.mention(
            "CuPy", f"{' and '.join(arrays)} are both installed and provide the same module", False, remedy
        )


def _extension(diagnosis: Diagnosis, settings: Config) -> None:
    """Add whether launches use the compiled core; without it they work too, and take longer."""
    name, remedy = "compiled launches", "install jitlto from a wheel for this platform, or where there is a C compiler"
    try:
        core = extension()
    except JitltoError as error:
        if error.code == "jitlto-extension-missing":
            diagnosis.require(name, error.what, False, error.hint)
        return  # others are settings, which are findings of their own
    if core is not None:
        diagnosis.mention(name, f"in use: {core.__file__}")
    elif settings.extension == "off":
        diagnosis.mention(name, "turned off by JITLTO_EXTENSION")
    else:
        diagnosis.mention(name, "not built: launches go the Python way, and take longer", True, remedy)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _find_toolchain_versions(diagnosis: Diagnosis) -> tuple[Version | None, Version | None]:
    nvrtc = _component(diagnosis, "NVRTC (compiler)", "nvrtc", toolkit.nvrtc_version, links=False)
    linker = _component(diagnosis, "nvJitLink (linker)", "nvJitLink", nvjitlink.version)
    _component(diagnosis, "nvFatbin", "nvfatbin", toolkit.nvfatbin_version, links=False)
    try:
        roots = toolkit.header_roots() if nvrtc is not None else ()
    except ToolchainError as error:
        diagnosis.require("headers", error.what, False, error.hint)
        return nvrtc, linker
    for name, header in (("CUDA headers", "cuda_fp16.h"), ("CCCL headers", "cuda/std/cstdint")):
        root = next((root for root in roots if (root / header).is_file()), None)
        if root is None:
            diagnosis.require_to_build(name, "missing", toolkit.install_hint())
        else:
            diagnosis.require(name, str(root))
    if diagnosis.searched:
        diagnosis.mention("searched", diagnosis.searched, False)
    nvdisasm = toolkit.find_binary("nvdisasm")
    remedy = "pip install nvidia-cuda-nvdisasm (works with CUDA 12 too), or install a CUDA toolkit"
    state = nvdisasm or "not found (only `--dump sass` needs it)"
    diagnosis.mention("nvdisasm", state, nvdisasm is not None, remedy)
    return nvrtc, linker


def _component(
    diagnosis: Diagnosis, title: str, library: str, query: Callable[[], Version], *, links: bool = True
) -> Version | None:
    try:
        found = query()
    except ToolchainError as error:
        missing, diagnosis.searched = f"missing: {error.what}", error.where or diagnosis.searched
        if links:
            diagnosis.require(title, missing, False, error.hint)
        else:
            diagnosis.require_to_build(title, missing, error.hint)
        return None
    diagnosis.require(title, f"{found} at {toolkit.find_library(library)}")
    return found


def _nvcc(diagnosis: Diagnosis) -> None:
    """Add nvcc, its host compiler and its headers; only families with ``toolchain = "nvcc"`` need them."""
    try:
        compiler = nvcc.Compiler()
    except ToolchainError as error:
        diagnosis.mention("nvcc", f'{error.what} (only toolchain = "nvcc" needs it)', False, error.hint)
        return
    diagnosis.mention("nvcc", f"{compiler.version} at {compiler.path}")
    diagnosis.mention("host compiler", f"{compiler.host_version} at {compiler.host_path}")
    diagnosis.mention("nvcc's headers", ", ".join(map(str, compiler.toolkit_headers)))


def _compatibility(diagnosis: Diagnosis, nvrtc: Version | None, nvjitlink: Version | None) -> None:
    if nvjitlink is None:
        return
    architectures = ", ".join(f"sm_{number}" for number in linkable_architectures(nvjitlink))
    diagnosis.require("links LTO-IR of", f"CUDA {nvjitlink.major}.0 to {nvjitlink}, for {architectures}")
    diagnosis.require("links PTX up to", f"ISA {newest_ptx_isa(nvjitlink)}, across CUDA majors too, without LTO")
    if nvrtc is not None:
        fits = ltoir_links(nvrtc, nvjitlink)
        state = f"NVRTC {nvrtc} is newer than nvJitLink {nvjitlink}, or of a different CUDA major version"
        remedy = "install both from the same CUDA release"
        diagnosis.require("NVRTC → nvJitLink", "compatible" if fits else state, fits, remedy)


def _driver(diagnosis: Diagnosis, nvjitlink: Version | None) -> None:
    found = driver.find_driver()
    if found is not None:
        describe_driver(diagnosis, found, nvjitlink)
    try:
        current = device.current()
    except JitltoError as error:
        remedy = "needed only to launch kernels, not to build, plan or link"
        diagnosis.mention("driver and devices", error.what, False, remedy)
        return
    for each in libraries.Device.get_all_devices():
        major, minor = each.compute_capability
        mark = ", current" if each.device_id == current.device_id else ""
        diagnosis.require(f"device {each.device_id}", f"{each.name}, sm_{major}{minor}{mark}")


_FORWARD = {
    Forward.NONE: "not in use",
    Forward.ACTIVE: "in use: {ours} with a kernel module of {theirs}; the newer libcuda decides what can be loaded",
    Forward.NEEDLESS: "not needed: the package's libcuda has the kernel module's release, {theirs}",
    Forward.MISMATCH: "{ours} is older than the kernel module's {theirs}: CUDA fails to initialize",
}


def describe_driver(diagnosis: Diagnosis, found: Driver, nvjitlink: Version | None) -> None:
    """Add the driver: its CUDA version, what it cannot load, and whether it comes from a cuda-compat package."""
    refused = find_incompatibility(found.cuda, nvjitlink, None) if found.cuda and nvjitlink else None
    remedy = f"{refused.why}: {refused.remedy}" if refused else None
    place = found.library or "libcuda at an unknown place"
    diagnosis.mention("driver", f"for CUDA {found.cuda}, {place}", refused is None, remedy)
    ours = f"libcuda {found.release}" if found.release else "a package's libcuda"
    state = _FORWARD[found.forward].format(ours=ours, theirs=found.module or "an unknown release")
    remedy = (
        f"remove {found.library and found.library.parent} from LD_LIBRARY_PATH, or uninstall the cuda-compat package, "
        "which is older than the driver"
    )
    diagnosis.mention("forward compatibility", state, found.forward is not Forward.MISMATCH, remedy)


def _settings(diagnosis: Diagnosis) -> Config:
    """Return the settings of this process without the invalid ones, which become findings."""
    environment = dict(os.environ)
    while True:
        try:
            return Config.read(environment)
        except JitltoError as error:
            if environment.pop(str(error.where), None) is None:
                raise
            diagnosis.require(str(error.where), error.what, False, error.hint)


def _cache_directory(diagnosis: Diagnosis, settings: Config) -> None:
    problems = [cache.problem() for cache in user_caches(settings) if cache.setting != "off"]
    problem = next(filter(None, problems), None)
    state = "exists" if os.path.lexists(settings.cache_dir) else "not created yet"
    value = f"{settings.cache_dir} ({state})" + (f": {problem}" if problem else "")
    remedy = "set JITLTO_CACHE_DIR to a directory that only you can write to"
    diagnosis.mention("cache directory", value, problem is None, remedy)


def _stores(diagnosis: Diagnosis, settings: Config) -> None:
    """Add what can be said of each shared store and of the keys: nothing that a process would fail without."""
    try:
        settings = with_project_stores(Path(), settings)
    except JitltoError as error:
        diagnosis.mention(_STORE, f"{error.where}: {error.what}", False, error.hint)
        return
    if not settings.store:
        return
    try:
        addresses = parse_addresses(settings.store, "JITLTO_STORE")
    except JitltoError as error:
        diagnosis.mention(_STORE, error.what, False, error.hint)
        return
    for finding in examine_stores(addresses, settings):
        diagnosis.mention(_STORE, finding.value, finding.ok, finding.remedy)


def _databases(diagnosis: Diagnosis, settings: Config, nvjitlink: Version | None) -> None:
    if not settings.database_path:
        diagnosis.require("databases", "none on JITLTO_DATABASE_PATH")
    for path in settings.database_path:
        try:
            databases = registry.Registry((path,)).databases()
        except JitltoError as error:
            remedy = ": ".join(filter(None, ("it is on JITLTO_DATABASE_PATH", error.hint)))
            diagnosis.mention(_DATABASE, f"{error.where}: {error.what}", False, remedy)
            continue
        except OSError as error:
            diagnosis.mention(_DATABASE, f"{path}: {error.strerror}", False, "it is on JITLTO_DATABASE_PATH")
            continue
        for database in databases:
            made = sorted({image.version for fragment in database.fragments() for image in fragment.images})
            value = (
                f"{database.path}: {', '.join(database.families)}; {len(database.fragments())} fragments, "
                f"compiled by {', '.join(map(str, made))}"
            )
            trouble = None if nvjitlink is None else _link_trouble(database, nvjitlink)
            diagnosis.mention(_DATABASE, value, trouble is None, trouble)


def _installed(diagnosis: Diagnosis, nvjitlink: Version | None) -> None:
    """Add the families of installed packages, and problems with their databases."""
    if any(finding.name.startswith("JITLTO_") for finding in diagnosis.findings):
        diagnosis.mention(_INSTALLED, "not examined until the settings above are corrected", False)
        return
    listed = installed_families(session.default.registry)
    if not listed:
        diagnosis.require("installed families", "none")
    for each in listed:
        unbuilt = each.editable is not None and each.database is None  # its first use builds it
        trouble, remedy = each.trouble, each.remedy or reinstall_command(each.distribution)
        if trouble is None and each.database is not None and nvjitlink is not None:
            try:
                with FragmentDatabase(each.database) as database:
                    trouble = _link_trouble(database, nvjitlink)
                    remedy = ""
            except DatabaseError as error:
                trouble = error.what
        place = each.database or f"editable, from {each.editable}"
        value = f"{each.family} of {each.distribution} {each.version}: {place}" + (f": {trouble}" if trouble else "")
        diagnosis.mention(_INSTALLED, value, trouble is None or unbuilt, None if each.editable else remedy or None)


def _link_trouble(database: FragmentDatabase, linker: Version) -> str | None:
    """Return why fragments do not link with link-time optimisation for the architectures that they were built for."""
    fragments = [fragment for fragment in database.fragments() if fragment.images]
    previews = [preview_link(f, max(image.architecture for image in f.images), linker) for f in fragments]
    troubles = [preview for preview in previews if preview.method is not LinkMethod.LTO]
    if database.part is not None:
        return f"{database.part} of a build: {MERGE_HINT}"
    worst = min(troubles, key=lambda preview: preview.method is not None, default=None)
    return f"{worst.why}: {worst.remedy}" if worst else None
