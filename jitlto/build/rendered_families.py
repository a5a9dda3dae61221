"""Families that are built together: their rendered sources, and how each source is compiled."""

import copy
import functools
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from jitlto.base import files
from jitlto.base.cached import cached_property
from jitlto.base.diagnostic import Diagnostic, Location, Severity
from jitlto.base.errors import BuildError, FamilyError, RenderError, ToolchainError
from jitlto.base.mangling import base_name
from jitlto.base.text import check_type, suggest_file
from jitlto.base.toml_reader import find_place
from jitlto.base.versions import Architecture, lowest_base
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interface_settings import check_settings
from jitlto.build.interfaces import InterfaceRules
from jitlto.build.uses import check_uses
from jitlto.compile.architectures import comparable_architectures
from jitlto.compile.compiler import Toolchain, find_toolchain
from jitlto.compile.declarations import line_of
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.sides import show_sides
from jitlto.compile.source_files import walk
from jitlto.cuda import nvjitlink
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import RenderedSource, render_family
from jitlto.record.family_record import FamilyRecord, GroupRecord, InterfaceHeaders
from jitlto.record.fragment import FragmentKey, Values
from jitlto.record.headers import STD_HEADERS

_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")
# Whatever may ask for the architecture: __CUDA_ARCH__ and its like, <nv/target>, and what libraries make of them; what
# is emulated for some, with other rounding or state; and headers that only the preprocessor finds.
_ARCHITECTURES = re.compile(
    rb"ARCH|\bNV_|(?<![a-z])arch_|compute_cap|#\s*include\s+\w|bf16|bfloat16|fp[468](?!\d)|memcpy_async"
    rb"|cuda\S{0,20}(?:barrier|pipeline)|cooperative_groups|\bcut(?:e|lass)\b"
)


