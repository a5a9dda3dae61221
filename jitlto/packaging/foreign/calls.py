"""Calls of ``generate_jit_lto_kernels``: the template, the matrix and the name of the kernels of each."""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jitlto.base.errors import ForeignBuildError
from jitlto.families.matrix import MOST_COMBINATIONS, load_matrix, parse_matrix
from jitlto.packaging.foreign.cmake import RecordedCall
from jitlto.packaging.foreign.compiler_flags import Flags, join_options
from jitlto.record.fragment import Role, is_name

#: The function that is read.
FUNCTION = "generate_jit_lto_kernels"
_PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_TYPE_OR_NUMBER = re.compile(r"[\w:<>, *&]+")


@dataclass(frozen=True)
class Call:
    """One call.

    Args:
        recorded: As CMake made it.
        matrix: The file of the matrix, or its JSON value if the call has it as text.
        combinations: Those of the matrix, each with the constants.
        constants: What the template needs beside the matrix, from variables of CMake.
        text: That of the template.
        flags: The call's own options, beside those of its libraries.
    """

    recorded: RecordedCall
    template: Path
    matrix: Path | object
    combinations: tuple[dict[str, str], ...]
    constants: Mapping[str, str]
    text: str
    flags: Flags

    @property
    def placeholders(self) -> set[str]:
        """The names that the template uses."""
        return set(_PLACEHOLDER.findall(self.text))

    @property
    def role(self) -> Role:
        """Entrypoint if the rendered template has a kernel."""
        first = self.combinations[0] if self.combinations else {}
        code = _COMMENT.sub(" ", _PLACEHOLDER.sub(lambda match: first.get(match[1], ""), self.text))
        return Role.ENTRYPOINT if re.search(r"\b__global__\b", code) else Role.DEVICE

    @property
    def name(self) -> str:
        """A name for its group: what the names of its kernels begin with, or that of the template."""
        literal = re.sub(r"[^A-Za-z0-9_.-]", "_", self.recorded.arguments["NAME_FORMAT"].partition("@")[0]).strip("_.-")
        return literal if is_name(literal) else self.template.name.partition(".")[0]

    @property
    def named(self) -> list[str]:
        """The parameters in the names of its kernels."""
        return _PLACEHOLDER.findall(self.recorded.arguments["NAME_FORMAT"])

    def document(self) -> object:
        """Return the matrix with the constants as a JSON value."""
        own = json.loads(self.matrix.read_text("utf-8-sig")) if isinstance(self.matrix, Path) else self.matrix
        return {"_matrix": own, **self.constants} if self.constants else own


def read_call(command: RecordedCall) -> Call:
    """Read a recorded call, its template and its matrix.

    Raises:
        ForeignBuildError: If it lacks an argument, or names a file that does not exist.
        MatrixError: If its matrix breaks a rule.
    """
    arguments = command.arguments
    for names in (("NAME_FORMAT",), ("KERNEL_INPUT_FILE",), ("MATRIX_JSON_FILE", "MATRIX_JSON_STRING")):
        if not any(map(arguments.get, names)):
            hint = "it takes NAME_FORMAT, MATRIX_JSON_FILE or MATRIX_JSON_STRING, and KERNEL_INPUT_FILE"
            given = ", ".join(f"{name} {value:.80}" for name, value in arguments.items() if value) or "its arguments"
            raise _error(command, f"no {' or '.join(names)} among {given}", code="import-invalid-call", hint=hint)
    template = _existing(command, arguments["KERNEL_INPUT_FILE"])
    try:
        text = template.read_text("utf-8-sig")
    except ValueError:
        raise _error(command, f"{template} is not UTF-8 text", code="import-invalid-call") from None
    matrix: Path | object
    if file := arguments.get("MATRIX_JSON_FILE"):
        matrix = path = _existing(command, file)
        product = load_matrix(path)
    else:
        matrix, product = parse_matrix(arguments["MATRIX_JSON_STRING"], f"the matrix for {template}")
    if product.count > MOST_COMBINATIONS:
        what = f"the matrix for {template} gives more than {MOST_COMBINATIONS:,} combinations"
        raise _error(command, what, code="import-invalid-call")
    combinations = [{name: str(value) for name, value in each.items()} for each in product.combinations()]
    # What the matrix does not give, CMake takes from the variables of the caller; one that is not set is empty.
    missing = set(_PLACEHOLDER.findall(text)).difference(*combinations)
    constants = {name: arguments.get(f"@{name}", "") for name in sorted(missing)}
    flags = Flags()
    for option in join_options(arguments.get("KERNEL_EXTRA_COMPILE_OPTIONS", "").replace("\\;", ";").split(";")):
        flags.add(option)
    complete = tuple(each | constants for each in combinations)
    return Call(command, template, matrix, complete, constants, text, flags)


def _existing(command: RecordedCall, given: str) -> Path:
    path = Path(os.path.normpath(command.directory / given))
    if not path.is_file():
        hint = "if the project's build makes it, make it first"
        raise _error(command, f"no file {path}", code="import-missing-file", hint=hint)
    return path


def _error(command: RecordedCall, what: str, *, code: str, hint: str | None = None) -> ForeignBuildError:
    return ForeignBuildError(f"{FUNCTION}: {what}", code=code, where=str(command.directory), hint=hint)


def choose_key(named: Sequence[str], combinations: Sequence[Mapping[str, str]], used: set[str]) -> tuple[str, ...]:
    """Choose key parameters that tell combinations apart as the parameters in the name of a kernel do.

    A parameter that only abbreviates another, which the template uses, is replaced by that one: callers know ``float``
    rather than ``f``.

    Args:
        named: The parameters in the name.
        combinations: Those of the matrix.
        used: The parameters that the template uses.
    """
    everywhere = set.intersection(*({*each} for each in combinations)) if combinations else set[str]()
    key: list[str] = []
    for name in dict.fromkeys(named):
        if name not in everywhere:
            continue
        alike = [other for other in sorted(everywhere & used) if _stands_for(name, other, combinations)]
        chosen = max(alike, key=partial(_common_length, name)) if alike and name not in used else name
        if chosen not in key:
            key.append(chosen)

    def count(names: Sequence[str]) -> int:
        return len({tuple(each[name] for name in names) for each in combinations})

    for name in sorted(everywhere, key=lambda name: (name not in used, name)):
        if count([*key, name]) > count(key):
            key.append(name)
    return tuple(key)


def _stands_for(name: str, other: str, combinations: Sequence[Mapping[str, str]]) -> bool:
    """Return whether each value of ``name`` goes with one value of ``other``, a type or a number, and vice versa."""
    pairs = {(each[name], each[other]) for each in combinations}
    one, two = map(set, zip(*pairs, strict=True))
    return len(pairs) == len(one) == len(two) and all(_TYPE_OR_NUMBER.fullmatch(value) for value in two)


def _common_length(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
