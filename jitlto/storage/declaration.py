"""Families as authors declare them: from ``family.toml`` to :class:`Family` and :class:`Group`."""

from __future__ import annotations

import difflib
import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jitlto.errors import FamilyError, JitltoError
from jitlto.model.fragment import ImageKind, Role, is_name
from jitlto.model.options import LinkOptions, touches_files
from jitlto.model.versions import Architecture
from jitlto.storage.toml_reader import Tables

#: Names that a configuration cannot use for a parameter, since planners take them as arguments of their own.
RESERVED = frozenset({"arch", "entry", "link_mode", "link_options", "database", "self"})

_FAMILY_KEYS = ("name", "std", "include", "archs", "toolchain", "options", "images", "syntax")
_GROUP_KEYS = ("matrix", "template", "key", "params", "interface", "entry", "syntax")
# Compile-time options that nvJitLink ignores, or that LTO refuses, and what stands for them in [link].
_LINK_ONLY = {
    "-maxrregcount": "max_registers", "--maxrregcount": "max_registers",
    "-use_fast_math": "fast_math", "--use_fast_math": "fast_math",
    "-ftz": "ftz", "--ftz": "ftz", "-prec-div": "prec_div", "--prec-div": "prec_div",
    "-prec-sqrt": "prec_sqrt", "--prec-sqrt": "prec_sqrt", "-fmad": "fma", "--fmad": "fma",
    "-Xptxas": "ptxas", "--ptxas-options": "ptxas", "-O0": "optimization", "-O3": "optimization",
    "-lineinfo": "lineinfo", "--generate-line-info": "lineinfo",
}  # fmt: skip
_REFUSED = {
    **dict.fromkeys(
        ("-include", "--pre-include", "-pch", "--pch", "-create-pch", "--create-pch", "-use-pch", "--use-pch",
         "-pch-dir", "--pch-dir", "-time", "--time", "--fdevice-time-trace", "-fdevice-time-trace", "--frandom-seed",
         "-frandom-seed"),
        "it reads or writes files, or changes names, of which a build must not depend",
    ),
    "-G": "device debugging and link-time optimisation exclude each other",
    "--device-debug": "device debugging and link-time optimisation exclude each other",
    "-arch": "architectures are declared as archs", "--gpu-architecture": "architectures are declared as archs",
    "-I": "header directories are declared as include", "--include-path": "header directories are declared as include",
    "-std": "the language standard is declared as std", "--std": "the language standard is declared as std",
    "-dlto": "LTO-IR is always made", "--dlto": "LTO-IR is always made",
    "-rdc": "code is always relocatable", "--relocatable-device-code": "code is always relocatable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The fragments made from one matrix and one template, as declared.

    Parameters
    ----------
    name : str
        The group's name.
    role : Role
        Entrypoint or device.
    matrix, template : Path or None
        Both None for a device group that callers supply at run time.
    key : tuple of str
        The parameters that tell its fragments apart.
    params : tuple of str
        Kernel parameters, ``type name`` each, with ``{{parameter}}`` placeholders; entrypoints only.
    interface : str or None
        The header that declares what the group defines.
    entry : str or None
        Which kernel is meant, where a source defines several: its C++ name without namespaces or arguments.
    syntax : str
        ``jinja`` or ``cmake``.
    """

    name: str
    role: Role
    matrix: Path | None
    template: Path | None
    key: tuple[str, ...]
    params: tuple[str, ...]
    interface: str | None
    entry: str | None
    syntax: str


@dataclass(frozen=True, slots=True)
class Family:
    """A family of kernels, as declared.

    Parameters
    ----------
    name : str
        The family's name.
    path : Path
        Its ``family.toml``.
    std : str
        The C++ standard, e.g. ``c++17``.
    include : tuple of Path
        Directories of its headers.
    architectures : tuple of Architecture
        What LTO-IR is made for, sorted.
    toolchain : str
        ``nvrtc`` or ``nvcc``.
    options : tuple of str
        Further compiler options.
    images : tuple of ImageKind
        What is made: LTO-IR, and PTX unless it is not wanted; sorted.
    link : LinkOptions
        Options of every link.
    groups : tuple of Group
        Sorted by name.
    """

    name: str
    path: Path
    std: str
    include: tuple[Path, ...]
    architectures: tuple[Architecture, ...]
    toolchain: str
    options: tuple[str, ...]
    images: tuple[ImageKind, ...]
    link: LinkOptions
    groups: tuple[Group, ...]

    def compiler_options(self) -> tuple[str, ...]:
        """What the compiler is given, beside the architecture and the kind of output."""
        return (f"--std={self.std}", *self.link.compile_flags(), *self.options)

    def source_options(self) -> tuple[str, ...]:
        """Which of them NVRTC is given for a caller's own source at run time; of nvcc's, macros alone."""
        if self.toolchain == "nvrtc":
            return self.compiler_options()
        macros = [option for option in self.options if option.startswith(("-D", "-U"))]
        return (f"--std={self.std}", *self.link.compile_flags(), *macros)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interface headers of its device groups, sorted."""
        return tuple(sorted({g.interface for g in self.groups if g.interface}))


def roots(base: Path | None = None) -> list[Path]:
    """Where families are looked for by name: directories that hold ``fragments/``, ``matrices/`` and ``templates/``.

    ``base``, by default the working directory, then what jitlto ships: a checkout's top level, or ``share`` in an
    installed wheel.
    """
    package = Path(__file__).resolve().parents[1]
    try:
        candidates = [base or Path.cwd(), package / "share", package.parent]
    except FileNotFoundError:  # the working directory has been removed
        candidates = [package / "share", package.parent]
    return [root for root in dict.fromkeys(candidates) if (root / "fragments").is_dir()]


def available(base: Path | None = None) -> list[str]:
    """The names of the families that :func:`find` finds by name, sorted."""
    return sorted({p.parent.name for root in roots(base) for p in (root / "fragments").glob("*/family.toml")})


def find(name_or_path: str | Path, base: Path | None = None) -> Path:
    """The ``family.toml`` of a family given by name, by its directory or by the file itself.

    Parameters
    ----------
    name_or_path : str or Path
    base : Path, optional
        Stands for the working directory: a path is relative to it, and a name is looked up in ``fragments`` below it
        before the families that jitlto ships.

    Raises
    ------
    FamilyError
        If there is none.
    """
    given = Path(name_or_path) if base is None else base / name_or_path
    if os.path.isfile(given):  # noqa: PTH113 - Path.is_file raises on a name that is too long
        return given
    if os.path.isfile(given / "family.toml"):  # noqa: PTH113
        return given / "family.toml"
    for root in roots(base):
        path = root / "fragments" / name_or_path / "family.toml"
        if os.path.isfile(path):  # noqa: PTH113
            return path
    names = available(base)
    near = difflib.get_close_matches(str(name_or_path), names, 1)
    known = f"did you mean {near[0]}?" if near else f"families found: {', '.join(names) or 'none'}"
    raise FamilyError(
        f"no family {str(name_or_path)!r}",
        hint=f"{known}; or give the path of a family.toml",
    )


def load(path: Path) -> Family:
    """Read one ``family.toml``.

    Raises
    ------
    FamilyError
        If the file cannot be read, is not TOML, or declares something that makes no sense; it names file and table.
    """
    reader = _Reader(path)
    return reader.family(reader.document())


class CompilerTables(Tables):
    """What ``family.toml``, and ``pyproject.toml`` for all families of a package, say of the compiler."""

    def _toolchain(self, where: str, table: Mapping[str, object]) -> str:
        toolchain = self._text(where, table, "toolchain", "nvrtc")
        if toolchain not in ("nvrtc", "nvcc"):
            raise self._error(where, f"unknown toolchain {toolchain!r}", "write nvrtc or nvcc")
        return toolchain

    def _architectures(self, where: str, table: Mapping[str, object]) -> tuple[Architecture, ...]:
        numbers = self._texts(where, table, "archs", ("75",))
        try:
            archs = sorted({Architecture.parse(number) for number in numbers})
        except JitltoError as error:
            raise self._error(where, error.what, error.hint) from None
        if not archs:
            raise self._error(where, "archs is empty", 'write archs = ["75"]')
        return tuple(archs)

    def _options(self, where: str, table: Mapping[str, object]) -> tuple[str, ...]:
        options = self._texts(where, table, "options", ())
        for option in options:
            flag = re.split(r"[=\s]", option.strip(), maxsplit=1)[0]
            flag = "-I" if flag.startswith("-I") else flag
            if flag in _LINK_ONLY:
                raise self._error(
                    where,
                    f"option {option!r} has no effect on LTO-IR: it belongs to the link",
                    f"declare {_LINK_ONLY[flag]} under [link]",
                )
            if flag in _REFUSED:
                raise self._error(where, f"option {option!r} is not allowed: {_REFUSED[flag]}")
            if re.search(r"""["<]\s*/""", option):
                raise self._error(
                    where,
                    f"option {option!r} holds an absolute path: what it names is no part of the family",
                    "give the header's directory under include, and its name relative to it",
                )
            if not option.startswith("-"):
                raise self._error(
                    where,
                    f"option {option!r} does not begin with a dash",
                    "write an option and its value as one string, joined by =",
                )
            if touches_files(option):
                raise self._error(where, f"option {option!r} is not allowed: it reads or writes files")
        return options


class _Reader(CompilerTables):
    """Turns a ``family.toml`` into a Family."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, FamilyError)
        self._directory = path.parent
        # fragments/<family>/family.toml: matrices/ and templates/ lie beside fragments/.
        top = self._directory.parent
        self._root = top.parent if top.name == "fragments" else self._directory

    def family(self, document: Mapping[str, object]) -> Family:
        self._known("", document, ("family", "entrypoint", "device", "link"))
        table = self._table(document, "family")
        self._known("family", table, _FAMILY_KEYS)
        name = self._text("family", table, "name")
        if not is_name(name):
            raise self._error("family", f"name {name!r} is no identifier")
        syntax = self._syntax("family", table, "jinja")
        options = self._table(document, "link", {})
        for option, value in options.items():
            if isinstance(value, int) and abs(value) >= 1 << 31:
                raise self._error("link", f"{option} does not fit into 32 bits")
        try:
            link = LinkOptions.of(options, where="link")
        except JitltoError as error:
            raise self._error(error.where or "link", error.what, error.hint) from None
        groups = [
            self._group(
                role,
                group,
                self._table(self._table(document, role.value, {}), group, where=role.value),
                syntax,
            )
            for role in Role
            for group in self._table(document, role.value, {})
        ]
        if not any(group.role is Role.ENTRYPOINT for group in groups):
            raise self._error("", "no entrypoint", "declare at least one [entrypoint.<group>]")
        names = [group.name for group in groups]
        for group in names:
            if names.count(group) > 1:
                raise self._error(f"device.{group}", f"an entrypoint group is called {group!r} too")
        return Family(
            name,
            self._path,
            self._text("family", table, "std", "c++17"),
            tuple(self._include(d) for d in self._texts("family", table, "include", (".",))),
            self._architectures("family", table),
            self._toolchain("family", table),
            self._options("family", table),
            self._images(table),
            link,
            tuple(sorted(groups, key=lambda group: group.name)),
        )

    def _group(self, role: Role, name: str, table: Mapping[str, object], syntax: str) -> Group:
        where = f"{role}.{name}"
        if not is_name(name):
            raise self._error(where, f"group name {name!r} is no identifier")
        self._known(where, table, _GROUP_KEYS)
        interface = self._interface(where, table)
        supplied = role is Role.DEVICE and "matrix" not in table and "template" not in table
        if supplied and interface is None:
            raise self._error(
                where,
                "neither matrix and template, nor an interface",
                "a group that callers supply at run time declares it in an interface header",
            )
        key = self._texts(where, table, "key", ())
        for parameter in key:
            if not is_name(parameter) or parameter in RESERVED or key.count(parameter) > 1:
                raise self._error(
                    where,
                    f"key parameter {parameter!r} is reserved, repeated or no identifier",
                    f"reserved are {', '.join(sorted(RESERVED))}",
                )
        if role is Role.DEVICE and ("params" in table or "entry" in table):
            raise self._error(where, "params and entry describe a kernel; a device group has none")
        return Group(
            name,
            role,
            None if supplied else self._file(where, table, "matrix", "matrices"),
            None if supplied else self._file(where, table, "template", "templates"),
            key,
            self._texts(where, table, "params", ()),
            interface,
            self._text(where, table, "entry", "") or None,
            self._syntax(where, table, syntax),
        )

    def _interface(self, where: str, table: Mapping[str, object]) -> str | None:
        name = self._text(where, table, "interface", "")
        if os.path.isabs(name) or os.path.normpath(name).startswith(".."):  # noqa: PTH117 - a header's name
            raise self._error(
                where, f"interface {name!r} leaves the include directories", "name it relative to one of them"
            )
        if '"' in name or not name.isprintable():
            raise self._error(where, f"interface {name!r} cannot stand in an #include", "rename the header")
        return name or None

    def _include(self, directory: str) -> Path:
        path = self._directory / directory
        if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            raise self._error(
                "family", f"include directory {directory!r} does not exist", "paths are relative to family.toml"
            )
        return path

    def _images(self, table: Mapping[str, object]) -> tuple[ImageKind, ...]:
        names = self._texts("family", table, "images", tuple(ImageKind))
        if sorted(names) not in (["ltoir"], ["ltoir", "ptx"]):
            raise self._error(
                "family",
                f"images {list(names)} are no choice",
                'write images = ["ltoir", "ptx"], or ["ltoir"] for a database half the size that links with the '
                "compiler's CUDA major alone",
            )
        return tuple(sorted(map(ImageKind, names)))

    def _syntax(self, where: str, table: Mapping[str, object], default: str) -> str:
        syntax = self._text(where, table, "syntax", default)
        if syntax not in ("jinja", "cmake"):
            raise self._error(where, f"unknown syntax {syntax!r}", "write jinja or cmake")
        return syntax

    def _file(self, where: str, table: Mapping[str, object], key: str, folder: str) -> Path:
        name = self._text(where, table, key)
        candidates = (self._directory / name, self._root / folder / name)
        for path in candidates:
            if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
                return path
        raise self._error(
            where, f"{key} {name!r} does not exist", "looked for " + " and ".join(str(path) for path in candidates)
        )
