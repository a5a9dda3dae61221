"""``jitlto doctor``: what is installed, what it can do together, what is missing and how to get it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from jitlto.cli.cache import places
from jitlto.cli.families import DATABASE, installed, locate
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json
from jitlto.cli.paths import PATH
from jitlto.config import Config
from jitlto.cuda import device, driver, toolkit
from jitlto.cuda.driver import Driver, Forward
from jitlto.errors import DatabaseError, JitltoError, ToolchainError
from jitlto.model import mangling
from jitlto.model.compatibility import Way, refusal, verdict
from jitlto.model.versions import Version, linkable, ltoir_links, newest_ptx_isa
from jitlto.runtime.discovery import registry
from jitlto.runtime.discovery.entry_points import reinstall_command
from jitlto.storage.database import FragmentDatabase

_DATABASES, _DATABASE, _INSTALLED = "databases", "database", "installed family"


@dataclass
class Finding:
    """One thing looked at: what it is, what was found, and how to mend it if it is not well."""

    name: str
    value: str
    ok: bool = True
    required: bool = True
    remedy: str | None = None


@dataclass
class Report:
    """All findings, in the order in which they are shown."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, name: str, value: str, **rest: bool | str | None) -> None:
        """Add one finding."""
        self.findings.append(Finding(name, value, **rest))  # type: ignore[arg-type]

    @property
    def well(self) -> bool:
        """Whether everything that building and linking need is there."""
        return all(finding.ok or not finding.required for finding in self.findings)