class RenderedFamilies:
    """Families and those that they use, rendered one after the other, when they are asked for.

    Args:
        families: Their declarations.

    Attributes:
        families: Those, and behind them those that they use.
        binaries: The files of groups with a binary, so far.
        advice: Warnings about the matrices so far.
        records: The record of each family, by name.

    Raises:
        FamilyError: If two families have one name, or do not fit those that they use.
    """

    def __init__(self, families: Iterable[FamilyDeclaration]) -> None:
        families = tuple(families)
        for family in families:
            check_type(family, FamilyDeclaration, "a family must be a declaration, as load_family returns")
        self.families = with_used(families)
        self.binaries: list[tuple[RenderedSource, bytes]] = []
        self.advice: list[Diagnostic] = []
        self._files: dict[str, bytes] = {}
        self.records = {family.name: family_record(family, self._files) for family in self.families}
        paths = {family.name: family.path for family in self.families}
        check_uses(self.records, lambda name: find_place(paths[name], ("use",)))
        self._find = functools.cache(find_toolchain)
        self._batches: list[list[CompileRequest]] = []  # by family

    def by_family(self) -> Iterator[Sequence[CompileRequest]]:
        """Yield the requests of one family after the other, and render and check a family when it is asked for.

        Raises:
            JitltoError: If a matrix or a template is invalid, a source uses the clock, or a compiler is missing.
        """
        for number, family in enumerate(self.families):
            if number == len(self._batches):
                self._batches.append(self._render(family))
            yield self._batches[number]

    def _render(self, family: FamilyDeclaration) -> list[CompileRequest]:
        toolchain = self._find(family.toolchain)
        configs = functools.cache(functools.partial(_config, family, toolchain, self._files))
        chosen: dict[object, CompileConfig] = {}
        rules = functools.cache(functools.partial(InterfaceRules, family))
        requests = []
        for each in render(family, self._files, self.advice.append):
            group = each.group
            if group.binary:
                self.binaries.append((each, _read_binary(each)))
                continue
            how = family.compiler_options(group), group.architectures, family.cubin_options(group)
            config = configs(*how)
            if family.link.tiered and _names_architectures(config, each):
                config = configs(*how, family.sass)
            if family.generated:
                values = tuple((name, each.combination[name]) for name in self.records[family.name].common)
                config = chosen.setdefault((config, values), replace(config, generated=each.headers, values=values))
            requests.append(CompileRequest(each, config, rules(config).check))
        _check_reproducible(requests)
        return requests

    @property
    def requests(self) -> list[CompileRequest]:
        """All requests, in the order of rendering; renders the families that have not been."""
        return [request for batch in self.by_family() for request in batch]

    @property
    def rendered(self) -> list[RenderedSource]:
        """All sources, and the files of groups with a binary; renders the families that have not been."""
        requests = self.requests
        return [*(request.rendered for request in requests), *(each for each, _ in self.binaries)]

    def select(self, keep: Callable[[RenderedSource], bool]) -> "RenderedFamilies":
        """Return those sources for which a function holds, rendered and checked together with all others."""
        self._by_key  # noqa: B018 - advice and messages are about all of them
        made = copy.copy(self)
        made._batches = [[each for each in batch if keep(each.rendered)] for batch in self.by_family()]
        made.binaries = [each for each in self.binaries if keep(each[0])]
        made.records = {**self.records}
        return made

    def check_settings(self) -> None:
        """Check that interfaces mean the same in all ways in which sources are compiled, and record for whom not.

        Raises:
            BuildError: An interface may not mean the same for all fragments.
        """
        for name, difference in check_settings(self.families, self.requests, self._callers_config).items():
            self.records[name] = structs.replace(self.records[name], differs=difference)

    def _callers_config(self, family: FamilyDeclaration) -> CompileConfig | None:
        """Return how callers' sources are compiled; None if their compiler is not here."""
        try:
            nvrtc = self._find("nvrtc")
        except ToolchainError:
            return None
        plain = replace(family, is_auto=False, toolchain="nvrtc", architectures=(lowest_base(family.architectures),))
        return _config(plain, nvrtc, self._files, family.source_options(), ())

    @cached_property
    def _by_key(self) -> dict[FragmentKey, CompileRequest]:
        return {request.key: request for request in self.requests}

    def unknown_defaults(self) -> list[Diagnostic]:
        """Return advice on free parameters of a table ``tune`` whose default no fragment has."""
        values = {(key.family, *each) for key in self._by_key for each in key.parameters}
        code, hint = "family-tune-default", "correct free or the matrix"
        return [
            Diagnostic.at(
                family.place(group, "tune", "free", name),
                f"no fragment of {family.name}/{group.name} has the default {name}={value}",
                code, Severity.WARNING, hint=hint,
            )
            for family in self.families
            for group in family.groups
            for name, value in (group.tune.free if group.tune else ())
            if not any((each, name, value) in values for each in (family.name, *family.all_used()))
        ]  # fmt: skip

    def origin(self, key: FragmentKey, name: str) -> Location | None:
        """Return where the source of a fragment first mentions a name."""
        if (request := self._by_key.get(key)) is None:
            return next((rendered.origin for rendered, _ in self.binaries if rendered.key == key), None)
        texts = {**request.config.own_texts(request.rendered), **request.config.interface_headers()}
        mention = re.compile(rf"\b{re.escape(name or '__global__')}\b(?!\.)".encode())
        found = ((file, mention.search(text)) for file, text in texts.items())
        file, line = next(((f, texts[f].count(b"\n", 0, m.start()) + 1) for f, m in found if m), ("", 0))
        return replace(request.place(file, line), about=request.rendered.about) if file else request.rendered.place(1)

    def value(self, key: FragmentKey, name: str) -> Location | None:
        """Return where a matrix has a fragment's value of a parameter."""
        rendered = (each for each in self.rendered if each.key == key)
        found = next((each.matrix.find(name, each.combination[name]) for each in rendered), None)
        return found if isinstance(found, Location) else None

    def show(self, key: FragmentKey, symbol: str) -> tuple[Diagnostic, ...]:
        """Return how a fragment's interfaces and its source declare a symbol."""
        if (request := self._by_key.get(key)) is None:  # a binary
            return ()
        own = request.config.own_texts(request.rendered)
        return show_sides(base_name(symbol), request.config.interface_headers(), own, request.place)


def _read_binary(rendered: RenderedSource) -> bytes:
    """Return the content of a file that a binary renders to; a BuildError if it cannot be read."""
    try:
        return files.read(rendered.text)
    except (OSError, ValueError) as error:
        what = f"{rendered.text} cannot be read: {getattr(error, 'strerror', error)}"
        path = Path(rendered.text)
        hint = f"{suggest_file(path.name, [path.parent])} the path is relative to family.toml".lstrip()
        raise BuildError(what, code="build-binary-unreadable", where=rendered.origin, hint=hint) from None


