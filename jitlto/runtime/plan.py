"""Plans: the resolved, immutable answer to a configuration, and its link."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jitlto import toolkit
from jitlto.database import FragmentDatabase
from jitlto.errors import ArchitectureError, LinkError, VersionError
from jitlto.fragment import Fragment, Image, ImageKind, SymbolKind
from jitlto.link_options import LinkOptions
from jitlto.mangling import demangle
from jitlto.runtime import cubins, device, wisdom
from jitlto.runtime.linked import LinkedKernel
from jitlto.runtime.recipe import Recipe
from jitlto.runtime.resolve import Resolution, Supplied
from jitlto.runtime.shortcuts import Chosen
from jitlto.versions import Architecture, Version, ltoir_links, newest_ptx_isa, runs_on

if TYPE_CHECKING:  # what a plan whose kernel is found need not load
    from jitlto.runtime.linker import Linked
    from jitlto.runtime.supply import UserInput

_DIGEST_SCHEMA = 1
_log = logging.getLogger("jitlto.plan")
_said: set[tuple[Version, Version]] = set()


@dataclass(frozen=True, repr=False)
class Plan:
    """The fragments, options and target of one kernel. Made by a planner; immutable.

    Parameters
    ----------
    family : str
        The family's name.
    resolution : Resolution
        The fragments and the configuration that chose them.
    supplied : tuple of UserInput
        What the caller supplies, linked after the fragments, in the order given.
    options : LinkOptions
        Options of the link.
    built : LinkOptions
        Those that the family was built with.
    mode : str
        ``lto`` or ``ptx``.
    arch : Architecture or None
        The target; None stands for the current device's.
    database : FragmentDatabase
        Where images are read from.
    request : Request or None
        What it answers, to plan it again elsewhere; None for what no caller asked for.
    """

    family: str
    resolution: Resolution
    supplied: tuple[UserInput, ...]
    options: LinkOptions
    built: LinkOptions
    mode: str
    arch: Architecture | None
    database: FragmentDatabase = field(compare=False)
    request: wisdom.Request | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        configuration = ", ".join(f"{name}={value}" for name, value in self.resolution.configuration)
        target = self.arch.sm if self.arch else "the current device"
        return f"<Plan {self.family}/{self.entry.key.group}({configuration}) for {target}>"

    @property
    def entry(self) -> Fragment:
        """The entrypoint fragment."""
        return self.resolution.entry

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All fragments, in link order."""
        return self.resolution.fragments

    @property
    def configuration(self) -> dict[str, str]:
        """The parameters on which this plan depends, with their values."""
        return dict(self.resolution.configuration)

    def for_arch(self, arch: str | Architecture) -> Plan:
        """The same plan for another target architecture."""
        return replace(self, arch=Architecture.parse(str(arch)))

    @cached_property
    def target(self) -> Architecture:
        """The target architecture, asking the current device if none was given.

        Raises
        ------
        NoDeviceError
            If none was given and there is no device.
        """
        if self.arch is not None:
            return self.arch
        own = device.architecture()
        # Code built for exactly this architecture or family may use what plain code cannot.
        available = {image.architecture for f in self.fragments for image in f.images_of(ImageKind.LTOIR)}
        for special in (Architecture(own.number, "a"), Architecture(own.number, "f")):
            if any(a.suffix and runs_on(a, special) for a in available):
                return special
        return own

    @cached_property
    def link_mode(self) -> str:
        """``lto``, or ``ptx`` if it was asked for or if fragments and nvJitLink are of different majors."""
        linker = toolkit.nvjitlink_version()
        foreign = {
            i.version for f in self.fragments for i in f.images_of(ImageKind.LTOIR) if i.version.major != linker.major
        }
        if self.mode == "lto" and foreign:
            version = max(foreign)
            if (version, linker) not in _said:
                _said.add((version, linker))
                _log.warning(
                    "LTO-IR of CUDA %s does not link with nvJitLink %s: "
                    "linking PTX instead, without link-time optimisation",
                    version,
                    linker,
                )
            return "ptx"
        return self.mode

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The image of each fragment that is linked, in link order; checked against nvJitLink and the target.

        Raises
        ------
        VersionError
            If an image is newer than nvJitLink reads.
        ArchitectureError
            If a fragment has no image that runs on the target.
        """
        linker = toolkit.nvjitlink_version()
        kind = ImageKind.LTOIR if self.link_mode == "lto" else ImageKind.PTX
        for item in self.supplied:
            _check_supplied(item, self.link_mode, self.target, linker)
        return tuple(_select(fragment, kind, self.target, linker) for fragment in self.fragments)

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """nvJitLink's flags beside the architecture, in canonical order."""
        late = self.options.ineffective(self.built, self.link_mode)
        if late:
            raise LinkError(
                f"{', '.join(late)} would have no effect on a link of {self.link_mode}: the compiler has decided it",
                where=str(self.entry.key),
                hint="declare it under [link] in family.toml and build the family again",
            )
        lto = ("-lto",) if self.link_mode == "lto" else ()
        return (*lto, *self.options.flags())

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that determines the linked code, and nothing else.

        Of nvJitLink that is its version, major and minor: a pack serves patch releases other than the one that made it.
        """
        return self.recipe.digest

    @property
    def chosen(self) -> Chosen:
        """What launching its kernel takes."""
        return Chosen(str(self.entry.key), self.digest, self.entry.signature)

    @cached_property
    def recipe(self) -> Recipe:
        """All that determines the linked code, which the digest stands for."""
        content = {
            "schema": _DIGEST_SCHEMA,
            "images": [image.sha256 for image in self.images],
            "supplied": [item.identity for item in self.supplied],
            "entry": self.entry.entry,
            "arch": self.target.sm,
            "flags": self.flags,
            "nvjitlink": str(toolkit.nvjitlink_version()),
        }
        data = json.dumps(content, sort_keys=True).encode()
        return Recipe(data, str(self.entry.key), self.resolution.configuration)

    def link(self, arch: str | Architecture | None = None) -> LinkedKernel:
        """Link into a cubin, or find one that was linked before. Needs no GPU if an architecture is named.

        Parameters
        ----------
        arch : str or Architecture, optional
            Instead of the plan's.

        Raises
        ------
        LinkError
            Or one of its kinds, if the plan does not link.
        """
        if arch is not None:
            return self.for_arch(arch).link()
        wisdom.record(self)
        return cubins.default().kernel(self.recipe, self.link_anew, self.database.location)

    def link_anew(self) -> LinkedKernel:
        """Link, whatever caches hold; nothing is added to them.

        Raises
        ------
        LinkError
            Or one of its kinds, if the plan does not link.
        """
        begin = time.perf_counter()
        linked = self._link(ptx=False)
        return LinkedKernel(linked.data, self.entry.entry, self.target.sm, linked.log, time.perf_counter() - begin)

    def link_ptx(self, arch: str | Architecture | None = None) -> str:
        """The PTX that link-time optimisation makes of the plan, to read and to check.

        Raises
        ------
        LinkError
            Or one of its kinds; in ``ptx`` mode always, for nothing is optimised across fragments there.
        """
        if arch is not None:
            return self.for_arch(arch).link_ptx()
        if self.link_mode != "lto":
            raise LinkError("a link without link-time optimisation makes no PTX", hint="dump the cubin or its SASS")
        return self._link(ptx=True).data.decode()

    def calls_left(self, arch: str | Architecture | None = None) -> list[str]:
        """The functions of fragments and of the caller that link-time optimisation has not inlined, demangled.

        A function that stands in the linked PTX beside the kernel is called from it, or its address is taken.

        Raises
        ------
        LinkError
            As :meth:`link_ptx`.
        """
        if arch is not None:
            return self.for_arch(arch).calls_left()
        from jitlto.ptx import parse

        module = parse(self.link_ptx())
        owners: list[Fragment | Supplied] = [*self.fragments, *(item.symbols for item in self.supplied)]
        crossing = {s.name for owner in owners for s in (*owner.provides, *owner.requires)} - {self.entry.entry}
        functions = {name for name, d in module.declarations.items() if d.kind is SymbolKind.FUNCTION}
        unresolved = {symbol.name for symbol in module.requires}
        return sorted(demangle(name) for name in (functions & crossing) | unresolved)

    def as_dict(self) -> dict[str, object]:
        """What the plan is made of, for reading: plain values only."""
        return {
            "family": self.family,
            "entry": demangle(self.entry.entry),
            "configuration": self.configuration,
            "fragments": [str(fragment.key) for fragment in self.fragments],
            "supplied": [item.symbols.name for item in self.supplied],
            "signature": [str(parameter) for parameter in self.entry.signature],
            "arch": self.target.sm,
            "link_mode": self.link_mode,
            "flags": list(self.flags),
            "images": [{"kind": i.kind.value, "arch": str(i.architecture), "sha256": i.sha256} for i in self.images],
            "nvjitlink": str(toolkit.nvjitlink_version()),
            "digest": self.digest,
        }

    def _link(self, *, ptx: bool) -> Linked:
        from jitlto.runtime.linker import InputKind, LinkInput, link

        kind = InputKind.FATBIN if self.link_mode == "lto" else InputKind.PTX
        inputs = [
            LinkInput(kind, self.database.read(image), str(fragment.key))
            for fragment, image in zip(self.fragments, self.images, strict=True)
        ]
        inputs += [item for user in self.supplied for mode, item in user.images if mode == self.link_mode]
        return link(inputs, self.target, self.flags, ptx=ptx)


def _select(fragment: Fragment, kind: ImageKind, target: Architecture, linker: Version) -> Image:
    images = list(fragment.images_of(kind))
    if not images:
        raise VersionError(
            f"{fragment.key} has no {kind} image, which a link of {kind} with nvJitLink {linker} needs",
            hint=f"build it with {kind} among its images, or link what it has, with an nvJitLink of CUDA "
            f"{_versions(fragment.images)}",
        )
    if kind is ImageKind.LTOIR:
        readable = [image for image in images if ltoir_links(image.version, linker)]
    else:
        readable = [i for i in images if i.ptx_isa is not None and i.ptx_isa <= newest_ptx_isa(linker)]
    if not readable:
        made = _versions(images)
        what = "LTO-IR" if kind is ImageKind.LTOIR else f"PTX {max(i.ptx_isa for i in images if i.ptx_isa)}"
        raise VersionError(
            f"{fragment.key} holds {what} made by {images[0].toolchain} {made}, which nvJitLink {linker} cannot read",
            hint=f"install an nvJitLink of at least {made} "
            f"(pip install -U 'jitlto[cu{max(i.version for i in images).major}]'), "
            f"or build the family with a compiler no newer than {linker}",
        )
    fitting = [image for image in readable if runs_on(image.architecture, target)]
    if not fitting:
        archs = ", ".join(image.architecture.compute for image in readable)
        raise ArchitectureError(
            f"{fragment.key} was compiled for {archs}, which does not run on {target.sm}",
            hint="link for a later architecture, or build the family with that one among its archs",
        )
    return max(fitting, key=lambda image: image.architecture)


def _check_supplied(item: UserInput, mode: str, target: Architecture, linker: Version) -> None:
    name = item.symbols.name
    if not any(image_mode == mode for image_mode, _ in item.images):
        raise LinkError(
            f"{name} cannot take part in a link without link-time optimisation",
            hint='give its source or PTX, or link with link_mode="lto"',
        )
    if item.version is not None and mode == "lto" and not ltoir_links(item.version, linker):
        raise VersionError(
            f"{name} was compiled with CUDA {item.version}, which nvJitLink {linker} cannot link",
            hint="install NVRTC and nvJitLink of one release",
        )
    if item.architecture is not None and not runs_on(item.architecture, target):
        raise ArchitectureError(
            f"{name} is for {item.architecture.compute}, which does not run on {target.sm}",
            hint="link for a later architecture",
        )


def _versions(images: Sequence[Image]) -> str:
    return " and ".join(sorted({str(image.version) for image in images}))
