"""Plans: the resolved, immutable answer to a configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from jitlto.base.cached import cached_property
from jitlto.base.errors import ArchitectureError, JitltoError, LinkError, VersionError
from jitlto.base.events import Kind
from jitlto.base.frozen import Shared
from jitlto.base.log import warn_once
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture, Version, lowest_base
from jitlto.cuda import device, nvjitlink
from jitlto.cuda.nvjitlink import InputKind, LinkInput, name_loaded, read_device_library
from jitlto.cuda.ptx import parse_ptx
from jitlto.database import FragmentDatabase
from jitlto.plan.cache_entry import Chosen, LinkedKernel, LinkKey
from jitlto.plan.images import linked_kind, native_target, newest_foreign, select_image
from jitlto.plan.resolve import Resolution
from jitlto.plan.supplied import UserSymbols
from jitlto.record.fragment import Fragment, Image, ImageKind, SymbolKind
from jitlto.record.options import LinkOptions

if TYPE_CHECKING:  # not imported at run time: a plan whose kernel is in a cache needs none of them
    from jitlto.plan.user_code.inputs import UserInput


_DIGEST_SCHEMA = 1
#: What a caller supplies beside fragments, as its name, its content and its kind (None for CUDA C++, in UTF-8).
SuppliedInput: TypeAlias = tuple[str, bytes, InputKind | None]


class Request(Struct, frozen=True):
    """The caller's words to a planner: all that is needed to plan them again elsewhere.

    Args:
        family: The family's name.
        entry: The entrypoint's group, where it was named.
        configuration: Parameter values.
        pinned: Keys of the fragments that were named outright.
        supplied: The caller's own inputs, in the order given.
        link_mode: ``lto``, ``ptx`` or ``sass``.
        link_options: Put over the family's own.
    """

    family: str
    entry: str | None
    configuration: Mapping[str, str]
    pinned: tuple[str, ...] = ()
    supplied: tuple[SuppliedInput, ...] = ()
    link_mode: str = "lto"
    link_options: Mapping[str, object] = {}


class Plan(Shared, Struct, frozen=True, eq=False, dict=True):
    """The fragments, options and target of one kernel. Created by a planner; immutable.

    Args:
        family: The family's name.
        resolution: The fragments and the configuration that chose them.
        supplied: The caller's own inputs, linked after the fragments, in this order.
        options: Options of the link.
        built: The link options that the family was built with.
        mode: ``lto``, ``ptx`` or ``sass``, as requested.
        arch: The target; None for that of the current device.
        database: The database that images are read from.
        services: The session whose kernel cache links it; its module is above.
        request: The request that it answers, for planning it elsewhere; None if the request cannot be recorded.
        again: Makes its family, for the same.
    """

    family: str
    resolution: Resolution
    supplied: tuple[UserInput, ...]
    options: LinkOptions
    built: LinkOptions
    mode: str
    arch: Architecture | None
    database: FragmentDatabase
    services: Any
    request: Request | None = None
    again: Callable[[], Any] | None = None

    def _value(self) -> tuple[object, ...]:
        return (self.family, self.resolution, self.supplied, self.options, self.built, self.mode, self.arch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __reduce__(self) -> tuple[Any, ...]:
        """Be planned again, in another process, from the same request."""
        return self.make_family().plan_request, (self.request, self.arch)

    def make_family(self) -> Any:
        """Return its family made anew, which can plan its request.

        Raises:
            JitltoError: If its request cannot be planned elsewhere.
        """
        if self.request is None or self.again is None:
            raise JitltoError(
                "a plan with a Python function cannot be sent to another process",
                code="jitlto-not-portable",
                where=repr(self),
                hint="plan it there, or add the function as source: add_source",
            )
        return self.again()

    def __repr__(self) -> str:
        configuration = ", ".join(f"{name}={value}" for name, value in self.resolution.configuration)
        target = self.arch.sm if self.arch else "the current device"
        return f"<Plan {self.family}/{self.entry.key.group}({configuration}) for {target}>"

    @property
    def entry(self) -> Fragment:
        """The entrypoint fragment."""
        return self.resolution.entry

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        """All fragments, in link order."""
        return (self.resolution.entry, *self.resolution.device)

    @property
    def configuration(self) -> dict[str, str]:
        """The parameters on which this plan depends, with their values."""
        return dict(self.resolution.configuration)

    def for_arch(self, arch: str | Architecture | None) -> Plan:
        """Return the same plan for a different target architecture; None: that of the current device."""
        return replace(self, arch=None if arch is None else Architecture.parse(str(arch)))

    @cached_property
    def target(self) -> Architecture:
        """The target architecture; by default that of the current device.

        Raises:
            NoDeviceError: If no architecture was given and there is no device.
        """
        return self.arch or native_target(device.architecture(), self.fragments)

    @cached_property
    def _foreign(self) -> Version | None:
        """The newest compiler of another CUDA major than nvJitLink that made LTO-IR, if that was requested."""
        images = (image for f in self.fragments for image in f.images_of(ImageKind.LTOIR) if self.mode == "lto")
        return newest_foreign(images, nvjitlink.version())

    @property
    def link_mode(self) -> str:
        """As requested; ``ptx`` instead of ``lto`` if fragments and nvJitLink have different CUDA majors."""
        return "ptx" if self._foreign else self.mode

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The image of each fragment that is linked, in link order; checked against nvJitLink and the target.

        Raises:
            VersionError: If an image is too new for nvJitLink.
            ArchitectureError: If a fragment has no image that runs on the target.
        """
        target, linker = self.target, nvjitlink.version()
        for item in self.supplied:
            item.check(self.link_mode)
        try:
            kind = ImageKind.LTOIR if self.link_mode == "lto" else ImageKind(self.link_mode)
            images = tuple(select_image(f, linked_kind(f, kind), target, linker) for f in self.fragments)
        except VersionError as error:
            name_loaded(error, linker)
            raise
        if self._foreign:
            what = f"LTO-IR of CUDA {self._foreign} does not link with nvJitLink {linker}"
            warn_once(__name__, what, "%s: linking PTX instead, without link-time optimisation", what)
        return images

    @cached_property
    def fast(self) -> Plan | None:
        """The same kernel, linked of cubins in a hundredth of the time; None if it may not be, or has none that fit.

        A cubin fits if its source says the same for its architecture as for that of the LTO-IR, as it does where a
        build with tiers stored no other LTO-IR for it. A caller's source is linked as PTX, which is for the
        architecture of its LTO-IR, and so must be all that it may share inline functions with.
        """
        families = {self.database.families[fragment.key.family] for fragment in self.fragments}
        allowed = self.options.tiered and self.services.config.tiered and all(each.link.tiered for each in families)
        allowed &= all(each.link.ptxas == self.options.ptxas for each in families)  # what their cubins were made with
        # A caller's other inputs may mean something else without LTO.
        is_known = not self.supplied or (self.request and not any(kind for *_, kind in self.request.supplied))
        # The device runtime has variables.
        if not allowed or self.options.libraries or self.link_mode != "lto" or not is_known:
            return None
        fast = replace(self, mode="sass")
        try:
            pairs = [(i.architecture, j.architecture) for i, j in zip(self.images, fast.images, strict=True)]
            fits = all(i == j or (i < j and not j.suffix) for i, j in pairs)
            base = lowest_base(self.database.families[self.family].architectures)
            is_one = not self.supplied or all(i == base for i, _ in pairs)
            return fast if fits and is_one and fast.flags is not None else None
        except (VersionError, ArchitectureError, LinkError):
            return None

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """nvJitLink's flags beside the architecture, in canonical order."""
        late = self.options.find_ineffective(self.built, self.link_mode)
        if late:
            raise LinkError(
                f"{', '.join(late)} would have no effect on the link: fixed when the fragments were compiled",
                code="link-option-late",
                where=str(self.entry.key),
                hint="declare it under [link] in family.toml and build the family again; for lineinfo, `jitlto build "
                "--lineinfo` does",
            )
        return ("-lto", *self.options.flags()) if self.link_mode == "lto" else self.options.flags()

    @cached_property
    def libraries(self) -> tuple[tuple[LinkInput, str], ...]:
        """The toolkit's libraries that are linked, and their digests; not needed where the kernel is found linked.

        Raises:
            ToolchainError: If one is not installed.
        """
        return tuple(map(read_device_library, self.options.libraries))

    @cached_property
    def link_key(self) -> LinkKey:
        """The inputs of the link, over which the digest is computed."""
        target, resolution = self.target, self.resolution
        content = {
            "schema": _DIGEST_SCHEMA,
            "images": [image.sha256 for image in self.images],
            "supplied": [*(item.identity for item in self.supplied), *(digest for _, digest in self.libraries)],
            "entry": resolution.entry.entry,
            "arch": target.sm,
            "flags": self.flags,
            "nvjitlink": str(nvjitlink.version()),
        }
        data = json.dumps(content, sort_keys=True).encode()
        return LinkKey(data, resolution.entry.key.text, resolution.configuration, hashlib.sha256(data).hexdigest())

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that determines the linked code, and nothing else.

        It covers the major and minor version of nvJitLink, so that a pack is valid for all patch releases.
        """
        return self.link_key.digest

    @cached_property
    def chosen(self) -> Chosen:
        """The data about the kernel that launching it needs."""
        return Chosen(self.link_key.kernel, self.digest, self.resolution.entry.signature)

    def answers(self, linker: str | None, capability: tuple[int, int]) -> bool:
        """Return whether a later process that makes the same request would get this kernel.

        One that was made from PTX instead of LTO-IR is not, so that each process warns about it.

        Args:
            linker: The release of nvJitLink that it would find.
            capability: The compute capability of its device.
        """
        if self._foreign or linker != str(nvjitlink.version()):
            return False
        major, minor = capability
        return self.target == native_target(Architecture(10 * major + minor), self.fragments)

    def link(self, arch: str | Architecture | None = None, *, use_cache: bool = True) -> LinkedKernel:
        """Link into a cubin, or find one that was linked before. Needs no GPU if an architecture is given.

        Args:
            arch: The target, instead of the plan's.
            use_cache: Whether to read and write caches; if False, the plan is always linked.

        Raises:
            LinkError: Or a subclass, if the plan does not link.
        """
        if arch is not None:
            return self.for_arch(arch).link(use_cache=use_cache)
        key, cache = self.link_key, self.services.kernel_cache
        if use_cache:
            self.services.events.emit(Kind.REQUESTED, key.kernel, self.digest, plan=self)
            kernel: LinkedKernel = cache.get_or_link(key, partial(cache.linker, self), self.database.location)
        else:
            kernel = cache.linker(self)
        cache.warn(self.chosen, kernel)
        return kernel

    def link_ptx(self, arch: str | Architecture | None = None) -> str:
        """Return the PTX that link-time optimisation makes of the plan, for inspection and checks.

        What is not LTO-IR, such as a library of machine code, is no part of it: calls to that are left.

        Raises:
            LinkError: Or a subclass. Always in the other modes, which have no link-time optimisation.
        """
        if arch is not None:
            return self.for_arch(arch).link_ptx()
        if self.link_mode != "lto":
            raise LinkError(
                "a link without link-time optimisation makes no PTX",
                code="link-no-ptx",
                hint="dump the cubin or its SASS",
            )
        linked: LinkedKernel = self.services.kernel_cache.linker(self, ptx=True)
        return linked.cubin.decode()

    def calls_left(self, arch: str | Architecture | None = None) -> list[str]:
        """Return the demangled names of functions, of fragments and of the caller, that the link did not inline.

        A function that is in the linked PTX beside the kernel is called from it, or its address is taken.

        Raises:
            LinkError: As :meth:`link_ptx`.
        """
        module = parse_ptx(self.link_ptx(arch))
        owners: list[Fragment | UserSymbols] = [*self.fragments, *(item.symbols for item in self.supplied)]
        crossing = {s.name for owner in owners for s in (*owner.provides, *owner.requires)} - {self.entry.entry}
        functions = {name for name, d in module.declarations.items() if d.kind is SymbolKind.FUNCTION}
        unresolved = {symbol.name for symbol in module.requires}
        return sorted(demangle(name) for name in (functions & crossing) | unresolved)

    def as_dict(self) -> dict[str, object]:
        """Return the plan as JSON-serializable values, for people to read."""
        return {
            "family": self.family,
            "entry": demangle(self.entry.entry),
            "configuration": self.configuration,
            "fragments": [str(fragment.key) for fragment in self.fragments],
            "supplied": [*(item.symbols.name for item in self.supplied), *(item.name for item, _ in self.libraries)],
            "signature": [str(parameter) for parameter in self.entry.signature],
            "arch": self.target.sm,
            "link_mode": self.link_mode,
            "flags": list(self.flags),
            "images": [{"kind": i.kind.value, "arch": str(i.architecture), "sha256": i.sha256} for i in self.images],
            "nvjitlink": str(nvjitlink.version()),
            "digest": self.digest,
        }