def _check_reproducible(requests: Iterable[CompileRequest]) -> None:
    """Check that no template or header of a family uses the clock: BuildError at the first ``__DATE__`` or the like."""
    checked: set[bytes] = set()  # headers of earlier sources
    for request in requests:
        source = request.own_closure
        headers = {name: text for name, text in source.headers.items() if text not in checked}
        checked.update(headers.values())
        for name, text in ((f"{request.key}.cu", request.rendered.text.encode()), *headers.items()):
            if match := _CLOCK.search(text):
                what = f"{match[0].decode()} makes every build different"
                where = request.place(name, text.count(10, 0, match.start()) + 1)
                hint = "pass the value through the matrix, or as an option -DNAME=value"
                raise BuildError(what, code="build-not-reproducible", where=where, hint=hint)


def _config(
    family: FamilyDeclaration,
    toolchain: Toolchain,
    files: dict[str, bytes],
    options: tuple[str, ...],
    archs: tuple[Architecture, ...],
    cubin_options: tuple[str, ...] = (),
    differing: tuple[Architecture, ...] = (),
) -> CompileConfig:
    """Return how the groups of a family that have the same options and architectures are compiled.

    Headers that were read for others are taken from ``files``. LTO-IR is added for the ``differing`` architectures for
    which the code differs, as cubins for them would mean something else.
    """
    is_nvcc = toolchain.name == "nvcc"
    own = header_search(family, files)
    system = toolchain.header_roots()
    search = header_search(family, files, system=system, strict=not is_nvcc, as_written=is_nvcc)
    every = tuple(sorted({*family.architectures, *archs}))
    forms = family.image_forms(every)
    how = CompileConfig(toolchain, search, own, every, options, forms, family.interfaces, cubin_options=cubin_options)
    if not (family.is_auto or differing):
        return how
    linker, candidates = nvjitlink.version(), {every[0], *(each for each in differing if not each.suffix)}
    if family.is_auto:
        candidates |= {*comparable_architectures(every[0], toolchain.version, linker)}
    return replace(how, candidates=tuple(sorted(candidates)), linker=linker)


def header_search(family: FamilyDeclaration, files: dict[str, bytes] | None = None, **how: Any) -> HeaderSearch:
    """Return the search for a family's headers, in which the generated ones are empty."""
    return HeaderSearch(family.include, {name: b"" for name, _ in family.generated}, files=files, **how)


def render(
    family: FamilyDeclaration,
    files: dict[str, bytes] | None = None,
    on_warning: Callable[[Diagnostic], object] = lambda _: None,
) -> Iterator[RenderedSource]:
    """Render a family as :func:`render_family`, each source with the generated headers that it may include."""
    search = header_search(family, files)
    for each in render_family(family, on_warning=on_warning):
        if family.generated:
            search.closure(each.source.encode(), each.headers)  # looks them up
        yield each


def _names_architectures(config: CompileConfig, rendered: RenderedSource) -> bool:
    """Return whether a source, a header of the family or an option may mean something else for each architecture."""
    source = config.own_closure(rendered)
    texts = source.text, *source.headers.values(), *map(str.encode, config.options)
    return any(map(_ARCHITECTURES.search, texts))


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
            where = find_place(family.path, ("family",), "name")
            raise FamilyError(what, code="family-duplicate", where=where, hint=hint)
    return tuple(found.values())


