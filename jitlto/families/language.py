"""The language of templates: Jinja, in which an undefined name is an error, and CMake's ``@name@``."""

from __future__ import annotations

import os.path
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import jinja2
from jinja2.filters import do_float, do_int
from jinja2.sandbox import SandboxedEnvironment

from jitlto.base.diagnostic import Location
from jitlto.base.errors import RenderError
from jitlto.base.text import suggest

#: What CMake's @ONLY takes for a name.
PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")
_FALSE = re.compile(r"\s*(?:false|no|off|none|null|nullptr|[+-]?0+(?:\.0*)?[uUlLfF]*)\s*", re.I)
_MARKS = (
    "\1",
    "\2",
    "\3",
    "\4",
    "\5",
    "\6",
)  # which no text has, in place of Jinja's own: of blocks, values and comments
_NO_DEFAULT: Any = object()


class Template:
    """A template and the entries of ``params`` beside it.

    Args:
        path: The template's file.
        syntax: ``jinja`` or ``cmake``.
        params: The entries.
        directories: Where templates that it names are searched behind its own directory.
    """

    def __init__(self, path: Path, syntax: str, params: Sequence[str] = (), directories: Sequence[Path] = ()) -> None:
        self.text: str | None = None  # in place of the file's
        #: Its file.
        self.path = path
        self._params, self._directories = params, (path.parent, *directories)
        #: The names that were looked up.
        self.used: set[str] = set()
        self._environment = _Environment(self._directories, self.used, is_cmake=syntax == "cmake")
        self._made: dict[str | None, jinja2.Template] = {}  # by entry of params; None: the file's

    def render(self, combination: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        """Render one combination: the text, and the entries of ``params``.

        Raises:
            RenderError: Without a location if an entry of ``params`` cannot be rendered.
        """
        values = {name: Value(value) for name, value in combination.items()}
        texts: list[str] = []
        for entry in (*self._params, None):
            try:
                texts.append(self._render(entry, values))
            except Exception as error:  # noqa: BLE001 - whatever an expression may raise
                raise self._describe(error, combination, entry) from None
        return texts[-1], tuple(texts[:-1])

    def place(self, combination: Mapping[str, str], line: int, about: str) -> Location:
        """Return the place in its file from which a line of the text for a combination comes.

        It is the file alone if that line is of what the template includes, or of a value of several lines.
        """
        source, found = "", None  # the text again, in which each line has its number in the template
        with suppress(Exception):  # it may have been changed, and what is made of a text may need it as it is
            text = self._environment.preprocess(self.path.read_text("utf-8-sig"))
            for first, kind, part in self._environment.lex(text):
                mark = "\0{}\0" if kind == "data" else ""
                source += "\n".join(each + mark.format(n) for n, each in enumerate(part.split("\n"), first))
            lines = self._environment.from_string(source).render(combination).split("\n")
            found = int(re.findall("\0(\\d+)\0", lines[line - 1])[0])
        return Location(str(self.path), found, about=about)

    def _render(self, entry: str | None, values: Mapping[str, Value]) -> str:
        if entry not in self._made:
            self._made[entry] = self._make(entry)
        text = self._made[entry].render(values)
        text.encode()  # raises at an unpaired surrogate, which an escape can make
        return text

    def _make(self, entry: str | None) -> jinja2.Template:
        entry = self.text if entry is None else entry
        if entry is None:
            return self._environment.get_template(self.path.name)
        return self._environment.from_string(entry)

    def _describe(self, error: Exception, combination: Mapping[str, str], entry: str | None) -> RenderError:
        code, what = "render-failed", str(error) or type(error).__name__
        hint = f"names in this combination: {', '.join(combination) or 'none'}"
        if isinstance(error, TextAsNumberError):
            code = "render-text-as-number"
            hint = "values of a matrix are text: compare with text (x == '8', flag == 'true'), join with ~, or convert "
            hint += "(x|int > 4)"
        elif isinstance(error, jinja2.TemplateNotFound):
            code, what, hint = "render-missing-template", f"no template {error}", "paths are relative to the template, "
            hint += "or to a directory that [family] templates names"
        elif isinstance(error, OSError | UnicodeDecodeError):
            code, what, hint = "render-unreadable", f"cannot read the template: {error}", "save it as UTF-8"
        elif isinstance(error, jinja2.TemplateSyntaxError):
            code, what = "render-syntax", error.message or what
        elif isinstance(error, jinja2.UndefinedError):
            code = "render-undefined"
            if name := re.match("'(.+)' is undefined", what):
                hint = suggest(name[1], combination, hint)
        if entry is not None:
            return RenderError(f"{what} (params entry {entry!r})", code=code, hint=hint)
        return RenderError(what, code=code, where=self._locate(error), hint=hint)

    def _locate(self, error: Exception) -> Location:
        """Find the file and line of the template, or of one that it includes, at which rendering failed."""
        file, line = str(self.path), None
        directories = [os.path.normpath(each) for each in self._directories]
        if isinstance(error, jinja2.TemplateSyntaxError):
            file, line = error.filename or file, error.lineno
        else:
            # Jinja gives the frames of its compiled templates the templates' own files, normalised, and lines.
            for frame, number in traceback.walk_tb(error.__traceback__):
                if any(map(Path(frame.f_code.co_filename).is_relative_to, directories)):
                    file, line = frame.f_code.co_filename, number
        return Location(file, line)


class TextAsNumberError(TypeError):
    """Text is used where only a number or a truth value makes sense."""


def _refusing(operator: str) -> Any:
    def method(self: Value, other: object) -> Any:
        other = str(other) if isinstance(other, str) else other
        raise TextAsNumberError(f"{str(self)!r} {operator} {other!r} takes text for a number")

    return method


class Value(str):
    """A value of a matrix: text, which is neither taken for a number nor asked whether it is true.

    Python would answer that ``"8" == 8`` is false, that ``"16" < "8"`` and ``"false"`` are true, and that ``"8" * 2``
    is ``"88"``: each gives a kernel that was not meant, and no error.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        if _FALSE.fullmatch(self):
            raise TextAsNumberError(f"the condition is the text {str(self)!r}, which counts as true: compare it")
        return len(self) > 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float):  # truth values too
            raise TextAsNumberError(f"the text {str(self)!r} is compared with {other!r}, which is not text")
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
    __lt__, __le__, __gt__, __ge__ = map(_refusing, ("<", "<=", ">", ">="))
    __add__, __radd__, __mul__, __rmul__ = map(_refusing, "++**")

    def lower(self) -> Value:
        """Return a value too: Jinja compares this text where it looks for the largest or sorts."""
        return Value(str.lower(self))


# As Python and Jinja call it in their messages.
Value.__name__, Value.__module__ = "text", "builtins"


class _Context(jinja2.runtime.Context):
    """A context that notes which names are looked up."""

    environment: _Environment

    def resolve_or_missing(self, key: str) -> Any:
        self.environment.used.add(key)
        return super().resolve_or_missing(key)


class _Environment(SandboxedEnvironment):
    """Jinja for C++, which gives the same text every time."""

    context_class = _Context

    def __init__(self, directories: Sequence[Path], used: set[str], *, is_cmake: bool) -> None:
        self.used, self._is_cmake = used, is_cmake
        super().__init__(
            *(_MARKS if is_cmake else ()),
            loader=jinja2.FileSystemLoader(directories, encoding="utf-8-sig"),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=_printable,
            auto_reload=False,
        )
        del self.filters["random"], self.globals["lipsum"]
        self.filters |= {"int": _strict(do_int, "an integer"), "float": _strict(do_float, "a number")}
        self.filters |= {"value": jinja2.pass_context(lambda context, name: context.resolve(name))} if is_cmake else {}
        del self.tests["true"], self.tests["false"]  # no text is
        for name in self.tests.keys() - {"defined", "undefined"}:
            self.tests[name] = _of_defined(self.tests[name])

    def preprocess(self, source: str, name: str | None = None, filename: str | None = None) -> str:  # noqa: ARG002
        begin, end = _MARKS[2:4]
        return PLACEHOLDER.sub(rf"{begin}'\1'|value{end}", source) if self._is_cmake else source


def _printable(value: Any) -> Any:
    """Return a text or a number; refuse what Python would describe, perhaps by its address."""
    if not isinstance(value, str | int | float | jinja2.Undefined):
        what = f"a {type(value).__name__} is printed instead of text or a number; put C++ braces between "
        raise TypeError(what + "{% raw %} and {% endraw %}")
    return value


def _strict(convert: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Make a filter that converts, but has no default of its own for what cannot be converted."""

    def filter_(value: Any, default: Any = _NO_DEFAULT, *rest: Any) -> Any:
        result = convert(value, default, *rest)
        if result is _NO_DEFAULT:
            raise TextAsNumberError(f"{value!r} is not {what}")
        return result

    return filter_


def _of_defined(test: Any) -> Callable[..., Any]:
    """Make a test refuse an undefined name, which for Jinja ``is not none``."""

    @wraps(test)  # which copies Jinja's mark of a first argument too
    def checked(*args: Any, **named: Any) -> Any:
        for value in args:
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises
        return test(*args, **named)

    return checked
