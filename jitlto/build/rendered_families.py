"""Families that are built together: their rendered sources, and how each source is compiled."""

from __future__ import annotations

import functools
import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from jitlto.base.cached import cached_property
from jitlto.base.errors import BuildError, FamilyError, JitltoError, ToolchainError
from jitlto.base.text import check_type
from jitlto.base.versions import Architecture, lowest_base
from jitlto.build import shards
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.build.failures import Failure
from jitlto.build.interface_compiler import InterfaceCompiler
from jitlto.build.interface_text import InterfaceTexts
from jitlto.build.interfaces import InterfaceRules
from jitlto.build.shards import Shard
from jitlto.build.sides import show_sides
from jitlto.build.tuning_record import check_tuned, tune_record
from jitlto.build.uses import check_uses
from jitlto.compile.architectures import comparable_architectures
from jitlto.compile.compiler import Toolchain, find_toolchain
from jitlto.compile.header_search import HeaderSearch
from jitlto.cuda import nvjitlink
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import RenderedSource, render_family
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import FragmentKey, Role
from jitlto.record.headers import Source

_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")


class RenderedFamilies:
    """Families and their rendered sources. Each is rendered once, when it is asked for; its headers are read once.

    Args:
        families: Families with distinct names; those that they use are added.
        keep_going: Collect rendering failures in ``failures`` instead of raising the first.

    Attributes:
        rendered: The requests so far, in the order of rendering.
        failures: The failures so far.
        records: The families' records.
        advice: Warnings so far.

    Raises:
        JitltoError: If an interface is invalid, or a compiler is missing.
    """

    def __init__(self, families: Iterable[FamilyDeclaration], *, keep_going: bool = False) -> None:
        families = tuple(families)  # an iterator gives them once
        for family in families:
            check_type(family, FamilyDeclaration, "a family must be a declaration, as load_family returns")
        families = with_used(families)
        self.rendered: list[CompileRequest] = []
        self.failures: list[Failure] = []
        self.advice: list[str] = []
        self._files: dict[str, bytes] = {}
        self.records = {family.name: family_record(family, self._files) for family in families}
        check_uses(self.records, {family.name: f"{family.path} [use]" for family in families})
        self._on_error = self._add_failure if keep_going else None
        self._find = functools.cache(find_toolchain)
        self.families = families
        self._batches: list[list[CompileRequest]] = []  # by family
        self._interfaces: dict[tuple[str, CompileConfig], InterfaceRules] = {}

    def by_family(self) -> Iterator[Sequence[CompileRequest]]:
        """Yield the requests of one family after the other, and render a family when it is asked for.

        Raises:
            JitltoError: If a matrix or a template is invalid, or a compiler is missing.
        """
        for number, family in enumerate(self.families):
            if number == len(self._batches):
                self._batches.append(self._render(family))
                if number == len(self.families) - 1:
                    self._check_usage()
            yield self._batches[number]

    def _render(self, family: FamilyDeclaration) -> list[CompileRequest]:
        toolchain = self._find(family.toolchain)
        configs = functools.cache(functools.partial(_config, family, toolchain, self._files))
        rendered = render_family(family, on_error=self._on_error, on_warning=self.advice.append)
        requests = [
            CompileRequest(r, configs(family.compiler_options(r.group), r.group.architectures)) for r in rendered
        ]
        self.rendered += requests
        return requests

    def _check_usage(self) -> None:
        """Check what the families declare of each other's fragments, when all have been rendered."""
        keys = [request.key for request in self.rendered] + [failure.rendered.key for failure in self.failures]
        for family in self.families:
            if any(group.tune for group in self.records[family.name].groups):
                self.advice += check_tuned(self.records[family.name], keys)
        used = {name for record in self.records.values() for name in record.uses}
        for name, record in self.records.items():
            if name not in used and not any(group.role is Role.ENTRYPOINT for group in record.groups):
                self.advice.append(f"{name} has no entrypoint, and no family of this build uses it: it has no kernels")

    @cached_property
    def requests(self) -> list[CompileRequest]:
        """All requests, in the order of rendering; renders the families that have not been."""
        return [request for batch in self.by_family() for request in batch]

    def check_interfaces(self, requests: Iterable[CompileRequest]) -> None:
        """Check that sources leave the meaning of their family's interfaces alone, see :class:`InterfaceRules`."""
        families = {family.name: family for family in self.families}
        for request in requests:
            how = request.key.family, request.config
            if how not in self._interfaces:
                self._interfaces[how] = InterfaceRules(families[request.key.family], request.config)
            self._interfaces[how].check(request.rendered)

    def check_texts(self, compiler: InterfaceCompiler) -> None:
        """Check that interfaces have one text in all ways in which sources are compiled, and record for whom not.

        Raises:
            BuildError: An interface does not mean the same for all fragments.
            FamilyError: One changes what those of another family mean.
        """
        found = InterfaceTexts(self.families, self.rendered, compiler).check(self.callers_config)
        for name, difference in found.items():
            self.records[name] = structs.replace(self.records[name], differs=difference)

    def callers_config(self, family: FamilyDeclaration) -> CompileConfig | None:
        """Return how callers' sources are compiled; None if their compiler is not here."""
        try:
            nvrtc = self._find("nvrtc")
        except ToolchainError:
            return None
        plain = replace(family, is_auto=False, toolchain="nvrtc", architectures=(lowest_base(family.architectures),))
        return _config(plain, nvrtc, self._files, family.source_options(), ())

    def origins(self) -> dict[FragmentKey, str]:
        """Where the source of each fragment comes from."""
        return {request.key: request.rendered.origin for request in self.rendered}

    def show(self, key: FragmentKey, symbol: str) -> str:
        """Return how the interfaces and the source of a fragment declare a symbol, for the end of a message."""
        request = next(request for request in self.rendered if request.key == key)
        return show_sides(symbol, request.rendered, request.config)

    def own_interfaces(self) -> dict[str, tuple[str, ...]]:
        """The interfaces of each family, without those of the families that it uses."""
        return {family.name: family.own_interfaces for family in self.families}

    def _add_failure(self, rendered: RenderedSource, error: JitltoError) -> None:
        self.failures.append(Failure(rendered, error))

    @cached_property
    def keys(self) -> tuple[FragmentKey, ...]:
        """All fragments, in the order of rendering."""
        return tuple(request.key for request in self.requests)

    def source_digests(self) -> dict[FragmentKey, str]:
        """The digest of each fragment's sources, see :func:`jitlto.build.shards.digest_source`."""
        return {request.key: shards.digest_source(request.rendered, request.config) for request in self.requests}

    def toolchain_identities(self) -> dict[str, str]:
        """The identity of each family's compiler."""
        configs = {request.key.family: request.config for request in self.requests}
        return {family: config.toolchain.identify(config.images) for family, config in configs.items()}

    def compiles(self) -> dict[FragmentKey, str]:
        """What is equal for fragments of a family that one compile makes, for :mod:`~jitlto.build.shards`."""
        keys = ((each, each.config.key(Source(each.rendered.source.encode(), {}))) for each in self.requests)
        return {request.key: f"{request.key.family} {key}" for request, key in keys}

    def select(self, shard: Shard | None) -> list[CompileRequest]:
        """The requests of one shard; all without one."""
        if shard is None:
            return self.requests
        numbers = shards.assign_shards(self.compiles(), shard.count)
        return [request for request in self.requests if numbers[request.key] == shard.number]