def _choose_headers(
    family: FamilyDeclaration, include: bytes, files: dict[str, bytes] | None
) -> dict[Values, Mapping[str, bytes]]:
    """Return the headers of the interfaces for each choice of the values on which generated ones among them depend."""
    closure = header_search(family, files).closure
    plain = closure(include).headers
    if plain.keys().isdisjoint(dict(family.generated)):
        return {(): plain}
    common, needed = set[str].intersection(*(set(group.key) for group in family.groups)), set[str]()
    found = {}
    for each in render_family(family):
        values = tuple((name, each.combination[name]) for name in sorted(common))
        try:
            found[values] = headers = closure(include, each.headers).headers
        except RenderError as error:
            if error.code == "render-undefined":
                error.hint = f"{error.hint}; what an interface includes is rendered for every entrypoint and group"
            raise
        closure(each.source.encode(), each.headers)  # those that it may include
        for header in sorted(each.headers.keys() & headers.keys()):
            used = each.headers.templates[header].used & each.combination.keys()
            needed |= used
            if name := min(used - common, default=""):
                other = next(group.name for group in family.groups if name not in group.key)
                what = f"{header} depends on {name}, and an interface includes it: {name} is not in the key of {other}"
                template = each.headers.templates[header].path
                where = Location(str(template), line_of(template.read_bytes(), name))
                hint = f"add {name} to the key of every entrypoint and group, or include {header} in no interface"
                raise FamilyError(what, code="family-interface-parameter", where=where, hint=hint)
    if not found:
        what, hint = "an interface is rendered for no values", "declare it in families that have groups with a matrix"
        raise FamilyError(what, code="family-interface-parameter", where=str(family.path), hint=hint)
    return {tuple(each for each in values if each[0] in needed): headers for values, headers in found.items()}


def family_record(family: FamilyDeclaration, files: dict[str, bytes] | None = None) -> FamilyRecord:
    """Return the record of a family for the run side: its groups, and its own headers that its interfaces include.

    Args:
        family: The declaration.
        files: Contents of headers that were read, and are not read again.

    Raises:
        FamilyError: If an interface header is not in the family's include directories.
    """
    search = header_search(family, files)
    for group in family.groups:
        if group.interface and search.find(group.interface) is None:
            what = f"interface {group.interface!r} does not exist"
            where = family.place(group, "interface")
            hint = f"searched in {', '.join(map(str, family.include))}"
            raise FamilyError(what, code="family-interface", where=where, hint=hint)
    names = [*family.interfaces]
    if STD_HEADERS in family.include:  # callers' sources may include them too
        names += sorted(each.name for each in STD_HEADERS.iterdir())
    include = "".join(f'#include "{name}"\n' for name in names)
    choices = _choose_headers(family, include.encode(), files)
    try:
        texts = {v: {(name, text.decode()) for name, text in headers.items()} for v, headers in choices.items()}
    except UnicodeDecodeError as error:
        name = next(name for headers in choices.values() for name in headers if headers[name] == error.object)
        what, hint = f"header {name!a} of an interface is not UTF-8", "save it as UTF-8"
        raise FamilyError(what, code="family-interface", where=str(family.path), hint=hint) from None
    common = set.intersection(*texts.values())
    groups = [
        GroupRecord(g.name, g.role, g.key, g.interface, g.supplied, g.tune, g.sass_registers) for g in family.groups
    ]
    return FamilyRecord(
        family.name,
        family.source_options(),
        family.link,
        family.architectures,
        tuple(groups),
        tuple(sorted(common)),
        tuple(sorted(family.all_used())),
        family.version,
        family.interfaces,
        choices=tuple(InterfaceHeaders(v, tuple(sorted(texts[v] - common))) for v in sorted(texts) if v),
    )


def family_files(families: Iterable[FamilyDeclaration]) -> list[Path]:
    """List the files that building families may read, but for jitlto's own, as absolute paths; sorted.

    They are declarations and matrices, all in the directories of templates and headers, and what rendered sources name
    elsewhere: outside the directories, hidden, or behind links.

    Raises:
        JitltoError: If a family cannot be rendered.
    """
    every: set[Path] = set()
    for family in families:
        named, folders = declared_places(family)
        below = walk(sorted({*folders, *family.include}), thorough=False)
        every.update(named, (Path(path) for path, is_folder in below if not is_folder))
        search, names = header_search(family), set[str]()
        for each in render(family):
            if each.group.binary:
                every.add(Path(each.text))
            else:
                names |= search.closure(each.source.encode(), each.headers).headers.keys()
        every.update(filter(None, map(search.path, names)))
    own = {path for path in every if path.is_file() and STD_HEADERS not in path.parents}  # reading a FIFO would block
    return sorted({files.normal_path(path.absolute()) for path in own})


def declared_places(family: FamilyDeclaration) -> tuple[set[Path], set[Path]]:
    """Return the files that a declaration names, itself too, and the directories of its templates."""
    templates = {group.template for group in family.groups if group.template}
    templates |= {template for _, template in family.generated}
    matrices = {group.matrix for group in family.groups if group.matrix}
    return {family.path, *matrices, *templates}, {*family.templates, *(each.parent for each in templates)}
