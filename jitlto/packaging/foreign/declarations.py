"""Families from the calls of ``generate_jit_lto_kernels`` in a project."""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jitlto.base.errors import ForeignBuildError
from jitlto.packaging.foreign.calls import FUNCTION, Call, choose_key, read_call
from jitlto.packaging.foreign.cmake import RecordedCall
from jitlto.packaging.foreign.compiler_flags import Flags, join_options, split_command_line
from jitlto.record.fragment import Role
from jitlto.record.options import GROUP_LINK_OPTIONS

# Directories whose names say what is in them, and not what it is for.
_GENERIC = {"jit_lto_kernels", "jit_lto", "jit", "kernels", "kernel", "templates", "src", "source", "detail", "impl",
            "fragments", "cuda", "cpp", "lib", "include", ""}  # fmt: skip
# What stands for a library that the project does not declare.
_MISSING = "JITLTO_MISSING"


@dataclass
class Group:
    """A group, from the calls with one template and the same options.

    Args:
        matrix: The file, or the text of a file to be written.
        flags: The options that calls have beside those of their libraries.
    """

    name: str
    role: Role
    template: Path
    matrix: Path | str
    key: tuple[str, ...]
    flags: Flags


@dataclass
class Family:
    """A family, from the calls whose templates lie in one directory."""

    name: str
    groups: list[Group] = field(default_factory=list)
    include: list[Path] = field(default_factory=list)
    standard: int = 17
    architectures: list[int] = field(default_factory=list)
    flags: Flags = field(default_factory=Flags)
    uses: list[str] = field(default_factory=list)


def make_families(recorded: Sequence[RecordedCall], source: Path) -> tuple[list[Family], list[str]]:
    """Make families from recorded calls.

    Args:
        source: The directory of the project.

    Returns:
        The families, sorted by name, and what could not be taken over.

    Raises:
        ForeignBuildError: If there is no call, or one lacks an argument or names a file that does not exist.
        MatrixError: If a matrix breaks a rule.
    """
    calls = [read_call(each) for each in recorded]
    if not calls:
        hint = "name the CMakeLists.txt that calls it; a call in an if() that is not taken needs its option: -D NAME=ON"
        raise ForeignBuildError(f"no call of {FUNCTION}", code="import-no-call", where=str(source), hint=hint)
    notes: list[str] = []
    names = _name_families({call.template.parent for call in calls}, source)
    families = {name: Family(name) for name in sorted(names.values())}
    for call in calls:
        notes += _require(families[names[call.template.parent]], call.recorded)
    for name, family in families.items():
        own = [call for call in calls if names[call.template.parent] == name]
        family.groups += [group for same in _alike(own) for group in _groups(same)]
    _share(list(families.values()))
    for family in families.values():
        notes += _unite_link_options(family)
        for flags in (family.flags, *(group.flags for group in family.groups)):
            family.include += flags.include
            notes += [f"{family.name}: {dropped}: left out" for dropped in flags.dropped]
        notes += [f"{family.name}: no directory {path}: left out" for path in family.include if not path.is_dir()]
        family.include = [path for path in dict.fromkeys(family.include) if path.is_dir()]
    return list(families.values()), list(dict.fromkeys(notes))


def _require(family: Family, call: RecordedCall) -> Iterable[str]:
    """Add to a family what a call compiles with; yield what is unknown."""
    family.include += map(Path, dict.fromkeys(call.include))
    for definition in dict.fromkeys(each.removeprefix("-D") for each in call.definitions):
        name, _, value = definition.partition("=")
        if name == _MISSING:
            yield f"{value} is not known without the project's dependencies: see --include and --option"
        else:
            family.flags.add(f"-D{definition}")
    own = split_command_line(call.arguments.get("CMAKE_CUDA_FLAGS", ""))
    for option in (*join_options(call.options), *join_options(own)):
        family.flags.add(option)
    standards = [
        call.arguments.get("CMAKE_CUDA_STANDARD", ""),
        *(re.sub("^(cuda|cxx)_std_", "", f) for f in call.features),
    ]
    family.standard = max(family.standard, *(int(each) for each in standards if each.isdecimal()), 0)
    for architecture in call.arguments.get("CMAKE_CUDA_ARCHITECTURES", "").split(";"):
        if match := re.fullmatch(r"(\d{2,3})(?:-real|-virtual)?", architecture):
            family.architectures.append(int(match[1]))