def check_reproducible(requests: Iterable[CompileRequest]) -> None:
    """Check that no template or header of some requests uses the clock.

    Raises:
        BuildError: At the first ``__DATE__``, ``__TIME__`` or ``__TIMESTAMP__``.
    """
    checked: set[tuple[str, str]] = set()  # headers of earlier sources, by family
    for request in requests:
        family, source = request.key.family, request.own_closure
        headers = {name: text for name, text in source.headers.items() if (family, name) not in checked}
        checked.update((family, name) for name in headers)
        for name, text in ((str(request.rendered.group.template), source.text), *headers.items()):
            if match := _CLOCK.search(text):
                what = f"{match[0].decode()} makes every build different"
                where = f"{name}:{text.count(10, 0, match.start()) + 1}"
                hint = "pass the value through the matrix, or as an option -DNAME=value"
                raise BuildError(what, code="build-not-reproducible", where=where, hint=hint)


def _config(
    family: FamilyDeclaration,
    toolchain: Toolchain,
    files: dict[str, bytes],
    options: tuple[str, ...],
    archs: tuple[Architecture, ...],
) -> CompileConfig:
    """Return how the groups of a family that have the same options and architectures are compiled.

    Headers that were read for others are taken from ``files``.
    """
    is_nvcc = toolchain.name == "nvcc"
    system = toolchain.header_roots()
    search = HeaderSearch(
        family.include,
        system=system,
        options=options,
        strict=not is_nvcc,
        as_written=is_nvcc,
        files=files,
    )
    own = HeaderSearch(family.include, options=options, files=files)
    every = tuple(sorted({*family.architectures, *archs}))
    how = CompileConfig(toolchain, search, own, every, options, family.images, family.interfaces)
    if not family.is_auto:
        return how
    linker = nvjitlink.version()
    return replace(how, candidates=comparable_architectures(every[0], toolchain.version, linker), linker=linker)


