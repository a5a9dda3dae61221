"""A report as one HTML page that needs no network, no library and no script.

Text from a database is untrusted. Jinja escapes it, the style contains none of it, and the page's
Content-Security-Policy allows only its own style, by hash.
"""

import base64
import hashlib
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from jitlto.base.mangling import demangle
from jitlto.base.text import format_bytes
from jitlto.report.content import Report, size


def to_html(report: Report) -> str:
    """Render the page; equal reports give the same text."""
    style = _file("report.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"bytes": format_bytes, "number": "{:,}".format, "size": size, "demangle": demangle}
    template = environment.from_string(_file("report.html.jinja"))
    return template.render(report=report, style=Markup(style), style_hash=digest)  # noqa: S704 - our own


def visible(value: Any) -> Any:
    """Escape the characters of a text that a browser would hide or reorder, or that UTF-8 cannot encode."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


def _file(name: str) -> str:
    return resources.files("jitlto.report").joinpath(name).read_text("utf-8")
