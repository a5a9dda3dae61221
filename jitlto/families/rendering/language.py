"""The language of templates: Jinja in a sandbox, where text and numbers do not mix, and CMake's ``@name@``."""

from __future__ import annotations

import hashlib
import io
import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import do_float, do_int, make_attrgetter
from jinja2.loaders import split_template_path
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter

from jitlto.families.rendering import values
from jitlto.families.rendering.template_files import read_template
from jitlto.families.rendering.values import TextAsNumberError, Value, as_value, reads_as_number

_PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")  # what CMake's @ONLY takes for a name
_BY_POSITION = re.compile(r"%[^(]")
# The filters whose input may be something other than a text or a number. The others make text of whatever they get.
_TAKE_ANYTHING = frozenset({
    "attr", "batch", "count", "d", "default", "dictsort", "first", "groupby", "items", "join", "last", "length", "list",
    "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "slice", "sort", "sum", "tojson",
    "unique",
})  # fmt: skip


class UndefinedPlaceholderError(jinja2.UndefinedError):
    """A CMake placeholder names nothing in the combination."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(f"{name!r} is undefined")
        self.line = line


class JinjaTemplate:
    """A Jinja template and those of its directory that it includes; an undefined name is an error."""

    def __init__(self, path: Path, folders: Sequence[str]) -> None:
        self._loader = _Loader(path.parent, folders)
        self._environment = _Sandbox(self._loader)
        self._name = path.name
        self._entries: dict[str, jinja2.Template] = {}

    @property
    def files(self) -> frozenset[str]:
        """The template files read so far."""
        return frozenset(self._loader.files)

    @property
    def read(self) -> Mapping[str, str | None]:
        """The SHA-256 of each file read so far, by its name beside the template; None for one that is not there."""
        return self._loader.read

    @property
    def used(self) -> set[str]:
        """The names that were looked up so far."""
        return self._environment.used

    def render_file(self, combination: Mapping[str, str]) -> str:
        return self._environment.get_template(self._name).render(_wrap(combination))

    def render_text(self, text: str, combination: Mapping[str, str]) -> str:
        if text not in self._entries:
            self._entries[text] = self._environment.from_string(text)
        return self._entries[text].render(_wrap(combination))


class CMakeTemplate:
    """A template of CMake's ``configure_file(... @ONLY)``: ``@name@`` and nothing else."""

    files: frozenset[str] = frozenset()

    def __init__(self, path: Path, folders: Sequence[str]) -> None:
        self._path, self._folders = path, folders
        self.read: dict[str, str | None] = {}
        self.used: set[str] = set()
        self._text: str | None = None

    def render_file(self, combination: Mapping[str, str]) -> str:
        if self._text is None:
            content = read_template(self._path, self._folders)
            self.read[self._path.name] = hashlib.sha256(content).hexdigest()
            self._text = _decode(content)
        return self.render_text(self._text, combination)

    def render_text(self, text: str, combination: Mapping[str, str]) -> str:
        def substitute(match: re.Match[str]) -> str:
            if match[1] not in combination:
                raise UndefinedPlaceholderError(match[1], text.count("\n", 0, match.start()) + 1)
            self.used.add(match[1])
            return combination[match[1]]

        return _PLACEHOLDER.sub(substitute, text)


