"""Rendering: one template and one combination give one ``.cu`` source."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from jitlto.build.matrix import load_matrix
from jitlto.errors import FamilyError, RenderError
from jitlto.model.fragment import FragmentKey
from jitlto.storage.declaration import Family, Group

_PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")  # what CMake's @ONLY takes for a name
# A template is text, and may be a slip: what it may ask for is bounded, so that an answer comes.
_LONGEST = 100_000
_MOST_COMBINATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class RenderedSource:
    """One source to compile, and where it came from.

    Parameters
    ----------
    key : FragmentKey
        The fragment that it will be.
    group : Group
        The group's declaration.
    combination : dict of str to str
        All parameters, those outside the key too.
    text : str
        The rendered template.
    params : tuple of str
        The kernel's declared parameters, rendered.
    """

    key: FragmentKey
    group: Group
    combination: Mapping[str, str]
    text: str
    params: tuple[str, ...]

    @property
    def source(self) -> str:
        """What is compiled: the text, with the group's interface before it, which a definition cannot contradict."""
        if self.group.interface is None:
            return self.text
        return f'#include "{self.group.interface}"\n#line 1\n{self.text}'

    @property
    def origin(self) -> str:
        """Template, group and combination, for messages."""
        return f"{self.group.template} (group {self.group.name}, {describe(self.combination)})"


def describe(combination: Mapping[str, str]) -> str:
    """A combination in one line."""
    return ", ".join(f"{name}={value}" for name, value in combination.items()) or "the empty combination"


def render_family(
    family: Family, failed: Callable[[RenderedSource, RenderError], None] | None = None
) -> Iterator[RenderedSource]:
    """Render every combination of every group that has a template, groups by name, combinations in matrix order.

    Parameters
    ----------
    family : Family
    failed : callable, optional
        Told of each combination that cannot be rendered, without a text; else the first one is raised.

    Raises
    ------
    MatrixError
        If a matrix breaks a rule.
    RenderError
        If a template is malformed or uses an undefined name; it names file, line, group and combination.
    FamilyError
        If two combinations of a group have one key, or lack a key parameter.
    """
    for group in family.groups:
        if group.matrix is not None and group.template is not None:
            yield from _render_group(family, group, group.matrix, group.template, failed)


def matrix_warnings(family: Family) -> list[str]:
    """What the matrices' naming conventions have to say, each with its file."""
    return [
        f"{warning.where}: {warning.message}"
        for group in family.groups
        if group.matrix is not None
        for warning in load_matrix(group.matrix).warnings
    ]


def _render_group(
    family: Family,
    group: Group,
    matrix_path: Path,
    template: Path,
    failed: Callable[[RenderedSource, RenderError], None] | None,
) -> Iterator[RenderedSource]:
    renderer = _Jinja(group, template) if group.syntax == "jinja" else _CMake(group, template)
    seen: dict[FragmentKey, Mapping[str, str]] = {}
    loaded = load_matrix(matrix_path)
    if loaded.count > _MOST_COMBINATIONS:
        raise FamilyError(
            f"{matrix_path} gives more than {_MOST_COMBINATIONS:,} combinations",
            where=f"{family.path} [{group.role}.{group.name}]",
            hint="split the group, so that kernels link what they need: N + M fragments give N x M kernels",
        )
    for values in loaded.combinations():
        combination = {name: str(value) for name, value in values.items()}  # strict: strings already
        where = f"{family.path} [{group.role}.{group.name}]"
        missing = [name for name in group.key if name not in combination]
        if missing:
            raise FamilyError(
                f"key parameter {missing[0]!r} is not in the combination {describe(combination)} of {matrix_path}",
                where=where,
                hint="remove it from key, or give it in the matrix in every branch",
            )
        key = FragmentKey.make(family.name, group.name, {name: combination[name] for name in group.key})
        if key in seen:
            raise FamilyError(
                f"two combinations of {matrix_path} have the key {key}: {describe(seen[key])}; and "
                f"{describe(combination)}",
                where=where,
                hint="add the parameter that tells them apart to key",
            )
        seen[key] = combination
        try:
            params = tuple(renderer.inline(text, combination, where) for text in group.params)
            rendered = RenderedSource(key, group, combination, renderer.source(combination), params)
        except RenderError as error:
            if failed is None:
                raise
            failed(RenderedSource(key, group, combination, "", ()), error)
        else:
            yield rendered