@click.command(epilog="Example: jitlto doctor search.fragdb --arch sm_90 --driver 12.4")
@click.argument("database", metavar=f"[{DATABASE}]", required=False, type=PATH)
@click.option("--arch", "archs", metavar="ARCH", multiple=True, help="A target for DB, e.g. sm_90; several times.")
@click.option("--driver", "cuda", metavar="VERSION", help="Suppose a driver for this CUDA, e.g. 12.4.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(database: Path | None, archs: tuple[str, ...], cuda: str | None, as_json: bool) -> None:
    """Show the toolchain, driver, devices, caches, databases and installed families found, and what is wrong.

    Exit status 1 if building or linking cannot work.

    With DB, show instead which of its fragments link here, how, and why not: for the targets given, or the current
    device's, or without a device all that this nvJitLink links for. Exit status 1 if fragments cannot be used.
    """
    if database is not None:
        from jitlto.cli.doctor_database import describe

        path, _ = locate(database)
        conclude(lambda: describe(path, archs, cuda, as_json=as_json))
        return
    if archs or cuda:
        raise click.UsageError("--arch and --driver need a database: jitlto doctor DB")
    report = Report()
    _packages(report)
    nvrtc, nvjitlink = _toolchain(report)
    _compatibility(report, nvrtc, nvjitlink)
    _driver(report, nvjitlink)
    settings = _settings(report)
    _places(report, settings)
    _databases(report, settings, nvjitlink)
    _installed(report, nvjitlink)
    if as_json:
        print_json({"well": report.well, "findings": [asdict(finding) for finding in report.findings]})
    else:
        _print(report)
    if not report.well:
        raise SystemExit(1)


def _print(report: Report) -> None:
    width = max(len(finding.name) for finding in report.findings)
    for finding in report.findings:
        mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.required else ("–", "yellow")
        click.secho(mark, fg=colour, nl=False)
        click.echo(f" {finding.name:<{width}}  {finding.value}")
        if finding.remedy and not finding.ok:
            click.echo(f"   {'':<{width}} → {finding.remedy}")
    click.echo()
    if not report.well:
        click.echo("building or linking cannot work yet: see ✗ above")
    elif all(finding.ok for finding in report.findings if finding.name in (_DATABASE, _INSTALLED)):
        click.echo("building and linking work")
    else:
        click.echo("building and linking work, but not all is well with the databases found: see – above")


def _packages(report: Report) -> None:
    report.add(
        "jitlto", f"{_package('jitlto') or 'not installed, run from a checkout'}, Python {platform.python_version()}"
    )
    for name in ("cuda-core", "cuda-bindings"):
        found = _package(name)
        report.add(name, found or "missing", ok=found is not None, remedy=toolkit.INSTALL)
    arrays = [name for name in ("cupy-cuda12x", "cupy-cuda13x") if _package(name)]
    if len(arrays) > 1:
        remedy = "have an environment of its own for each CUDA major, each with one of the extras"
        report.add("CuPy", f"{' and '.join(arrays)}, which are one module", ok=False, required=False, remedy=remedy)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _toolchain(report: Report) -> tuple[Version | None, Version | None]:
    versions = [
        _component(report, "NVRTC (compiler)", "nvrtc", toolkit.nvrtc_version),
        _component(report, "nvJitLink (linker)", "nvJitLink", toolkit.nvjitlink_version),
    ]
    _component(report, "nvFatbin", "nvfatbin", toolkit.nvfatbin_version)
    try:
        roots = toolkit.header_roots() if _package("cuda-bindings") else ()
    except ToolchainError as error:
        report.add("headers", error.what, ok=False, remedy=error.hint)
        return versions[0], versions[1]
    for name, header in (("CUDA headers", "cuda_fp16.h"), ("CCCL headers", "cuda/std/cstdint")):
        root = next((root for root in roots if (root / header).is_file()), None)
        report.add(name, str(root or "missing"), ok=root is not None, remedy=toolkit.INSTALL)
    demangled = mangling.demangle("_Z1fv") == "f()"
    report.add(
        "C++ demangler",
        "the C++ runtime's" if demangled else "missing",
        ok=demangled,
        remedy="install libstdc++ (Debian: libstdc++6; Alpine: libstdc++): kernel signatures are read with it",
    )
    nvdisasm = toolkit.binary("nvdisasm")
    report.add(
        "nvdisasm",
        nvdisasm or "not found (only `--dump sass` needs it)",
        ok=nvdisasm is not None,
        required=False,
        remedy="pip install nvidia-cuda-nvdisasm (it serves CUDA 12 too), or a CUDA toolkit",
    )
    return versions[0], versions[1]


def _component(report: Report, title: str, library: str, query: Callable[[], Version]) -> Version | None:
    try:
        found = query()
    except ToolchainError as error:
        report.add(title, f"missing: {error.what}", ok=False, remedy=error.hint)
        return None
    report.add(title, f"{found} at {toolkit.library_path(library) or 'an unknown place'}")
    return found


def _compatibility(report: Report, nvrtc: Version | None, nvjitlink: Version | None) -> None:
    if nvjitlink is None:
        return
    architectures = ", ".join(f"sm_{number}" for number in linkable(nvjitlink))
    report.add("links LTO-IR of", f"CUDA {nvjitlink.major}.0 to {nvjitlink}, for {architectures}")
    report.add("links PTX up to", f"ISA {newest_ptx_isa(nvjitlink)}, across CUDA majors too, without LTO")
    if nvrtc is not None:
        fits = ltoir_links(nvrtc, nvjitlink)
        report.add(
            "NVRTC → nvJitLink",
            "what is compiled here links here" if fits else f"NVRTC {nvrtc} is not covered by nvJitLink {nvjitlink}",
            ok=fits,
            remedy="install both from one CUDA release",
        )


def _driver(report: Report, nvjitlink: Version | None) -> None:
    found = driver.at_hand()
    if found is not None:
        describe_driver(report, found, nvjitlink)
    try:
        current = device.current()
    except JitltoError as error:
        report.add(
            "driver and devices",
            error.what,
            ok=False,
            required=False,
            remedy="only launching needs them: building, planning and linking do not",
        )
        return
    from cuda.core import Device

    for each in Device.get_all_devices():
        major, minor = each.compute_capability
        mark = ", current" if each.device_id == current.device_id else ""
        report.add(f"device {each.device_id}", f"{each.name}, sm_{major}{minor}{mark}")


_FORWARD = {
    Forward.NONE: "not in use",
    Forward.ACTIVE: "in use: {ours} over a kernel module of {theirs}; the newer libcuda counts for what loads",
    Forward.NEEDLESS: "a package's libcuda is loaded, of the kernel module's own release {theirs}: it does nothing",
    Forward.MISMATCH: "{ours} is older than the kernel module's {theirs}: CUDA refuses to start",
}


def describe_driver(report: Report, found: Driver, nvjitlink: Version | None) -> None:
    """Add what there is to say of a driver: what it is for, what it loads, whether it is a cuda-compat package's."""
    refused = refusal(found.cuda, nvjitlink, None) if found.cuda and nvjitlink else None
    report.add(
        "driver",
        f"for CUDA {found.cuda}, {found.library or 'libcuda at an unknown place'}",
        ok=refused is None,
        required=False,
        remedy=f"{refused.why}: {refused.remedy}" if refused else None,
    )
    ours = f"libcuda {found.release}" if found.release else "a package's libcuda"
    report.add(
        "forward compatibility",
        _FORWARD[found.forward].format(ours=ours, theirs=found.module or "an unknown release"),
        ok=found.forward is not Forward.MISMATCH,
        required=False,
        remedy=f"take {found.library and found.library.parent} out of LD_LIBRARY_PATH, or remove the package "
        "cuda-compat that was left when the driver was updated",
    )


def _settings(report: Report) -> Config:
    """The settings of this process, without those that every other command refuses."""
    environment = dict(os.environ)
    while True:
        try:
            return Config.read(environment)
        except JitltoError as error:
            if environment.pop(str(error.where), None) is None:
                raise
            report.add(str(error.where), error.what, ok=False, remedy=error.hint)


def _places(report: Report, settings: Config) -> None:
    troubles = [
        place.trouble(readonly=place.name == "cubins" and settings.cache == "readonly")
        for place in places(settings)
        if place.name != "cubins" or settings.cache != "off"
    ]
    trouble = next(filter(None, troubles), None)
    state = "exists" if os.path.lexists(settings.cache_dir) else "not yet made"
    report.add(
        "cache directory",
        f"{settings.cache_dir} ({state})" + (f": {trouble}" if trouble else ""),
        ok=trouble is None,
        required=False,
        remedy="set JITLTO_CACHE_DIR to a directory of yours, that nobody else may write",
    )


def _databases(report: Report, settings: Config, nvjitlink: Version | None) -> None:
    if not settings.database_path:
        report.add(_DATABASES, "none on JITLTO_DATABASE_PATH")
    for path in settings.database_path:
        try:
            databases = registry.Registry((path,)).databases()
        except JitltoError as error:
            report.add(_DATABASE, f"{error.where}: {error.what}", ok=False, required=False, remedy=error.hint)
            continue
        except OSError as error:
            report.add(_DATABASE, f"{path}: {error.strerror}", ok=False, required=False)
            continue
        for database in databases:
            made = sorted({image.version for fragment in database.fragments() for image in fragment.images})
            value = (
                f"{database.path}: {', '.join(database.families)}; {len(database.fragments())} fragments, "
                f"compiled by {', '.join(map(str, made))}"
            )
            trouble = None if nvjitlink is None else _link_trouble(database, nvjitlink)
            report.add(_DATABASE, value, ok=trouble is None, required=False, remedy=trouble)


def _installed(report: Report, nvjitlink: Version | None) -> None:
    """Add the families that installed packages bring, and what is wrong with their databases."""
    if any(finding.name.startswith("JITLTO_") for finding in report.findings):
        report.add(_INSTALLED, "not looked at, before the settings above are mended", ok=False, required=False)
        return
    listed = installed()
    if not listed:
        report.add("installed families", "none")
    for each in listed:
        waits = each.editable is not None and each.database is None  # it is built when it is used
        trouble, remedy = each.trouble, each.remedy or reinstall_command(each.distribution)
        if trouble is None and each.database is not None and nvjitlink is not None:
            try:
                with FragmentDatabase(each.database) as database:
                    trouble = _link_trouble(database, nvjitlink)
                    remedy = ""
            except DatabaseError as error:
                trouble = error.what
        place = each.database or f"editable, from {each.editable}"
        report.add(
            _INSTALLED,
            f"{each.family} of {each.distribution} {each.version}: {place}" + (f": {trouble}" if trouble else ""),
            ok=trouble is None or waits,
            required=False,
            remedy=None if each.editable else remedy or None,
        )


def _link_trouble(database: FragmentDatabase, linker: Version) -> str | None:
    """Why fragments do not link here with link-time optimisation, for the architectures that they were built for."""
    told = [verdict(f, max(i.architecture for i in f.images), linker) for f in database.fragments() if f.images]
    troubles = sorted((says for says in told if says.way is not Way.LTO), key=lambda says: says.way is not None)
    if not troubles:
        return None
    return f"{troubles[0].why}: {troubles[0].remedy}; for more: jitlto doctor {database.path}"
