"""A plot of what tuning tried, as SVG: a bar for each variant, with its spread; readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from jitlto.tuning.wisdom import Entry

_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD = 1000, 430, 110, 18, 44  # pixels
_MOST_ROWS = 40
_STYLE = """text{font:12px sans-serif;fill:#1f2328}.t{font-size:14px;font-weight:bold}.b{fill:#0969da}.c{fill:#1a8f7a}
.d{fill:#d1741a}.s{stroke:#57606a;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#4493f8}
.c{fill:#3fc1a8}.d{fill:#f0a04b}.s{stroke:#9198a1}}"""


def draw(problems: Sequence[tuple[str, Entry]]) -> str:
    """Return the plot: the fastest variants of each problem, the chosen one and the default marked."""
    shapes: list[str] = []
    y = 10
    for title, entry in problems:
        ranked = sorted(entry.trials, key=lambda trial: trial.seconds)
        rows = list(dict.fromkeys([*ranked[:_MOST_ROWS], entry.chosen, entry.default]))
        scale = (_WIDTH - _LEFT - _RIGHT) / max(trial.seconds * (1 + trial.spread) for trial in rows)
        more = f", {len(ranked) - len(rows)} more" if len(ranked) > len(rows) else ""
        shapes.append(f'<text class="t" x="10" y="{y + 16}">{escape(title)}{more}</text>')
        shapes.append(f'<text x="10" y="{y + 34}">{escape(str(entry.device))}: median, lines: quartiles</text>')
        y += _HEAD
        for trial in rows:
            kind = "c" if trial == entry.chosen else "d" if trial == entry.default else "b"
            width, middle = trial.seconds * scale, y + _ROW / 2
            ends = [_LEFT + width * (1 + sign * trial.spread) for sign in (-1, 1)]
            name = f"{trial.variant}"[:62] + {"c": " (chosen)", "d": " (default)", "b": ""}[kind]
            shapes += [
                f'<text x="{_LEFT - 6}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
                f'<rect class="{kind}" x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}"/>',
                f'<line class="s" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" y2="{middle}"/>',
                f'<text x="{ends[1] + 5:.1f}" y="{middle + 4}">{1e6 * trial.seconds:.4g} µs</text>',
            ]
            y += _ROW
        y += 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *shapes, "</svg>", ""])
