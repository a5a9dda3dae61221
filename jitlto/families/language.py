"""The language of templates: Jinja, in which an undefined name is an error, and CMake's ``@name@``."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.filters import do_float, do_int
from jinja2.sandbox import SandboxedEnvironment

from jitlto.base.errors import RenderError
from jitlto.base.text import suggest
from jitlto.families import plain_text
from jitlto.families.rendered_texts import Rendered, TemplateText

_PLACEHOLDER = re.compile(r"@([A-Za-z0-9/_.+-]+)@")  # what CMake's @ONLY takes for a name
_NUMBER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*\s*")
_FALSE = re.compile(r"\s*(?:false|no|off|none|null|nullptr|[+-]?0+(?:\.0*)?[uUlLfF]*)\s*", re.I)
_NO_DEFAULT: Any = object()


class Template:
    """A template and the entries of ``params`` that belong to it.

    Args:
        given: The template.

    Attributes:
        read: The SHA-256 of each file read so far, by its name beside the template; None for one that is not there.
    """

    def __init__(self, given: TemplateText) -> None:
        self._given = given
        self.read: dict[str, str | None] = {}
        if given.syntax == "jinja":
            self._environment = _Environment(given.path.parent, self.read)
        self._cmake: str | None = None
        self._entries: dict[str, jinja2.Template] = {}

    def render(self, combination: Mapping[str, str]) -> Rendered:
        """Render one combination.

        Raises:
            RenderError: Without a location if an entry of ``params`` cannot be rendered.
        """
        entry: str | None = None
        try:
            params = []
            for entry in self._given.params:
                params.append(_encodable(self._render_entry(entry, combination)))  # noqa: PERF401
            entry = None
            text = _encodable(self._render_file(combination))
        except Exception as error:  # noqa: BLE001 - whatever an expression may raise
            raise self._describe(error, combination, entry) from None
        return Rendered(text, tuple(params), plain_text.digest(text))

    def _render_file(self, combination: Mapping[str, str]) -> str:
        path = self._given.path
        if self._given.syntax == "jinja":
            return self._environment.get_template(path.name).render(_values(combination))
        if self._cmake is None:
            self._cmake = path.read_text("utf-8-sig")
            self.read[path.name] = _sha256(self._cmake)
        return self._substitute(self._cmake, combination)

    def _render_entry(self, text: str, combination: Mapping[str, str]) -> str:
        if self._given.syntax != "jinja":
            return self._substitute(text, combination)
        if text not in self._entries:
            self._entries[text] = self._environment.from_string(text)
        return self._entries[text].render(_values(combination))

    def _substitute(self, text: str, combination: Mapping[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in combination:
                raise _UndefinedPlaceholderError(match[1], text.count("\n", 0, match.start()) + 1)
            return combination[match[1]]

        return _PLACEHOLDER.sub(value, text)

    def _describe(self, error: Exception, combination: Mapping[str, str], entry: str | None) -> RenderError:
        code, what = "render-failed", str(error) or type(error).__name__
        hint = f"names in this combination: {', '.join(combination) or 'none'}"
        if isinstance(error, TextAsNumberError):
            code = "render-text-as-number"
            hint = "values of a matrix are text: compare with text (x == '8', flag == 'true'), or convert (x|int > 4)"
        elif isinstance(error, jinja2.TemplateNotFound):
            code, what, hint = "render-missing-template", f"no template {error}", "paths are relative to the template"
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

    def _locate(self, error: Exception) -> str:
        """Find the file and line of the template, or of one that it includes, at which rendering failed."""
        file, line = str(self._given.path), 0
        if isinstance(error, jinja2.TemplateSyntaxError):
            file, line = error.filename or file, error.lineno
        elif isinstance(error, _UndefinedPlaceholderError):
            line = error.line
        else:
            # Jinja gives the frames of its compiled templates the templates' own files and lines.
            files = {str(self._given.path.parent / name) for name in self.read}
            for frame, number in traceback.walk_tb(error.__traceback__):
                if frame.f_code.co_filename in files:
                    file, line = frame.f_code.co_filename, number
        return f"{file}:{line}" if line else file


class TextAsNumberError(TypeError):
    """Text is used where only a number or a truth value makes sense."""


class _UndefinedPlaceholderError(jinja2.UndefinedError):
    """A CMake placeholder names nothing in the combination."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(f"{name!r} is undefined")
        self.line = line


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

    def __add__(self, other: Any) -> Any:
        return self._refuse("+", other) if _is_number(other) and _is_number(self) else str.__add__(self, other)

    def __mul__(self, other: Any) -> Any:
        return self._refuse("*", other) if _is_number(self) else str.__mul__(self, other)

    __rmul__ = __mul__

    def __lt__(self, other: Any) -> bool:
        return self._ordered("<", other) and str.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        return self._ordered("<=", other) and str.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        return self._ordered(">", other) and str.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        return self._ordered(">=", other) and str.__ge__(self, other)

    def _ordered(self, operator: str, other: object) -> bool:
        if isinstance(other, int | float) or (_is_number(self) and _is_number(other)):
            self._refuse(operator, other)
        return True

    def _refuse(self, operator: str, other: object) -> NoReturn:
        other = str(other) if isinstance(other, str) else other
        raise TextAsNumberError(f"{str(self)!r} {operator} {other!r} takes text for a number")


class _Loader(jinja2.FileSystemLoader):
    """Notes the files that are read, or looked for in vain."""

    def __init__(self, directory: Path, read: dict[str, str | None]) -> None:
        super().__init__(directory, encoding="utf-8-sig")
        self._read = read

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        self._read[template] = None
        found = super().get_source(environment, template)
        self._read[template] = _sha256(found[0])
        return found


class _Environment(SandboxedEnvironment):
    """Jinja for C++, which gives the same text every time."""

    def __init__(self, directory: Path, read: dict[str, str | None]) -> None:
        super().__init__(
            loader=_Loader(directory, read),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=_printable,
            auto_reload=False,
        )
        del self.filters["random"], self.globals["lipsum"]
        self.filters |= {"int": _strict(do_int, "an integer"), "float": _strict(do_float, "a number")}
        for name in self.tests.keys() - {"defined", "undefined"}:
            self.tests[name] = _of_defined(self.tests[name])
        self.tests |= {"true": lambda value: value == True and value is True}  # noqa: E712 - which Value refuses
        self.tests |= {"false": lambda value: value == False and value is False}  # noqa: E712


def _values(combination: Mapping[str, str]) -> dict[str, str]:
    return {name: Value(value) for name, value in combination.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _encodable(text: str) -> str:
    text.encode()  # raises at an unpaired surrogate, which an escape can make
    return text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _printable(value: Any) -> Any:
    """Return a text or a number; refuse what Python would describe, perhaps by its address."""
    if not isinstance(value, str | int | float | jinja2.Undefined):
        raise TypeError(
            f"a {type(value).__name__} is printed instead of text or a number; put C++ braces between "
            "{% raw %} and {% endraw %}"
        )
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
    """Make a test refuse an undefined name, which for Jinja ``is not none`` and ``is not true``."""

    @wraps(test)  # which copies Jinja's mark of a first argument too
    def checked(*args: Any, **named: Any) -> Any:
        for value in args:
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises
        return test(*args, **named)

    return checked
