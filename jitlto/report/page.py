"""A report as one HTML page that needs no network and no library.

Text from a database is untrusted. Jinja escapes it, no script or style contains any of it, and the page's
Content-Security-Policy allows only its own script and style, by hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from importlib import resources
from zlib import compress

import jinja2
from markupsafe import Markup

from jitlto.base.text import format_bytes
from jitlto.report.calls import FragmentSet
from jitlto.report.content import FragmentView, Report

#: Of more fragments, and of larger grids, a browser makes only what is looked at: 5,000 rows take it seconds.
MOST_ROWS = 500


def to_html(report: Report) -> str:
    """Render the page; equal reports give the same text."""
    style, script = _style(), _file("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        report=report,
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy,
        lazy=report.fragments > MOST_ROWS,
        most_rows=MOST_ROWS,
        largest=max((view.size.total for f in report.families for g in f.groups for view in g.fragments), default=0),
        longest=_most(view.seconds for f in report.families for g in f.groups for view in g.fragments),
        largest_group=max((group.size.total for f in report.families for group in f.groups), default=0),
        longest_group=_most(group.seconds for f in report.families for group in f.groups),
    )


def _most(values: Iterable[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def duration(seconds: float | None) -> str:
    """Format a duration.

    >>> duration(0.0123), duration(0.61), duration(96.2), duration(600), duration(None)
    ('12 ms', '0.61 s', '96 s', '10 min 0 s', '')
    """
    if seconds is None:
        return ""
    if seconds >= 599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes:,} min {rest} s"
    return f"{1000 * seconds:.0f} ms" if seconds < 0.0995 else f"{seconds:.{0 if seconds >= 9.995 else 2}f} s"


def packed(rows: Iterable[tuple[FragmentView, str]]) -> str:
    """Return the rows of the list of fragments, with what they are filtered and sorted by, as compressed text."""
    content = [
        (str(view.key), view.number, view.size.ltoir, view.size.ptx, view.size.total, view.seconds or 0, str(html))
        for view, html in rows
    ]
    return compressed(json.dumps(content, separators=(",", ":")))


def compressed(text: str) -> str:
    """Compress a text for the script; none of the characters of Base64 ends a script element or begins a comment."""
    return base64.b64encode(compress(text.encode())).decode()


def share(part: float, whole: float) -> str:
    """Return the CSS class of a bar that shows ``part`` of ``whole`` in percent, at least 1 unless it is zero."""
    percent = round(100 * part / whole) if whole > 0 else 0
    return f"p{min(100, max(percent, 1 if part > 0 else 0))}"


def query(family: str, several: FragmentSet) -> str:
    """Return the filter that shows these fragments, and as few others as possible."""
    terms = [f"{family}/{several.group}[", *(f"{name}={value}" for name, value in several.common)]
    # The filter takes terms with blanks in quotes; it cannot express a term that contains a quote.
    return " ".join(f'"{term}"' if re.search(r"\s", term) else term for term in terms if '"' not in term)


def visible(value: object) -> object:
    """Escape the characters of a text that a browser would hide or reorder, or that UTF-8 cannot encode."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return resources.files("jitlto.report").joinpath(name).read_text("utf-8")


def _style() -> str:
    # Widths of bars are classes, because the policy does not allow style attributes.
    return _file("report.css") + "".join(f".p{n}{{--p:{n}%}}" for n in range(101)) + "\n"


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"bytes": format_bytes, "duration": duration}
    environment.globals |= {"share": share, "query": query, "packed": packed, "compressed": compressed}
    return environment.from_string(_file("report.html.jinja"))
