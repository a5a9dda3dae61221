"""Families as authors declare them in ``family.toml``."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from jitlto.base.diagnostic import Location
from jitlto.base.errors import FamilyError, JitltoError
from jitlto.base.files import normal_path
from jitlto.base.text import suggest, suggest_file
from jitlto.base.toml_reader import TomlTable, find_place, read_toml
from jitlto.base.versions import Architecture
from jitlto.families.matrix import Matrix, load_matrix
from jitlto.families.tuning_rules import read_tune
from jitlto.record.fragment import ImageForm, ImageKind, Role, is_name
from jitlto.record.headers import STD_HEADERS
from jitlto.record.options import LinkOptions, describe_invalid_option, option_macros
from jitlto.record.tuning import TuneRecord

#: Names that no parameter may have, because planners have arguments of these names.
RESERVED = frozenset({"arch", "entry", "link_mode", "link_options", "database", "self"})
_BASE = Architecture(75)  # the lowest that CUDA 13 supports
_TEMPLATE = ".jinja"
# What may be done about a file that is not named, and missing.
_INSTEAD = {
    "matrix": "; or write matrix = {}, if there are no parameters",
    "template": "; or write instantiate for a kernel, binary or supplied = true for a device group",
}
_NAME_RULE = "use letters, digits and _ . -, beginning with a letter or _"


@dataclass(frozen=True, slots=True)
class GroupDeclaration:
    """The fragments made from one matrix and one template, as declared."""

    name: str
    role: Role
    key: tuple[str, ...]  # the parameters that identify a fragment of the group
    interface: str | None  # the header that declares what it defines; "" for none on purpose, None if that is not said
    interface_template: Path | None = None  # of which that is rendered
    syntax: str = "jinja"  # or cmake
    shared: tuple[str, ...] = ()  # key parameters whose values may have the same source
    matrix: Path | None = None  # its file, which is family.toml for one that stands there
    document: object = None  # that one
    template: Path | None = None
    binary: str | None = None  # the path of a compiled file in place of a template, with placeholders
    instantiate: str | None = None  # a kernel of the header named as the group, likewise
    params: tuple[str, ...] = ()  # of the kernel, ``type name`` each, with placeholders
    entry: str | None = None  # the C++ name of the kernel, bare of namespaces and arguments, if a source has several
    options: tuple[str, ...] = ()  # of the compiler, after the family's
    architectures: tuple[Architecture, ...] = ()  # of its LTO-IR beside the family's, sorted
    sass_registers: int | None = None  # most that a thread of its cubins may use
    tune: TuneRecord | None = None  # what may be chosen by measuring; entrypoints only

    @property
    def source(self) -> Path | str | None:
        """The template, or what stands in its place, for messages."""
        return self.template or self.binary or self.instantiate

    @property
    def supplied(self) -> bool:
        """Whether callers supply its functions at run time."""
        return self.source is None

    @property
    def text(self) -> str | None:
        """What is rendered in place of a template, if there is none."""
        if self.instantiate is None:
            return self.binary
        kernel = self.instantiate.removeprefix("::")  # which would go on the decltype
        return f'#include "{self.name}.cuh"\n\ntemplate __global__ decltype({kernel}) {kernel};\n'


@dataclass(frozen=True, slots=True)
class FamilyDeclaration:
    """A family of kernels, as declared."""

    name: str
    path: Path  # the family.toml
    std: str  # the C++ standard, e.g. c++17
    include: tuple[Path, ...]  # directories of its headers, followed by those of the families that it uses
    architectures: tuple[Architecture, ...]  # of its LTO-IR, sorted
    toolchain: str  # nvrtc or nvcc
    options: tuple[str, ...]  # further ones of the compiler
    images: tuple[ImageKind, ...]  # sorted: LTO-IR, and usually PTX
    link: LinkOptions  # of every link
    groups: tuple[GroupDeclaration, ...]  # sorted by name
    uses: tuple[FamilyDeclaration, ...] = ()  # whose device groups its kernels may contain, in the order declared
    is_auto: bool = False  # whether LTO-IR is added for each later architecture for which the code differs
    version: str = ""  # the author's, of what callers see
    sass: tuple[Architecture, ...] = ()  # for which fragments have relocatable cubins, sorted
    opaque: tuple[str, ...] = ()  # types that the interfaces only declare, and into which no fragment looks
    templates: tuple[Path, ...] = ()  # directories in which templates are searched too, likewise
    generated: tuple[tuple[str, Path], ...] = ()  # headers that are rendered, also of families that it uses: template

    def compiler_options(self, group: GroupDeclaration | None = None) -> tuple[str, ...]:
        """Return the compiler's options for a group, without the architecture and the kind of output."""
        own = group.options if group else ()
        return (f"--std={self.std}", *self.link.compile_flags(), *self.options, *own)

    def cubin_options(self, group: GroupDeclaration) -> tuple[str, ...]:
        """Return the options of ptxas for a group's cubins alone; for LTO-IR it has them at the link."""
        limit = (f"--maxrregcount={group.sass_registers}",) if group.sass_registers else ()
        return (*self.link.ptxas, *limit) if self.sass else ()

    def source_options(self) -> tuple[str, ...]:
        """Return NVRTC's options for a caller's own source at run time; nvcc's options are left out, except macros."""
        if self.toolchain == "nvrtc":
            return self.compiler_options()
        macros = [option for option in self.options if option_macros([option]) and not option.startswith("-X")]
        return (f"--std={self.std}", *self.link.compile_flags(), *macros)

    def without_cubins(self) -> FamilyDeclaration:
        """Return it as if it declared nothing about cubins."""
        return replace(self, sass=(), groups=tuple(replace(group, sass_registers=None) for group in self.groups))

    def image_forms(self, architectures: Sequence[Architecture]) -> tuple[ImageForm, ...]:
        """Return the images of a fragment with LTO-IR for some architectures, which are sorted."""
        wanted = {ImageKind.LTOIR: architectures, ImageKind.PTX: architectures[:1], ImageKind.SASS: self.sass}
        return tuple((kind, each) for kind in (*self.images, ImageKind.SASS) for each in wanted[kind])

    def place(self, group: GroupDeclaration, *at: str | int) -> Location:
        """Return the place in its file of a group's table, or of what the names and numbers ``at`` lead to there."""
        return find_place(self.path, (group.role, group.name), *at)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interface headers in the order in which they precede every source, those of used families first."""
        families = (*self.all_used().values(), self)
        return tuple(dict.fromkeys(name for family in families for name in family.own_interfaces))

    @property
    def own_interfaces(self) -> tuple[str, ...]:
        """The interface headers of its own groups; sorted."""
        return tuple(sorted({group.interface for group in self.groups if group.interface}))

    @property
    def has_kernels(self) -> bool:
        """False if its groups are only for families that use it."""
        return any(group.role is Role.ENTRYPOINT for group in self.groups)

    def all_used(self) -> dict[str, FamilyDeclaration]:
        """Return the families that it uses, and those that these use, by name: each behind those that it uses."""
        found: dict[str, FamilyDeclaration] = {}

        def visit(user: FamilyDeclaration) -> None:
            for family in sorted(user.uses, key=lambda each: each.name):
                if family.name not in found:  # a family may be used in many ways
                    visit(family)
                    found[family.name] = family

        visit(self)
        return found


def change_all(
    families: Iterable[FamilyDeclaration], change: Callable[[FamilyDeclaration], FamilyDeclaration]
) -> tuple[FamilyDeclaration, ...]:
    """Return families changed, and in the same way those that they use."""
    known: dict[Path, FamilyDeclaration] = {}

    def changed(family: FamilyDeclaration) -> FamilyDeclaration:
        if family.path not in known:  # a family may be used in many ways
            known[family.path] = replace(change(family), uses=tuple(map(changed, family.uses)))
        return known[family.path]

    return tuple(map(changed, families))


def roots(base: Path | None = None) -> list[Path]:
    """Return the directories in which families are found by name: those with a folder ``fragments/``.

    They are ``base``, by default the working directory, and the directory of the families that jitlto ships: a
    checkout's top level, or ``share`` in an installed wheel.
    """
    package = Path(__file__).resolve().parents[1]
    return [root for root in (base or Path(), package / "share", package.parent) if (root / "fragments").is_dir()]


def list_families(base: Path | None = None) -> list[str]:
    """Return the names of the families that :func:`find_family` finds, sorted."""
    return sorted({p.parent.name for root in roots(base) for p in (root / "fragments").glob("*/family.toml")})


def find_family(name_or_path: str | Path, base: Path | None = None) -> Path:
    """Find the ``family.toml`` of a family by its name, its directory or the file itself.

    Args:
        base: The directory to use instead of the working directory, for relative paths and for names, which are looked
            up in its folder ``fragments`` before the families that jitlto ships.

    Raises:
        FamilyError: If it is not found.
    """
    given = Path(name_or_path) if base is None else base / name_or_path
    named = (root / "fragments" / name_or_path / "family.toml" for root in roots(base))
    if path := _first((given, given / "family.toml", *named)):
        return path
    names = list_families(base)
    hint = suggest(str(name_or_path), names, f"families found: {', '.join(names) or 'none'};")
    hint += " or give the path of a family.toml"
    raise FamilyError(f"no family {str(name_or_path)!r}", code="family-not-found", hint=hint)


def parse_architectures(
    table: TomlTable, archs: Iterable[str] | Literal["auto"], key: str = "archs"
) -> tuple[Architecture, ...]:
    """Parse and sort the key ``archs``, or another; for ``auto``, return the base that is always among them."""
    try:
        return tuple(sorted({Architecture.parse(arch) for arch in archs})) if archs != "auto" else (_BASE,)
    except JitltoError as error:
        raise table.error(f"invalid {key}: {error.what}", error.hint, key) from None


def _check_options(table: TomlTable, options: Iterable[str]) -> None:
    """Check the key ``options``: no option may read files, belong to the link, or conflict with what jitlto sets."""
    for number, option in enumerate(options):
        if fault := describe_invalid_option(option):
            raise table.error(*fault, "options", number, case="option")


_Registers: TypeAlias = Annotated[int, msgspec.Meta(ge=16, le=255)]  # ptxas rounds fewer up, or takes no limit
_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class _FamilyTable(msgspec.Struct):
    name: str | None = None
    archs: tuple[str, ...] | Literal["auto"] = (str(_BASE),)
    toolchain: Literal["nvrtc", "nvcc"] = "nvrtc"
    options: tuple[str, ...] = ()
    version: Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f]{0,100}\Z")] = ""
    std: str = "c++17"
    include: tuple[str, ...] = (".",)
    templates: tuple[str, ...] = ()
    images: tuple[str, ...] = ("ltoir", "ptx")
    sass: tuple[str, ...] = ()
    sass_registers: _Registers | None = None
    syntax: Literal["jinja", "cmake"] = "jinja"
    opaque: tuple[str, ...] = ()
    std_headers: bool = False
    headers: dict[str, str] = {}


class _GroupTable(msgspec.Struct):
    interface: _Text | Literal[False] | None = None
    key: tuple[str, ...] | None = None
    shared: tuple[str, ...] = ()
    matrix: str | dict[str, Any] | list[Any] | None = None
    template: str | None = None
    instantiate: _Text | None = None
    binary: _Text | None = None
    supplied: Literal[True] | None = None
    syntax: Literal["jinja", "cmake"] | None = None
    options: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    sass_registers: _Registers | None = None
    params: tuple[str, ...] = ()
    entry: str | None = None
    tune: dict[str, Any] | None = None


# The keys that say what a group is made from.
_KINDS = {Role.DEVICE: ("binary", "supplied", "template"), Role.ENTRYPOINT: ("instantiate", "template")}


def _check_registers(table: TomlTable, family: _FamilyTable) -> None:
    if "sass_registers" in table.values and not family.sass:
        hint = 'write sass = ["90"] under [family], or remove sass_registers'
        raise table.error("sass_registers is for cubins, and the family has none", hint, "sass_registers")


def load_family(path: Path) -> FamilyDeclaration:
    """Read one ``family.toml``.

    Raises:
        FamilyError: If the file cannot be read, is not TOML or has an invalid declaration, in file and table ``where``.
        MatrixError: If a matrix that tells a group's key breaks a rule.
    """
    return _read(normal_path(Path(path)), (), {})


def _read(path: Path, users: tuple[str, ...], loaded: dict[str, FamilyDeclaration]) -> FamilyDeclaration:
    """Read a ``family.toml`` and those that it uses, unless they are among those ``loaded``, which are added to.

    The ``users`` led to it; both are known by real paths.
    """
    document = read_toml(path, FamilyError)
    users = (*users, os.path.realpath(path))
    document.check_keys(["family", "entrypoint", "device", "link", "use"])
    table = document.table("family", required=False)
    family = table.decode(_FamilyTable)
    name = path.absolute().parent.name if family.name is None else family.name
    if not is_name(name):
        hint = "the directory's is the default; write name under [family], and " if family.name is None else ""
        raise table.error(f"invalid family name {name!r}", hint + _NAME_RULE, "name")
    _check_options(table, family.options)
    _check_registers(table, family)
    if sorted(family.images) not in (["ltoir"], ["ltoir", "ptx"]):
        hint = 'write images = ["ltoir", "ptx"], or ["ltoir"] to link only with the compiler\'s CUDA major'
        raise table.error(f"invalid images {list(family.images)}", hint, "images")
    if not family.archs:
        raise table.error("archs is empty", 'write archs = ["75"]', "archs")
    templates = _directories(table, "templates", family.templates)
    groups = _groups(document, family)
    link = _read_link(document.table("link", required=False), family)
    uses = _uses(document.table("use", required=False), name, [g.name for g in groups], link, users, loaded)
    directories = _directories(table, "include", family.include)
    directories += [directory for used in uses for directory in used.include]
    directories += [STD_HEADERS] if family.std_headers and family.toolchain == "nvrtc" else []  # nvcc has the host's
    include: dict[str, Path] = {}
    for directory in directories:
        include.setdefault(os.path.realpath(directory), directory)
    made = FamilyDeclaration(
        name,
        path,
        family.std,
        tuple(include.values()),
        parse_architectures(table, family.archs),
        family.toolchain,
        family.options,
        tuple(sorted(map(ImageKind, family.images))),
        link,
        groups,
        uses,
        family.archs == "auto",
        family.version,
        parse_architectures(table, family.sass, "sass"),
        family.opaque,
        (*templates, *(directory for used in uses for directory in used.templates)),
    )
    made = replace(made, generated=_generated(table, family, made))
    parameters = {name for each in (made, *made.all_used().values()) for group in each.groups for name in group.key}
    tables = {group.name: document.table(group.role).table(group.name) for group in groups}
    tunes = {name: read_tune(each.table("tune"), parameters) for name, each in tables.items() if "tune" in each.values}
    return replace(made, groups=tuple(replace(group, tune=tunes.get(group.name)) for group in groups))


def _uses(
    table: TomlTable,
    name: str,
    groups: Sequence[str],
    link: LinkOptions,
    users: tuple[str, ...],
    loaded: dict[str, FamilyDeclaration],
) -> tuple[FamilyDeclaration, ...]:
    """Read the table ``use``: the families whose device groups the family ``name`` may call."""
    uses = []
    for used, given in table.values.items():
        if not isinstance(given, str) or not given.isprintable():
            raise table.error(f"{used} is not a path", f'write {used} = "../{used}/family.toml"', used, case="use")
        path = table.path.parent / given
        path = Path(os.path.realpath(path / "family.toml" if os.path.isdir(path) else path))  # noqa: PTH112 - any text
        if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises on a name that is too long
            hint = f'give the path of its family.toml, such as "../{used}/family.toml"'
            raise table.error(f"{used}: {path} does not exist", hint, used, case="missing-file")
        place = str(path)
        if place in users:
            raise table.error(f"{path} uses this family", "move what both use into a third", used, case="use")
        if place not in loaded:
            loaded[place] = _read(path, users, loaded)
        family = loaded[place]
        if family.name != used:
            hint = f"write {family.name} = {given!r}"
            raise table.error(f"{used} is the family {family.name!r}, declared in {path}", hint, used, case="use")
        if family.link.compile_flags() != link.compile_flags():
            what = f"{used} is compiled with other arithmetic options or line information than {name}"
            raise table.error(what, "give both the same in [link]", used, case="use")
        if missing := [each for each in family.link.libraries if each not in link.libraries]:
            raise table.error(f"{used} needs libraries {missing}", "name them under [link] here, too", used, case="use")
        uses.append(family)
    owners = dict.fromkeys(groups, name)
    known: dict[str, FamilyDeclaration] = {}
    for each in (other for family in uses for other in (family, *family.all_used().values())):
        if known.setdefault(each.name, each) is not each:
            what = f"{each.name} is declared in {known[each.name].path} and in {each.path}"
            raise table.error(what, "have all families use one of them", each.name, case="use")
        for group in each.groups:
            if (owner := owners.setdefault(group.name, each.name)) != each.name:
                what = f"both {owner} and {each.name} have a group {group.name!r}"
                raise table.error(what, "rename one of them", each.name, case="use")
    return tuple(uses)


def _read_link(table: TomlTable, family: _FamilyTable) -> LinkOptions:
    try:
        link = LinkOptions.from_mapping(table.values)
    except JitltoError as error:
        about = [name for name in table.values if name in error.what]
        raise table.error(error.what, error.hint, *about[:1], case="link-option") from None
    if link.tiered and not family.sass:
        hint = 'write sass = ["90"] under [family], or remove tiered'
        raise table.error("tiered is for families with cubins, and this one has none", hint, "tiered")
    return link


def _groups(document: TomlTable, family: _FamilyTable) -> tuple[GroupDeclaration, ...]:
    """Read the tables of all groups; return them sorted by name."""
    groups = [
        _group(role, role_table.table(name), family)
        for role in Role
        for role_table in [document.table(role.value, required=False)]
        for name in role_table.values
    ]
    if not groups:
        hint = "declare at least one [entrypoint.<group>], or the [device.<group>]s that other families use"
        raise document.error("no entrypoint", hint, case="no-entrypoint")
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            other = document.table("device").table(name)
            raise other.error(f"duplicate group {name!r}: an entrypoint has the same name", case="duplicate-group")
    return tuple(sorted(groups, key=lambda group: group.name))


def _group(role: Role, table: TomlTable, family: _FamilyTable) -> GroupDeclaration:
    name = table.names[-1]
    if not is_name(name):
        raise table.error(f"invalid group name {name!r}", _NAME_RULE)
    given = table.decode(_GroupTable)
    syntax = given.syntax or family.syntax
    templates, default = _places(table, "templates", family.templates), ".cu.jinja" if syntax == "jinja" else ".cu.in"
    template = name + default if given.template is None else given.template
    kind = _kind(role, table, _first(place / template for place in templates) is not None)
    _check_options(table, given.options)
    _check_registers(table, family)
    interface, rendered = given.interface and _header(table, "interface", given.interface, "interface"), None
    if interface and interface.endswith(_TEMPLATE):
        rendered = _find_file(table, "interface", interface, templates)
        interface = interface.removesuffix(_TEMPLATE)
    header, directories = f"{name}.cuh", [table.path.parent / each for each in family.include]
    if interface is None and role is Role.DEVICE and _first(place / header for place in directories):
        interface = header
    if kind == "supplied" and not interface:
        hint = "name the header that declares what callers supply"
        raise table.error("missing key 'interface'", hint, case="missing-key")
    if kind == "instantiate" and header not in family.headers:
        _find_file(table, "header", header, directories)
    source = _find_file(table, "template", template, templates) if kind == "template" else None
    is_compiled = kind in ("template", "instantiate")
    kernel = (given.instantiate or "").partition("<")[0].rpartition("::")[2].strip()
    entry = given.entry or (kernel if kernel.isidentifier() else None)  # the header may have other kernels
    matrix = f"{name}.json" if given.matrix is None and is_compiled else given.matrix
    path = None if matrix is None else table.path
    if isinstance(matrix, str):
        path, matrix = _find_file(table, "matrix", matrix, _places(table, "matrices")), None
    group = GroupDeclaration(
        name,
        role,
        given.key or (),
        "" if interface is False else interface,
        rendered,
        syntax,
        given.shared,
        path,
        matrix,
        source,
        str(normal_path(table.path.parent / given.binary)) if given.binary else None,
        given.instantiate,
        given.params,
        entry,
        given.options,
        parse_architectures(table, given.archs),
        given.sass_registers or family.sass_registers if is_compiled else None,
    )
    if given.key is None and (combined := read_matrix(group)).count > 1:
        group = replace(group, key=combined.names)
    _check_key(table, group.key, group.shared)
    return group


def read_matrix(group: GroupDeclaration) -> Matrix:
    """Read and check the matrix of a group; without one, return that of the empty combination.

    Raises:
        MatrixError: If it cannot be read, or breaks a rule.
    """
    if group.document is not None and (path := group.matrix):
        table = group.role, group.name
        return Matrix(group.document, place=lambda at: find_place(path, table, "matrix", *at.split("/")[1:]))
    return load_matrix(group.matrix) if group.matrix else Matrix({})


def _kind(role: Role, table: TomlTable, has_template: bool) -> str:
    """Return the key of what a group is made from, and check that the table has no others but those that go with it."""
    kinds, given = _KINDS[role], table.values
    kind = next((each for each in kinds if each in given), "template")
    # A device group with an interface alone.
    if "supplied" in kinds and given.get("interface") and given.keys().isdisjoint({*kinds, "matrix"}):
        kind = "template" if has_template else "supplied"
    known = {"interface", "key", "shared", kind, *(("matrix", "syntax") if kind != "supplied" else ())}
    known |= {"options", "archs", "sass_registers"} if kind in ("template", "instantiate") else set()
    known |= {"params", "entry", "tune"} if role is Role.ENTRYPOINT else set()
    for key in given:
        if key not in known:
            what = "an entrypoint" if role is Role.ENTRYPOINT else "a device group"
            what += f" with {kind}" if kind in given else ""
            hint = f"it may have {', '.join(sorted(known))}"
            raise table.error(f"{what} has no key {key!r}", hint, key, case="unknown-key")
    return kind


def _check_key(table: TomlTable, key: Sequence[str], shared: Iterable[str]) -> None:
    for number, parameter in enumerate(key):
        if not is_name(parameter) or parameter in RESERVED or key.count(parameter) > 1:
            what = f"key parameter {parameter!r} is reserved, repeated or not an identifier"
            raise table.error(what, f"reserved are {', '.join(sorted(RESERVED))}", "key", number)
    for number, parameter in enumerate(shared):
        if parameter not in key:
            hint = suggest(parameter, key, f"key is {list(key)}")
            raise table.error(f"shared names {parameter!r}, which is not in key", hint, "shared", number)


def _header(table: TomlTable, key: str, name: str, *at: str) -> str:
    plain = os.path.normpath(name)
    if plain.startswith(("/", "..")) or '"' in name or not name.isprintable():
        what = f"{key} {name!r} leaves the include directories, or cannot stand in an #include"
        raise table.error(what, "rename the header, or name it relative to one of them", *at, case=key)
    return plain


def _generated(table: TomlTable, family: _FamilyTable, made: FamilyDeclaration) -> tuple[tuple[str, Path], ...]:
    """Read the key ``headers``; no file may have the name of one in the directories of headers."""
    found = dict(header for used in made.uses for header in used.generated)
    found |= {g.interface: g.interface_template for g in made.groups if g.interface and g.interface_template}
    for name, template in family.headers.items():
        plain = _header(table, "header", name, "headers", name)
        if plain != name:  # two spellings of one file would be two headers
            what = f"header {name!r} is not a plain path"
            raise table.error(what, f"write {plain!r}", "headers", name, case="header")
        found[name] = _find_file(table, "headers", template, _places(table, "templates", family.templates))
    for name, directory in ((name, directory) for name in found for directory in made.include):
        if os.path.exists(directory / name):  # noqa: PTH110 - Path.exists raises on a name that is too long
            what = f"header {name!r} is rendered from {found[name]}, and a file in {directory}, too"
            raise table.error(what, "rename one of them", "headers", name, case="header")
    return tuple(found.items())


def _directories(table: TomlTable, key: str, names: Sequence[str]) -> list[Path]:
    paths = [normal_path(table.path.parent / name) for name in names]
    for number, path in enumerate(paths):
        if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            what = f"{key}: directory {names[number]!r} does not exist"
            raise table.error(what, "paths are relative to family.toml", key, number, case="missing-file")
    return paths


def project_root(path: Path) -> Path:
    """Return the directory in which the folders ``matrices`` and ``templates`` of a ``family.toml`` are looked for."""
    directory = path.parent
    # fragments/<family>/family.toml: they lie beside fragments/.
    return Path(os.path.normpath(directory / "../..")) if directory.absolute().parent.name == "fragments" else directory


def _places(table: TomlTable, folder: str, further: Iterable[str] = ()) -> list[Path]:
    """Return where files are looked for: beside ``family.toml``, in a folder beside ``fragments/``, in further ones."""
    beside, below = table.path.parent, project_root(table.path) / folder
    return [beside, below, below / beside.absolute().name, *(beside / each for each in further)]


def _first(candidates: Iterable[Path]) -> Path | None:
    return next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113 - of any length


def _find_file(table: TomlTable, key: str, name: str, places: Sequence[Path]) -> Path:
    candidates = [normal_path(place / name) for place in places]
    if path := _first(candidates):
        return path
    hint = f"{suggest_file(name, places)} looked for {' and '.join(map(str, candidates))}".strip()
    hint += _INSTEAD.get(key, "") if key not in table.values else ""
    raise table.error(f"{key} {name!r} does not exist", hint, key, case="missing-file")
