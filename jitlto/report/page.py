"""A report as one HTML page that needs no network and no library.

Text from a database is untrusted. Jinja escapes it, no script or style contains any of it, and the page's
Content-Security-Policy allows only its own script and style, by hash. The list of fragments is data, which the script
shows as text, so many rows at a time.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any
from zlib import compress

import jinja2
from markupsafe import Markup

from jitlto.base.mangling import demangle
from jitlto.base.text import format_bytes
from jitlto.record.fragment import Symbol
from jitlto.report import drawing
from jitlto.report.content import Report, describe_image


def to_html(report: Report) -> str:
    """Render the page; equal reports give the same text."""
    style, script = Markup(_file("report.css")), Markup(_file("report.js"))  # noqa: S704 - our own files
    policy = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    content = {"report": report, "style": style, "script": script, "data": pack(report)}
    return _template().render(content, policy=f"default-src 'none'; {policy}")


def pack(report: Report) -> str:
    """Return the list of fragments for the script: compressed, in characters that end no script element."""
    symbols: dict[str, int] = {}  # the text of a symbol → its place

    def places(several: Sequence[Symbol]) -> list[int]:
        return [symbols.setdefault(visible(demangle(symbol.name)), len(symbols)) for symbol in several]

    rows: list[dict[str, Any]] = []
    for view in report.fragments:
        fragment = view.fragment
        images = [f"{describe_image(i)}, {i.size:,} bytes, SHA-256 {i.sha256[:16]}…" for i in fragment.images]
        row = {
            "number": view.number,
            "name": f"{fragment.key.family}/{fragment.key.group}",
            "parameters": [f"{name}={visible(value)}" for name, value in fragment.key.parameters],
            "size": view.size,
            "kernel": visible(demangle(fragment.entry)),
            "signature": [visible(str(parameter)) for parameter in fragment.signature],
            "requires": places(fragment.requires),
            "provides": places(fragment.provides),
            "images": [visible(image) for image in images],
        }
        rows.append(row)
    text = json.dumps({"symbols": list(symbols), "rows": rows}, separators=(",", ":"))
    return base64.b64encode(compress(text.encode())).decode()


def visible(value: Any) -> Any:
    """Escape the characters of a text that a browser would hide or reorder, or that UTF-8 cannot encode."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


def shade(part: int, whole: int) -> str:
    """Return the CSS class of a cell whose fragment has ``part`` of the ``whole`` bytes of the largest."""
    return f"s{round(4 * part / whole) if whole else 0}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return resources.files("jitlto.report").joinpath(name).read_text("utf-8")


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"bytes": format_bytes, "number": "{:,}".format}
    environment.globals |= {"shade": shade, "box": (drawing.WIDTH, drawing.HEIGHT)}
    return environment.from_string(_file("report.html.jinja"))