def _unite_link_options(family: Family) -> Iterable[str]:
    """Move the link options that groups may not have to the family if all have them; yield those that are left out."""
    links = [group.flags.link for group in family.groups]
    for name in sorted({name for link in links for name in link} - set(GROUP_LINK_OPTIONS)):
        values = [link.pop(name, None) for link in links]
        if all(value == values[0] for value in values) and values[0] is not None:
            family.flags.link.setdefault(name, values[0])
        else:
            yield f"{family.name}: {name}, which only some groups have, cannot differ by group: left out"


def _name_families(directories: Iterable[Path], source: Path) -> dict[Path, str]:
    """Name families after the directories of their templates: by the last part that says what they are for."""
    names: dict[Path, str] = {}
    for directory in sorted(directories):
        parts = Path(os.path.relpath(directory, source)).parts
        telling = [part for part in parts if part.lower() not in _GENERIC and part.strip(".")]
        name = ""
        for part in reversed(telling or [source.name or "kernels"]):
            name = f"{part}_{name}" if name else part
            if name not in names.values():
                break
        names[directory] = re.sub(r"^(?=[^A-Za-z_])", "_", re.sub(r"[^A-Za-z0-9_.-]", "_", name))
    return names


def _alike(calls: Iterable[Call]) -> list[list[Call]]:
    """Put calls together that differ in their matrices, and in variables of CMake that the template uses: a loop."""
    together: dict[object, list[Call]] = {}
    for call in calls:
        parameters = frozenset(frozenset(each) for each in call.combinations)
        one = call.template, repr(call.flags), parameters
        if all(other.combinations != call.combinations for other in together.setdefault(one, [])):
            together[one].append(call)
    return list(together.values())


def _groups(calls: Sequence[Call]) -> Iterable[Group]:
    """Make one group of calls with one template, or several if their combinations are not distinct."""
    first = calls[0]
    combinations = [each for call in calls for each in call.combinations]
    if len({tuple(sorted(each.items())) for each in combinations}) < len(combinations):
        for call in calls:
            yield from _groups([call])
        return
    matrix: Path | str
    if len(calls) == 1 and isinstance(first.matrix, Path) and not first.constants:
        matrix = first.matrix
    else:
        documents = [call.document() for call in calls]
        document = documents[0] if len(calls) == 1 else documents
        matrix = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    varying = [name for name in first.constants if len({call.constants[name] for call in calls}) > 1]
    key = choose_key([*varying, *(name for call in calls for name in call.named)], combinations, first.placeholders)
    name = first.name if len(calls) == 1 else first.template.name.partition(".")[0]
    yield Group(name, first.role, first.template, matrix, key, first.flags)


def _share(families: Sequence[Family]) -> None:
    """Let families with kernels use those without, and give groups names that occur once."""
    shared = [family for family in families if all(group.role is Role.DEVICE for group in family.groups)]
    common: set[str] = set()
    for family in sorted(families, key=lambda family: family not in shared):
        taken = common if family in shared else set(common)
        for group in family.groups:
            stem = group.template.name.partition(".")[0]
            names = (group.name, stem, *(f"{group.name}_{number}" for number in range(2, len(family.groups) + 99)))
            group.name = next(name for name in names if name not in taken)
            taken.add(group.name)
    if len(shared) < len(families):
        for family in families:
            family.uses = [] if family in shared else [other.name for other in shared]