class _Environment(SandboxedEnvironment):
    """Templates see values and nothing of Python; ranges, repetitions and powers are bounded."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for count, other in ((left, right), (right, left)):
            if operator == "*" and isinstance(count, int) and isinstance(other, str | list | tuple):
                _bounded(count * len(other))
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _bounded(left.bit_length() * right)
        return super().call_binop(context, operator, left, right)


def _bounded(count: int) -> None:
    if count > _LONGEST:
        raise OverflowError(f"longer than the {_LONGEST} that a template may ask for")


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    _bounded((numbers.stop - numbers.start) // numbers.step)  # len() has a bound of its own
    return numbers


def _text(text: str) -> str:
    text.encode()  # raises at half a surrogate pair, which an escape can make
    return text


class _Jinja:
    """Jinja templates; an undefined name is an error, and templates may include others of their directory."""

    def __init__(self, group: Group, template: Path) -> None:
        self._group = group
        self._path = template
        # C++ is no HTML: nothing to escape.
        self._environment = _Environment(
            loader=jinja2.FileSystemLoader(template.parent, encoding="utf-8-sig"),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=self._finalize,
        )
        # What is left of Jinja's globals and filters gives the same text every time.
        self._environment.globals = {"range": _range}
        del self._environment.filters["random"]

    @staticmethod
    def _finalize(value: object) -> object:
        """Refuse to print what is no text or number: a name of Jinja's own, or C++ braces taken for an expression."""
        if not isinstance(value, str | int | float | jinja2.Undefined):
            raise TypeError(
                f"{{{{...}}}} gives a {type(value).__name__}, no text or number; put C++ braces between "
                "{% raw %} and {% endraw %}"
            )
        return value

    def source(self, combination: Mapping[str, str]) -> str:
        try:
            return _text(self._environment.get_template(self._path.name).render(combination))
        except Exception as error:
            raise self._error(error, combination) from error

    def inline(self, text: str, combination: Mapping[str, str], where: str) -> str:
        try:
            return _text(self._environment.from_string(text).render(combination))
        except Exception as error:
            raise RenderError(
                f"{error} in params entry {text!r} ({describe(combination)})",
                where=where,
                hint="params may use the names in the matrix",
            ) from error

    def _error(self, error: Exception, combination: Mapping[str, str]) -> RenderError:
        file, line = str(self._path), None
        if isinstance(error, jinja2.TemplateSyntaxError):
            file, line = error.filename or file, error.lineno
        else:
            # Jinja gives the frames of its compiled templates the templates' own files and lines.
            for frame in traceback.extract_tb(error.__traceback__):
                # An environment of Python may lie in the same directory.
                if self._path.parent in Path(frame.filename).parents and not frame.filename.endswith(".py"):
                    file, line = frame.filename, frame.lineno
        what = f"template {error} does not exist" if isinstance(error, jinja2.TemplateNotFound) else str(error)
        return _render_error(what, file, line, self._group, combination)


class _CMake:
    """Templates of CMake's ``configure_file(... @ONLY)``: ``@name@`` and nothing else."""

    def __init__(self, group: Group, template: Path) -> None:
        self._group = group
        self._path = template

    def source(self, combination: Mapping[str, str]) -> str:
        try:
            # Not splitlines, which also splits where a compiler sees no end of a line.
            lines = re.split(r"(?<=\n)", self._path.read_text("utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise _render_error(f"cannot be read: {error}", str(self._path), None, self._group, combination) from None
        for number, line in enumerate(lines):
            for name in _PLACEHOLDER.findall(line):
                if name not in combination:
                    raise _render_error(f"{name!r} is undefined", str(self._path), number + 1, self._group, combination)
            lines[number] = _PLACEHOLDER.sub(lambda match: combination[match[1]], line)
        return "".join(lines)

    def inline(self, text: str, combination: Mapping[str, str], where: str) -> str:
        for name in _PLACEHOLDER.findall(text):
            if name not in combination:
                raise RenderError(
                    f"{name!r} is undefined in params entry {text!r} ({describe(combination)})",
                    where=where,
                    hint="params may use the names in the matrix",
                )
        return _PLACEHOLDER.sub(lambda match: combination[match[1]], text)


def _render_error(what: str, file: str, line: int | None, group: Group, combination: Mapping[str, str]) -> RenderError:
    place = f"{file}:{line}" if line else file
    return RenderError(
        f"{what} (group {group.name}, {describe(combination)})",
        where=place,
        hint=f"names this combination defines: {', '.join(combination) or 'none'}",
    )
