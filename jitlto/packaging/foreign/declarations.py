"""Families from the calls of ``generate_jit_lto_kernels`` in a project, as ``family.toml`` declares them."""

import json
import os.path
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitlto.base.errors import ForeignBuildError
from jitlto.base.versions import Architecture, Version, lowest_base
from jitlto.compile.nvrtc_program import translate_option
from jitlto.cuda.compatibility import can_link_for
from jitlto.families.language import PLACEHOLDER
from jitlto.families.matrix import load_matrix, parse_matrix
from jitlto.packaging.foreign.cmake import Project, RecordedCall
from jitlto.record.fragment import Role, is_name
from jitlto.record.options import describe_invalid_option

_FUNCTION = "generate_jit_lto_kernels"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_TYPE_OR_NUMBER = re.compile(r"[\w:<>, *&]+")
# Directories whose names say what is in them, and not what it is for.
_GENERIC = {"jit_lto_kernels", "jit_lto", "jit", "kernels", "kernel", "templates", "src", "source", "detail", "impl",
            "fragments", "cuda", "cpp", "lib", "include", ""}  # fmt: skip
_ARCHITECTURE = re.compile(r"(\d{2,3}[af]?)(?:-real|-virtual)?")
# Options of nvcc whose value may begin with a dash.
_PASSING_ON = re.compile(r"-X\w+|--?\w+-options")
_OF_HOST = ("Xcompiler", "compiler-options")
_LINK_SWITCHES = {
    "use_fast_math": "fast_math", "ftz": "ftz", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "fmad": "fma",
    "lineinfo": "lineinfo", "generate-line-info": "lineinfo",
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A family, from the calls whose templates lie in one directory: the number of its groups, and its files."""

    name: str
    groups: int
    files: Mapping[Path, str]


@dataclass
class Flags:
    """Options of nvcc by where a family declares them, those that its compiler does not take left out."""

    toolchain: str
    options: list[str] = field(default_factory=list)
    link: dict[str, Any] = field(default_factory=dict)
    include: list[Path] = field(default_factory=list)
    standards: list[int] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, words: Iterable[str]) -> None:
        """Add options as CMake has them: an option and its value may be two words, and ``SHELL:`` keeps several."""
        joined: list[str] = []
        for text in words:
            for word in filter(None, shlex.split(text[6:]) if text.startswith("SHELL:") else [text]):
                if joined and (word[0] != "-" or _PASSING_ON.fullmatch(joined[-1])):
                    joined[-1] += word if joined[-1] in ("-I", "-D", "-U") else f"={word}"
                else:
                    joined.append(word)
        for option in joined:
            self._add(option)

    def _add(self, option: str) -> None:
        name, _, value = option.lstrip("-").partition("=")
        if found := re.fullmatch(r"(?:-I|-isystem=?|--include-path=|--system-include=)(.+)", option):
            self.include.append(Path(found[1]))
        elif found := re.fullmatch(r"--?std=(?:c|gnu)\+\+(\d+)", option):
            self.standards.append(int(found[1]))
        elif name in _OF_HOST and (macros := [each for each in value.split(",") if each.startswith(("-D", "-U"))]):
            others = ",".join(each for each in value.split(",") if each not in macros)
            self.add([*macros, f"-Xcompiler={others}"] if others else macros)  # macros are for device code, too
        elif name in _LINK_SWITCHES:
            self.link[_LINK_SWITCHES[name]] = value != "false"
        elif name == "maxrregcount":
            self.link["max_registers"] = int(value)
        elif name in ("Xptxas", "ptxas-options"):
            self.link["ptxas"] = [*self.link.get("ptxas", []), *filter(None, value.split(","))]
        elif name not in ("dlto", "rdc", "relocatable-device-code"):  # code always is
            form = option if self.toolchain == "nvcc" else translate_option(option)
            kept = self.left_out if form is None or describe_invalid_option(option) else self.options
            kept += [each for each in [form or option] if each not in kept]


@dataclass(frozen=True)
class _Call:
    """A call: its template, the file of its matrix or only that as JSON, and the product of that.

    ``constants`` are what the template needs beside the matrix, from variables of CMake.
    """

    recorded: RecordedCall
    template: Path
    text: str
    matrix: Path | None
    document: object
    combinations: tuple[dict[str, str], ...]
    constants: frozenset[str]

    @property
    def extra(self) -> tuple[str, ...]:
        given = self.recorded.arguments.get("KERNEL_EXTRA_COMPILE_OPTIONS", "")
        return *self.recorded.own, *given.replace("\\;", ";").split(";")

    @property
    def role(self) -> Role:
        """Entrypoint if the rendered template has a kernel."""
        first = self.combinations[0] if self.combinations else {}
        code = _COMMENT.sub(" ", PLACEHOLDER.sub(lambda match: first.get(match[1], ""), self.text))
        return Role.ENTRYPOINT if re.search(r"\b__global__\b", code) else Role.DEVICE


def make_families(project: Project) -> list[Family]:
    """Make families from the calls of a project, each in a folder of its own, relative to which it names files.

    What cannot be taken over is added to ``project.left_out``.

    Returns:
        The families, sorted by name.

    Raises:
        ForeignBuildError: If there is no call, or one lacks an argument, names a file that does not exist, or is
            compiled for an architecture that the compiler refuses.
        MatrixError: If a matrix breaks a rule.
    """
    calls, source, output = [_read(each) for each in project.calls], project.lists.absolute().parent, project.output
    if not calls:
        hint = "name the CMakeLists.txt that calls it; a call in an if() that is not taken needs its option: -D NAME=ON"
        raise ForeignBuildError(f"no call of {_FUNCTION}", code="import-no-call", where=str(source), hint=hint)
    members: dict[str, list[_Call]] = {}
    names = _name_families(sorted({call.template.parent for call in calls}), source)
    for call in calls:
        members.setdefault(names[call.template.parent], []).append(call)
    shared = sorted(name for name, own in members.items() if all(call.role is Role.DEVICE for call in own))
    common: set[str] = set()  # names of groups that every family sees
    families = []
    for name in sorted(members, key=lambda name: (name not in shared, name)):
        uses = [] if name in shared or len(shared) == len(members) else shared
        taken = common if name in shared else set(common)
        files: dict[Path, str] = {}
        groups = sorted(_alike(members[name]), key=lambda same: (same[0].role is Role.DEVICE, same[0].template))
        flags, lines = _head(name, members[name], uses, output / name, project)
        for same in groups:
            lines += _group(same, taken, flags, output / name, files)
        lines = [f"# Made from {project.lists.name} by `jitlto import cmake`. It is yours to improve.", *lines, ""]
        files |= {path: text for path, text in project.generated.items() if {*path.parents} & {*flags.include}}
        families.append(Family(name, len(groups), {output / name / "family.toml": "\n".join(lines), **files}))
        project.leave_out("no directory", (str(path) for path in flags.include if not project.has_directory(path)))
        project.leave_out("option", flags.left_out)
    return sorted(families, key=lambda family: family.name)


def _read(command: RecordedCall) -> _Call:
    given = command.arguments
    template, file = _find(command, "KERNEL_INPUT_FILE"), _find(command, "MATRIX_JSON_FILE")
    if template is None or "NAME_FORMAT" not in given or not (file or "MATRIX_JSON_STRING" in given):
        what = f"{_FUNCTION} needs NAME_FORMAT, KERNEL_INPUT_FILE, and MATRIX_JSON_FILE or MATRIX_JSON_STRING"
        where = f"{command.directory} {given.get('NAME_FORMAT', '')} {template or ''}".rstrip()
        raise ForeignBuildError(what, code="import-invalid-call", where=where)
    text = template.read_text("utf-8-sig", "replace")
    product = load_matrix(file) if file else parse_matrix(given["MATRIX_JSON_STRING"], f"the matrix for {template}")
    document = json.loads(file.read_text("utf-8-sig") if file else given["MATRIX_JSON_STRING"])
    combinations = [{name: str(value) for name, value in each.items()} for each in product.combinations()]
    # What the matrix does not give, CMake takes from the variables of the caller; one that is not set is empty.
    missing = set(PLACEHOLDER.findall(text)).difference(*combinations)
    constants = {name: given.get(f"@{name}", "") for name in sorted(missing)}
    if constants:
        document, file = {"_matrix": document, **constants}, None
    complete = tuple(each | constants for each in combinations)
    return _Call(command, template, text, file, document, complete, frozenset(constants))


def _find(command: RecordedCall, argument: str) -> Path | None:
    """Return the file that an argument names, if it is given."""
    if not command.arguments.get(argument):
        return None
    path = Path(os.path.normpath(command.directory / command.arguments[argument]))
    if not path.is_file():
        what, hint = f"{_FUNCTION}: no file {path}", "if the project's build makes it, make it first"
        raise ForeignBuildError(what, code="import-missing-file", where=str(command.directory), hint=hint)
    return path


def _name_families(directories: Iterable[Path], source: Path) -> dict[Path, str]:
    """Name families after the directories of their templates: by the last part that says what they are for."""
    names: dict[Path, str] = {}
    for directory in directories:
        parts = Path(os.path.relpath(directory, source)).parts
        telling = [p for p in parts if p.lower() not in _GENERIC and p.strip(".")] or [source.name or "kernels"]
        name = telling[-1] if telling[-1] not in names.values() else "_".join(telling)
        names[directory] = re.sub(r"^(?=[^A-Za-z_])", "_", re.sub(r"[^A-Za-z0-9_.-]", "_", name))
    return names


def _alike(calls: Iterable[_Call]) -> Iterable[list[_Call]]:
    """Put calls together that differ in their matrices, and in variables of CMake that the template uses: a loop."""
    together: dict[object, list[_Call]] = {}
    for call in calls:
        alike = together.setdefault((call.template, call.extra, frozenset(map(frozenset, call.combinations))), [])
        if all(other.combinations != call.combinations for other in alike):
            alike.append(call)
    return together.values()


def _head(
    name: str, calls: Sequence[_Call], uses: Sequence[str], folder: Path, project: Project
) -> tuple[Flags, list[str]]:
    """Return what all groups of a family compile with, and the lines of its declaration before them."""
    flags, architectures = Flags(project.toolchain), list[Architecture]()
    for call in (each.recorded for each in calls):
        variables = call.arguments
        # Compilers search it last themselves; named, it would come before their own headers.
        flags.include += [Path(each) for each in map(os.path.normpath, call.include) if each != "/usr/include"]
        flags.add(f"-D{definition.removeprefix('-D')}" for definition in call.definitions)
        flags.add([*call.options, f"SHELL:{variables.get('CMAKE_CUDA_FLAGS', '')}"])
        features = (re.sub("^(?:cuda|cxx)_std_", "", feature) for feature in call.features)
        flags.standards += map(int, filter(str.isdecimal, (variables.get("CMAKE_CUDA_STANDARD", ""), *features)))
        architectures += _architectures(variables)
    there = filter(project.has_directory, dict.fromkeys(flags.include))
    values = {
        "name": name,
        "toolchain": project.toolchain,
        "std_headers": True if project.toolchain == "nvrtc" else None,
        "syntax": "cmake",
        "std": f"c++{max([17, *flags.standards])}",
        "include": [_relative(path, folder) for path in there] or ["."],
        "archs": [str(lowest_base(architectures))] if architectures else None,
        "options": flags.options,
    }
    lines = ["[family]", *_lines(values)]
    if uses:
        lines += ["", "[use]", *_lines({each: f"../{each}/family.toml" for each in uses})]
    if flags.link:
        lines += ["", "[link]", *_lines(flags.link)]
    return flags, lines


def _architectures(variables: Mapping[str, str]) -> list[Architecture]:
    """Return those that a call is compiled for, if they have numbers; each must be one of the compiler's."""
    targets = variables.get("CMAKE_CUDA_ARCHITECTURES", "").split(";")
    found = [Architecture.parse(each[1]) for each in map(_ARCHITECTURE.fullmatch, targets) if each]
    compiler = variables.get("CMAKE_CUDA_COMPILER_VERSION")
    for each in found:
        if compiler and not can_link_for(Version.parse(compiler), each):
            what = f"CUDA {compiler} does not compile for architecture {each} of CMAKE_CUDA_ARCHITECTURES"
            hint = "give others: -D CMAKE_CUDA_ARCHITECTURES=..., or where the project sets it; or take another toolkit"
            where = variables["CMAKE_CURRENT_LIST_FILE"]
            raise ForeignBuildError(what, code="import-architecture", where=where, hint=hint)
    return found


def _group(calls: Sequence[_Call], taken: set[str], flags: Flags, folder: Path, files: dict[Path, str]) -> list[str]:
    """Return the lines of a group of a family with such flags; its matrix, if that has no file, goes to ``files``."""
    first, stem = calls[0], calls[0].template.name.partition(".")[0]
    formats = [call.recorded.arguments["NAME_FORMAT"] for call in calls]
    literal = re.sub(r"[^A-Za-z0-9.-]+", "_", PLACEHOLDER.sub("_", formats[0])).strip("_.-")
    names = [*([literal] if len(calls) == 1 and is_name(literal) else []), stem]
    name = next(each for each in (*names, *(f"{stem}_{n}" for n in range(2, len(taken) + 3))) if each not in taken)
    taken.add(name)
    matrix = first.matrix if len(calls) == 1 else None
    if matrix is None:
        matrix = folder / f"{name}.json"
        document = first.document if len(calls) == 1 else [call.document for call in calls]
        files[matrix] = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    combinations = [each for call in calls for each in call.combinations]
    named = {each for text in formats for each in PLACEHOLDER.findall(text)}
    named |= {each for each in first.constants if len({combination[each] for combination in combinations}) > 1}
    own = Flags(flags.toolchain, left_out=flags.left_out)
    own.add(first.extra)
    values = {
        "matrix": _relative(matrix, folder),
        "template": _relative(first.template, folder),
        "key": list(choose_key(named, combinations, PLACEHOLDER.findall(first.text))),
        "options": [option for option in own.options if option not in flags.options],
    }
    table = f"{first.role.value}.{json.dumps(name) if '.' in name else name}"
    lines = ["", f"[{table}]", *_lines(values)]
    if first.role is Role.DEVICE:
        lines.append("interface = false  # better: the header that declares what the group defines")
    return [*lines, *(f"# left out: {line}  (use __launch_bounds__ in the template)" for line in _lines(own.link))]


def choose_key(named: set[str], combinations: Sequence[Mapping[str, str]], used: Iterable[str]) -> tuple[str, ...]:
    """Choose key parameters that tell combinations apart.

    These are the parameters in the names of kernels, if the template uses them; in place of those that only abbreviate,
    the types and numbers that it uses, since callers know ``float`` rather than ``f``.

    Args:
        named: The parameters in the names.
        combinations: Those of the matrix.
        used: The parameters that the template uses, in order.
    """
    everywhere = set.intersection(*({*each} for each in combinations)) if combinations else set[str]()
    known = [name for name in dict.fromkeys(used) if name in everywhere]
    simple = [name for name in known if all(_TYPE_OR_NUMBER.fullmatch(each[name]) for each in combinations)]
    key = [name for name in known if name in named]

    def count(names: Sequence[str]) -> int:
        return len({tuple(each[name] for name in names) for each in combinations})

    for name in (*simple, *sorted(everywhere & named), *sorted(everywhere)):
        if count([*key, name]) > count(key):
            key.append(name)
    return tuple(key)


def _lines(values: Mapping[str, object]) -> list[str]:
    # JSON's texts, numbers, booleans and arrays are TOML's, except that TOML escapes DEL.
    given = {name: value for name, value in values.items() if value not in (None, []) or name == "key"}
    texts = {name: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for name, value in given.items()}
    return [f"{json.dumps(name) if '.' in name else name} = {text}" for name, text in texts.items()]


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
