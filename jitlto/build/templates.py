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

from jitlto.build.matrix import Matrix, load_matrix
from jitlto.errors import FamilyError, RenderError
from jitlto.model.fragment import FragmentKey
from jitlto.model.text import suggest
from jitlto.storage.declaration import FamilyDeclaration, GroupDeclaration

_PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")  # what CMake's @ONLY takes for a name
# A slip in a template must not make a build hang: what one may ask for is bounded.
_MAX_LENGTH = 100_000
_MAX_COMBINATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class RenderedSource:
    """One source to compile, and where it came from."""

    key: FragmentKey
    group: GroupDeclaration
    combination: Mapping[str, str]  # all parameters, also those outside the key
    text: str  # the rendered template
    params: tuple[str, ...]  # the kernel's declared parameters, rendered

    @property
    def source(self) -> str:
        """Source to compile: the text after the group's interface, which a definition then cannot contradict."""
        if self.group.interface is None:
            return self.text
        return f'#include "{self.group.interface}"\n#line 1\n{self.text}'

    @property
    def origin(self) -> str:
        """Template, group and combination, for messages."""
        return f"{self.group.template} (group {self.group.name}, {describe_combination(self.combination)})"


def describe_combination(combination: Mapping[str, str]) -> str:
    """Describe a combination in one line."""
    return ", ".join(f"{name}={value}" for name, value in combination.items()) or "the empty combination"