def _decode(content: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read()  # with line ends as in a text file


def _wrap(combination: Mapping[str, str]) -> dict[str, str]:
    return {name: Value(value) for name, value in combination.items()}


# --- what may become text


def _printable(value: Any) -> Any:
    """Return a text or a number; refuse what Python would describe, perhaps by its address."""
    if not isinstance(value, str | int | float | jinja2.Undefined):
        raise TypeError(
            f"a {type(value).__name__} is printed, or made into text, instead of text or a number; put C++ braces "
            "between {% raw %} and {% endraw %}"
        )
    return value


@jinja2.pass_context
def _finalize(_: Context, value: Any) -> Any:
    # It takes the context so that Jinja does not evaluate constants ahead, with Python's own operators.
    return _printable(value)


def _printing(filter_: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter_)  # which copies Jinja's mark of a first argument too
    def checked(*args: Any, **named: Any) -> Any:
        for value in (*args, *(value for value in named.values() if value is not None)):
            if not isinstance(value, jinja2.Environment | Context | nodes.EvalContext):
                _printable(value)
        return as_value(filter_(*args, **named))

    return checked


def _of_defined(test: Any) -> Callable[..., Any]:
    """Make a test refuse an undefined name, which for Jinja ``is not none`` and ``is not true``."""

    @wraps(test)
    def checked(*args: Any, **named: Any) -> Any:
        for value in args:
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises
        return test(*args, **named)

    return checked


@jinja2.pass_eval_context
def _join(context: nodes.EvalContext, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    return str(_printable(d)).join([str(_printable(element)) for element in value])


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        return super().format_field(_printable(value), format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(_printable(value), conversion)


# --- Jinja


class _CodeGenerator(CodeGenerator):
    """Comparisons, conditions and ``~`` go through the environment."""

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        self.write("environment.compare(")
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", {operand.op!r}, ")
            self.visit(operand.expr, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concatenate((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Context(Context):
    def resolve_or_missing(self, key: str) -> Any:
        self.environment.used.add(key)  # type: ignore[attr-defined]  # that of _Sandbox
        return super().resolve_or_missing(key)


class _Sandbox(SandboxedEnvironment):
    """Templates see values and nothing of Python, and get the same text every time."""

    context_class = _Context
    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"*", "+", "%"})

    def __init__(self, loader: _Loader) -> None:
        # C++ is not HTML: there is nothing to escape.
        super().__init__(
            loader=loader,
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=_finalize,
            auto_reload=False,
            optimized=False,  # Jinja's optimizer evaluates constants with Python's own operators
        )
        self.globals = {"range": range}
        self.used: set[str] = set()
        del self.filters["random"]
        for name in self.filters.keys() - _TAKE_ANYTHING:
            self.filters[name] = _printing(self.filters[name])
        for name in ("min", "max", "sort"):
            self.filters[name] = values.ordering(name, self.filters[name])
        self.filters |= {
            "int": values.strict(do_int, "an integer"),
            "float": values.strict(do_float, "a number"),
            "join": _join,
        }
        for name, comparison in values.TESTS.items():
            self.tests[name] = lambda left, right, comparison=comparison: values.compare(comparison, left, right)
        self.tests["sameas"] = values.is_same
        for name, truth in (("true", True), ("false", False)):
            self.tests[name] = lambda value, truth=truth: values.is_same(value, truth)
        for name in self.tests.keys() - {"defined", "undefined"}:
            self.tests[name] = _of_defined(self.tests[name])

    def compare(self, left: Any, *operations: Any) -> bool:
        for name, right in zip(operations[::2], operations[1::2], strict=True):
            if not values.compare(name, left, right):
                return False
            left = right
        return True

    def concatenate(self, parts: Sequence[Any]) -> str:
        return Value("".join(str(_printable(part)) for part in parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        both = reads_as_number(left), reads_as_number(right)
        if (operator == "+" and all(both)) or (operator == "*" and any(both)):
            raise TextAsNumberError(f"{left!r} {operator} {right!r} takes text for a number")
        if operator == "%" and isinstance(left, str):
            by_name = isinstance(right, dict) and not _BY_POSITION.search(left.replace("%%", ""))
            for value in right.values() if by_name else right if isinstance(right, tuple) else (right,):
                _printable(value)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, dict) and argument not in obj:
            values.refuse_mixes(argument, obj)
        return as_value(super().getitem(obj, argument))

    def call(__self, __context: Context, __obj: Any, *args: Any, **named: Any) -> Any:  # noqa: N805 - as Jinja's
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str) and name in ("format", "format_map"):
            if name == "format_map":
                args, named = (), *args
            return _Formatter(__self).vformat(owner, args, named)
        if isinstance(owner, dict | list | tuple | range) and name in ("get", "count") and args[0] not in owner:
            values.refuse_mixes(args[0], owner)
        result = super().call(__context, __obj, *args, **named)
        if isinstance(owner, str) and isinstance(result, list):  # split() and its like
            return [as_value(part) for part in result]
        return as_value(result)


class _Loader(jinja2.BaseLoader):
    """Reads the templates of one directory, without following links out of the family."""

    def __init__(self, directory: Path, folders: Sequence[str]) -> None:
        self._directory, self._folders = directory, folders
        self.files: set[str] = set()
        self.read: dict[str, str | None] = {}

    def get_source(self, _: jinja2.Environment, template: str) -> tuple[str, str, None]:
        parts = split_template_path(template)
        path, name = self._directory.joinpath(*parts), "/".join(parts)
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            self.read[name] = None
            raise jinja2.TemplateNotFound(template)
        self.files.add(str(path))
        content = read_template(path, self._folders)
        self.read[name] = hashlib.sha256(content).hexdigest()
        return _decode(content), str(path), None
