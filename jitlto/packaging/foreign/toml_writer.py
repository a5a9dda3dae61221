"""``family.toml`` of the families of another build system."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterable, Mapping
from pathlib import Path

from jitlto.base.errors import ForeignBuildError
from jitlto.packaging.foreign.declarations import Family, Group
from jitlto.record.fragment import Role


def family_files(family: Family, directory: Path, origin: str) -> dict[Path, str]:
    """Return the files of a family, by path below ``directory``: its declaration, and matrices that have no file.

    Args:
        directory: Of all families, each in a folder of its own. Files of the project are named relative to it.
        origin: What the declaration was made from, for a comment.

    Raises:
        ForeignBuildError: If a name is not UTF-8, which TOML has to be.
    """
    folder = directory / family.name
    files: dict[Path, str] = {}
    lines = [
        f"# Made from {origin} by `jitlto import cmake`. Names, keys and interfaces are yours to improve.",
        "[family]",
        _line("name", family.name),
        _line("toolchain", "nvcc"),
        _line("syntax", "cmake"),
        _line("std", f"c++{family.standard}"),
        _line("include", [_relative(path, folder) for path in family.include] or ["."]),
    ]
    if family.architectures:
        lines.append(_line("archs", [str(min(family.architectures))]))
    if family.flags.options:
        lines.append(_line("options", family.flags.options))
    if family.uses:
        lines += ["", "[use]", *(_line(name, f"../{name}/family.toml") for name in family.uses)]
    if family.flags.link:
        lines += ["", "[link]", *_lines(family.flags.link)]
    for group in sorted(family.groups, key=lambda group: (group.role is Role.DEVICE, group.name)):
        matrix = folder / f"{group.name}.json"
        if isinstance(group.matrix, str):
            files[matrix] = group.matrix
        else:
            matrix = group.matrix
        lines += _group_lines(group, _relative(matrix, folder), _relative(group.template, folder), family)
    files[folder / "family.toml"] = "\n".join(lines) + "\n"
    for path, text in files.items():
        try:
            (str(path) + text).encode()
        except UnicodeEncodeError:
            what, hint = "the name of a file or an argument of a call is not UTF-8", "rename the file"
            raise ForeignBuildError(what, code="import-invalid-call", where=str(path), hint=hint) from None
    return files


def _group_lines(group: Group, matrix: str, template: str, family: Family) -> Iterable[str]:
    table = f"{group.role.value}.{json.dumps(group.name) if '.' in group.name else group.name}"
    yield from ("", f"[{table}]", _line("matrix", matrix), _line("template", template), _line("key", list(group.key)))
    if options := [option for option in group.flags.options if option not in family.flags.options]:
        yield _line("options", options)
    if group.role is Role.DEVICE:
        yield "interface = false  # better: the header that declares what the group defines"
    if group.flags.link:
        yield from ("", f"[{table}.link]", *_lines(group.flags.link))


def _lines(values: Mapping[str, object]) -> list[str]:
    return [_line(name, value) for name, value in sorted(values.items())]


def _line(name: str, value: object) -> str:
    # JSON's texts, numbers, booleans and arrays are TOML's, except that TOML has no surrogates and escapes DEL.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{json.dumps(name) if '.' in name else name} = {text}"


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
