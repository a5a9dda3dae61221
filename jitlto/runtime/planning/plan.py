"""Plans: the resolved, immutable answer to a configuration, and its link."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jitlto.cuda import device, toolkit
from jitlto.errors import ArchitectureError, LinkError, VersionError
from jitlto.model import compatibility
from jitlto.model.fragment import Fragment, Image, ImageKind, SymbolKind
from jitlto.model.mangling import demangle
from jitlto.model.options import LinkOptions
from jitlto.model.resolve import Resolution, UserSymbols
from jitlto.model.versions import Architecture, Version, ltoir_links, runs_on
from jitlto.runtime.discovery.lookup_cache import Chosen
from jitlto.runtime.linking import kernel_cache
from jitlto.runtime.linking.kernel_cache import LinkedKernel
from jitlto.runtime.linking.link_key import Recipe
from jitlto.runtime.planning import recording
from jitlto.storage.database import FragmentDatabase

if TYPE_CHECKING:  # what a plan whose kernel is found need not load
    from jitlto.cuda.nvjitlink import Linked
    from jitlto.runtime.user_code.inputs import UserInput

_DIGEST_SCHEMA = 1
_log = logging.getLogger("jitlto.plan")
_said: set[str] = set()


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
    request: recording.Request | None = field(default=None, compare=False)

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
        return compatibility.native(device.architecture(), self.fragments)

    @cached_property
    def jit_base(self) -> Architecture | None:
        """What PTX is made for, if the target is too new for nvJitLink; None if a cubin is made for the target itself.

        The driver, which knows its device, compiles that PTX when the kernel is loaded.
        """
        if self.link_mode != "lto":
            return None  # what would make PTX is link-time optimisation
        linker = toolkit.nvjitlink_version()
        return compatibility.jit_base(self.target, linker, asked=self.arch is not None)

    @property
    def code(self) -> str:
        """What code is made for, ``sm_90``, or ``compute_90`` for PTX."""
        return self.jit_base.compute if self.jit_base else self.target.sm

    @cached_property
    def link_mode(self) -> str:
        """``lto``, or ``ptx`` if it was asked for or if fragments and nvJitLink are of different majors."""
        return "ptx" if self._foreign else self.mode

    @cached_property
    def _foreign(self) -> Version | None:
        """The compiler whose LTO-IR is of another major than nvJitLink, where LTO-IR was to be linked."""
        return compatibility.foreign(self.fragments, toolkit.nvjitlink_version()) if self.mode == "lto" else None

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
        target = self.jit_base or self.target
        for item in self.supplied:
            _check_supplied(item, self.link_mode, target, linker)
        selected = tuple(compatibility.select(fragment, kind, target, linker) for fragment in self.fragments)
        if self._foreign:
            _say_once(
                f"LTO-IR of CUDA {self._foreign} does not link with nvJitLink {linker}: "
                "linking PTX instead, without link-time optimisation"
            )
        if self.jit_base:
            _say_once(
                f"nvJitLink {linker} does not link for {self.target.sm}: "
                f"making PTX for {self.jit_base.compute} instead, which the driver compiles"
                + "".join(f", without {name}" for name in self.options.of_assembler())
            )
        return selected

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
            "arch": self.code,
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
        recording.record(self)
        return kernel_cache.default().kernel(self.recipe, self.link_anew, self.database.location)

    def link_anew(self) -> LinkedKernel:
        """Link, whatever caches hold; nothing is added to them.

        Raises
        ------
        LinkError
            Or one of its kinds, if the plan does not link.
        """
        begin = time.perf_counter()
        linked = self._link(ptx=self.jit_base is not None)
        if self.jit_base:
            from jitlto.cuda.nvjitlink import refuse_undefined_in

            refuse_undefined_in(linked)
        return LinkedKernel(linked.data, self.entry.entry, self.code, linked.log, time.perf_counter() - begin)

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
        from jitlto.model.ptx import parse

        module = parse(self.link_ptx())
        owners: list[Fragment | UserSymbols] = [*self.fragments, *(item.symbols for item in self.supplied)]
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
            "code": self.code,
            "link_mode": self.link_mode,
            "flags": list(self.flags),
            "images": [{"kind": i.kind.value, "arch": str(i.architecture), "sha256": i.sha256} for i in self.images],
            "nvjitlink": str(toolkit.nvjitlink_version()),
            "digest": self.digest,
        }

    def _link(self, *, ptx: bool) -> Linked:
        from jitlto.cuda.nvjitlink import InputKind, LinkInput, link

        kind = InputKind.FATBIN if self.link_mode == "lto" else InputKind.PTX
        inputs = [
            LinkInput(kind, self.database.read(image), str(fragment.key))
            for fragment, image in zip(self.fragments, self.images, strict=True)
        ]
        inputs += [item for user in self.supplied for mode, item in user.images if mode == self.link_mode]
        others = [item.name for item in inputs if item.kind not in (InputKind.LTOIR, InputKind.FATBIN)]
        if self.jit_base and others:
            raise ArchitectureError(
                f"{', '.join(others)} cannot become part of PTX for {self.jit_base.compute}: it is no LTO-IR",
                hint="give its source or LTO-IR, or install an nvJitLink that links for the target",
            )
        return link(inputs, self.jit_base or self.target, self.flags, ptx=ptx)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning(message)


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
            hint=f"install an nvJitLink of at least {item.version}, or an NVRTC no newer than {linker}",
        )
    if item.architecture is not None and not runs_on(item.architecture, target):
        raise ArchitectureError(
            f"{name} is for {item.architecture.compute}, which does not run on {target.sm}",
            hint="link for a later architecture",
        )