def render_family(
    family: FamilyDeclaration,
    *,
    on_error: Callable[[RenderedSource, RenderError], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> Iterator[RenderedSource]:
    """Render every combination of every group that has a template, groups by name, combinations in matrix order.

    Args:
        family: The declaration.
        on_error: Gets each combination that cannot be rendered, without a text; by default the first such error is
            raised.
        on_warning: Gets what the naming convention has to say of the matrices.

    Raises:
        MatrixError: A matrix breaks a rule.
        RenderError: A template is malformed or uses an undefined name; it names file, line, group and combination.
        FamilyError: Two combinations of a group have one key, or lack a key parameter.
    """
    for group in family.groups:
        if group.matrix is None or group.template is None:
            continue
        matrix = load_matrix(group.matrix)
        if on_warning is not None:
            for warning in matrix.warnings:
                on_warning(warning)
        where = f"{family.path} [{group.role}.{group.name}]"
        renderer = _Jinja(group.template) if group.syntax == "jinja" else _CMake(group.template)
        for key, combination in _iterate_keys(family, group, matrix, where):
            try:
                params = tuple(_render(renderer, group, combination, where, entry) for entry in group.params)
                text = _render(renderer, group, combination, where)
            except RenderError as error:
                if on_error is None:
                    raise
                on_error(RenderedSource(key, group, combination, "", ()), error)
            else:
                yield RenderedSource(key, group, combination, text, params)


def _iterate_keys(
    family: FamilyDeclaration, group: GroupDeclaration, matrix: Matrix, where: str
) -> Iterator[tuple[FragmentKey, Mapping[str, str]]]:
    if matrix.count > _MAX_COMBINATIONS:
        what = f"{group.matrix} gives more than {_MAX_COMBINATIONS:,} combinations"
        hint = "split the group and link the parts: N + M fragments give N x M kernels"
        raise FamilyError(what, code="family-too-many-combinations", where=where, hint=hint)
    combinations: dict[FragmentKey, Mapping[str, str]] = {}
    for values in matrix.combinations():
        combination = {name: str(value) for name, value in values.items()}  # strict: strings already
        for name in group.key:
            if name not in combination:
                what = f"no key parameter {name!r} in {describe_combination(combination)} of {group.matrix}"
                hint = "remove it from key, or add it to every branch of the matrix"
                raise FamilyError(what, code="family-missing-key-parameter", where=where, hint=hint)
        key = FragmentKey.make(family.name, group.name, {name: combination[name] for name in group.key})
        if key in combinations:
            both = "; and ".join(map(describe_combination, (combinations[key], combination)))
            what = f"two combinations of {group.matrix} have the key {key}: {both}"
            hint = "add the parameter that tells them apart to key"
            raise FamilyError(what, code="family-duplicate-key", where=where, hint=hint)
        combinations[key] = combination
        yield key, combination


def _render(
    renderer: _Jinja | _CMake,
    group: GroupDeclaration,
    combination: Mapping[str, str],
    where: str,
    entry: str | None = None,
) -> str:
    """Render the file of a group's template, or an entry of its ``params``, which are declared at ``where``."""
    try:
        text = renderer.render_file(combination) if entry is None else renderer.render_text(entry, combination)
        text.encode()  # raises at an unpaired surrogate, which an escape can make
        return text
    except Exception as error:
        if entry is not None:
            raise _make_error(error, f"params entry {entry!r}", where, combination) from error
        where = _locate(error, renderer.path)
        raise _make_error(error, f"group {group.name}", where, combination) from error


class _Sandbox(SandboxedEnvironment):
    """Templates see values and nothing of Python; ranges, repetitions and powers are bounded."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for count, other in ((left, right), (right, left)):
            if operator == "*" and isinstance(count, int) and isinstance(other, str | list | tuple):
                _check_length(count * len(other))
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_length(left.bit_length() * right)
        return super().call_binop(context, operator, left, right)


def _check_length(length: int) -> None:
    if length > _MAX_LENGTH:
        raise OverflowError(f"longer than the limit of {_MAX_LENGTH}")


def _bounded_range(*bounds: int) -> range:
    numbers = range(*bounds)
    _check_length((numbers.stop - numbers.start) // numbers.step)  # len() has a bound of its own
    return numbers


def _finalize(value: object) -> object:
    """Print text and numbers only: not one of Jinja's own names, nor C++ braces taken for an expression."""
    if not isinstance(value, str | int | float | jinja2.Undefined):
        raise TypeError(
            f"{{{{...}}}} gives a {type(value).__name__} instead of text or a number; put C++ braces between "
            "{% raw %} and {% endraw %}"
        )
    return value


class _Jinja:
    """Jinja templates; an undefined name is an error, and templates may include others of their directory."""

    def __init__(self, template: Path) -> None:
        self.path = template
        # C++ is not HTML: there is nothing to escape.
        self._environment = _Sandbox(
            loader=jinja2.FileSystemLoader(template.parent, encoding="utf-8-sig"),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=_finalize,
        )
        # The globals and filters that remain give the same text every time.
        self._environment.globals = {"range": _bounded_range}
        del self._environment.filters["random"]

    def render_file(self, combination: Mapping[str, str]) -> str:
        return self._environment.get_template(self.path.name).render(combination)

    def render_text(self, text: str, combination: Mapping[str, str]) -> str:
        return self._environment.from_string(text).render(combination)


class _CMake:
    """Templates of CMake's ``configure_file(... @ONLY)``: ``@name@`` and nothing else."""

    def __init__(self, template: Path) -> None:
        self.path = template

    def render_file(self, combination: Mapping[str, str]) -> str:
        return self.render_text(self.path.read_text("utf-8-sig"), combination)

    def render_text(self, text: str, combination: Mapping[str, str]) -> str:
        def substitute(match: re.Match[str]) -> str:
            if match[1] not in combination:
                raise _UndefinedPlaceholderError(match[1], text.count("\n", 0, match.start()) + 1)
            return combination[match[1]]

        return _PLACEHOLDER.sub(substitute, text)


class _UndefinedPlaceholderError(jinja2.UndefinedError):
    def __init__(self, name: str, line: int) -> None:
        super().__init__(f"{name!r} is undefined")
        self.line = line


def _make_error(error: Exception, context: str, where: str, combination: Mapping[str, str]) -> RenderError:
    code, what = "render-failed", str(error)
    hint = f"names in this combination: {', '.join(combination) or 'none'}"
    if isinstance(error, jinja2.TemplateNotFound):
        code, what, hint = "render-missing-template", f"no template {error}", "paths are relative to the template"
    elif isinstance(error, OSError | UnicodeDecodeError):
        code, what, hint = "render-unreadable", f"cannot read the template: {error}", "save it as UTF-8"
    elif isinstance(error, jinja2.TemplateSyntaxError):
        code, what = "render-syntax", error.message or what
    elif isinstance(error, jinja2.UndefinedError):
        code = "render-undefined"
        if name := re.match("'(.+)' is undefined", what):
            hint = suggest(name[1], combination, hint)
    return RenderError(f"{what} ({context}, {describe_combination(combination)})", code=code, where=where, hint=hint)


def _locate(error: Exception, template: Path) -> str:
    """Find the file and line of the template, or of one that it includes, at which rendering failed."""
    file, line = str(template), 0
    if isinstance(error, jinja2.TemplateSyntaxError):
        file, line = error.filename or file, error.lineno
    elif isinstance(error, _UndefinedPlaceholderError):
        line = error.line
    else:
        # Jinja gives the frames of its compiled templates the templates' own files and lines.
        for frame in traceback.extract_tb(error.__traceback__):
            # An environment of Python may lie in the same directory.
            if template.parent in Path(frame.filename).parents and not frame.filename.endswith(".py"):
                file, line = frame.filename, frame.lineno or 0
    return f"{file}:{line}" if line else file