def with_used(families: Iterable[FamilyDeclaration]) -> tuple[FamilyDeclaration, ...]:
    """Return families, followed by those that they use, once each.

    Raises:
        FamilyError: If two of them have one name.
    """
    families = tuple(families)
    found: dict[str, FamilyDeclaration] = {}
    for family in (*families, *(used for each in families for used in each.all_used().values())):
        other = found.setdefault(family.name, family)
        is_same = os.path.realpath(other.path) == os.path.realpath(family.path)
        if not is_same or [each.name for each in families].count(family.name) > 1:
            what, hint = f"duplicate family {family.name!r}", "give each family a different name"
            raise FamilyError(what, code="family-duplicate", where=str(family.path), hint=hint)
    return tuple(found.values())


def family_record(family: FamilyDeclaration, files: dict[str, bytes] | None = None) -> FamilyRecord:
    """Return the record of a family for the run side: its groups, and its own headers that its interfaces include.

    Args:
        family: The declaration.
        files: Contents of headers that were read, and are not read again.

    Raises:
        FamilyError: If an interface header is not in the family's include directories.
    """
    search = HeaderSearch(family.include, files=files)
    for group in family.groups:
        if group.interface and search.find(group.interface) is None:
            what = f"interface {group.interface!r} does not exist"
            where = f"{family.path} [{group.role}.{group.name}]"
            hint = f"searched in {', '.join(map(str, family.include))}"
            raise FamilyError(what, code="family-interface", where=where, hint=hint)
    include = "".join(f'#include "{name}"\n' for name in family.interfaces)
    headers = search.closure(include.encode()).headers
    parameters = {name for each in (family, *family.all_used().values()) for group in each.groups for name in group.key}
    return FamilyRecord(
        family.name,
        family.source_options(),
        family.link,
        family.architectures,
        tuple(
            GroupRecord(
                g.name,
                g.role,
                g.key,
                g.interface,
                g.template is None,
                g.link,
                g.exclude,
                tune_record(g.tune, parameters) if g.tune else None,
            )
            for g in family.groups
        ),
        tuple(sorted((name, text.decode("utf-8", "surrogateescape")) for name, text in headers.items())),
        tuple(sorted(family.all_used())),
        family.version,
        family.interfaces,
    )
