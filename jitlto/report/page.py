"""A report as one HTML page that needs no network and no library.

Text from a database is untrusted. Jinja escapes it, no script or style contains any of it, and the page's
Content-Security-Policy allows only its own script and style, by hash. The list of fragments is data, which the script
shows as text, so many rows at a time.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from jitlto.base.mangling import demangle
from jitlto.base.text import format_bytes
from jitlto.record.fragment import Fragment
from jitlto.report import drawing
from jitlto.report.content import Report, describe_image, size


def to_html(report: Report) -> str:
    """Render the page; equal reports give the same text."""
    style, script = Markup(_file("report.css")), Markup(_file("report.js"))  # noqa: S704 - our own files
    policy = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    rows = json.dumps([_row(fragment) for fragment in report.fragments], separators=(",", ":"))
    data = Markup(rows.replace("<", "\\u003c"))  # noqa: S704 - JSON in which nothing ends the element
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"bytes": format_bytes, "number": "{:,}".format, "size": size}
    content = {"report": report, "style": style, "script": script, "data": data, "box": drawing}
    template = environment.from_string(_file("report.html.jinja"))
    return template.render(content, policy=f"default-src 'none'; {policy}")


def _row(fragment: Fragment) -> dict[str, Any]:
    """Return what the script shows of a fragment."""
    key, kernel = fragment.key, [demangle(fragment.entry)] if fragment.entry else []
    about = {
        "Kernel": [*kernel, f"({', '.join(map(str, fragment.signature))})"] if kernel else [],
        "Calls": [demangle(symbol.name) for symbol in fragment.requires],
        "Provides": [demangle(symbol.name) for symbol in fragment.provides],
        "Images": [f"{describe_image(i)}, {i.size:,} bytes, SHA-256 {i.sha256[:16]}…" for i in fragment.images],
    }
    return {
        "key": key.text,
        "name": f"{key.family}/{key.group}",
        "parameters": [visible(f"{name}={value}") for name, value in key.parameters],
        "size": format_bytes(size([fragment])),
        "about": {what: [visible(line) for line in lines] for what, lines in about.items()},
    }


def visible(value: Any) -> Any:
    """Escape the characters of a text that a browser would hide or reorder, or that UTF-8 cannot encode."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return resources.files("jitlto.report").joinpath(name).read_text("utf-8")
