"""The process that renders: limits on what a template may take, and a description of what went wrong in one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import jinja2

from jitlto.base.text import suggest
from jitlto.families.rendering import plain_text
from jitlto.families.rendering.language import (
    CMakeTemplate,
    JinjaTemplate,
    UndefinedPlaceholderError,
)
from jitlto.families.rendering.process import LIMIT_HINT, Answer, Request
from jitlto.families.rendering.template_files import OutsideError
from jitlto.families.rendering.values import TextAsNumberError

_PAGE = resource.getpagesize()


class PlaceholderError(Exception):
    """A CMake placeholder is left in what a Jinja template gives."""


def serve(descriptor: int) -> None:
    """Answer requests from standard input on a descriptor, until the program that sends them ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = _used_memory()
    # The program may be killed while an answer is made, which is no reason for a traceback.
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb", buffering=0) as answers:
        for line in sys.stdin.buffer:
            request, context = json.loads(line)
            os.chdir(context["directory"])
            _limit(resource.RLIMIT_AS, used + context["memory"])
            kind = JinjaTemplate if request["syntax"] == "jinja" else CMakeTemplate
            template = kind(Path(request["template"]), request["folders"])
            for combination in request["combinations"]:
                usage = resource.getrusage(resource.RUSAGE_SELF)
                _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + 1 + context["seconds"])
                answer = _answer(template, request, combination, context["length"])
                answers.write(json.dumps(answer).encode() + b"\n")
                if "what" in answer and request["stop"]:
                    break


def _used_memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    except OSError:
        return 0


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _answer(
    template: JinjaTemplate | CMakeTemplate, request: Request, combination: Mapping[str, str], length: int
) -> Answer:
    entry: str | None = None
    try:
        params = []
        for entry in request["entries"]:
            params.append(_check(template.render_text(entry, combination), length))  # noqa: PERF401
        entry = None
        text = _check(template.render_file(combination), length)
        if isinstance(template, JinjaTemplate) and (left := plain_text.find_placeholder(text)):
            raise PlaceholderError(f"{left[0]} is left in the source: it is a placeholder of CMake, not of Jinja")
        files, used = dict(template.read), sorted(template.used)
        return {"text": text, "params": params, "digest": plain_text.digest(text), "read": files, "used": used}
    except Exception as error:  # noqa: BLE001 - the program raises it
        answer = _describe(error, combination)
        if entry is None:
            answer["where"] = _locate(error, template, request["template"])
        else:
            answer["entry"] = entry
        return answer


def _check(text: str, length: int) -> str:
    text.encode()  # raises at an unpaired surrogate, which an escape can make
    if len(text) > length:
        raise MemoryError(f"gives more than {length:,} characters")
    return text


def _describe(error: Exception, combination: Mapping[str, str]) -> Answer:
    code, what = "render-failed", str(error)
    hint = f"names in this combination: {', '.join(combination) or 'none'}"
    if isinstance(error, MemoryError):
        code, what, hint = "render-limit", f"rendering {what or 'takes too much memory'}", LIMIT_HINT
    elif isinstance(error, RecursionError):
        code, what, hint = "render-limit", f"rendering does not end: {what}", LIMIT_HINT
    elif isinstance(error, TextAsNumberError):
        code = "render-text-as-number"
        hint = "values of a matrix are text: compare with text (x == '8', flag == 'true'), or convert (x|int > 4)"
    elif isinstance(error, PlaceholderError):
        code, hint = "render-placeholder", 'declare syntax = "cmake" for the group or the family, or write {{ name }}'
    elif isinstance(error, OutsideError):
        code, hint = "render-outside", "copy the file into the family, or link to a file inside it"
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
    return {"code": code, "what": what or type(error).__name__, "hint": hint}


def _locate(error: Exception, template: JinjaTemplate | CMakeTemplate, path: str) -> str:
    """Find the file and line of the template, or of one that it includes, at which rendering failed."""
    file, line = path, 0
    if isinstance(error, jinja2.TemplateSyntaxError):
        file, line = error.filename or file, error.lineno
    elif isinstance(error, UndefinedPlaceholderError):
        line = error.line
    elif isinstance(error, PlaceholderError):
        for name in (path, *sorted(template.files)):
            if found := plain_text.find_placeholder(Path(name).read_text("utf-8-sig")):
                return f"{name}:{found[1]}"
    else:
        # Jinja gives the frames of its compiled templates the templates' own files and lines.
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename in template.files:
                file, line = frame.f_code.co_filename, number
    return f"{file}:{line}" if line else file
