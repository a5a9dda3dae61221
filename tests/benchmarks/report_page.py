"""How long a report's page takes to open: ``python -m tests.benchmarks.report_page search.fragdb ivf_flat.fragdb``.

Each page is opened in headless Chromium so many times, in turn. Told are the milliseconds from the begin of the
navigation to the first contentful paint and to the end of the load event, what it takes to make the page, and how many
processes wanted the cores meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jitlto.database import FragmentDatabase
from jitlto.report import page
from jitlto.report.content import describe
from tests.benchmarks import machine
from tests.support import chromium

_FIGURES = """(() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return [performance.getEntriesByType("navigation")[0].loadEventEnd, paint.startTime];
})()"""


def main() -> None:
    """Measure, and print or write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("databases", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    program = chromium.find()
    if program is None:
        raise SystemExit("no Chromium found: install it or name it JITLTO_TEST_CHROMIUM")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pages = {path.name: _make(path, directory) for path in arguments.databases}
        with chromium.browser(program, directory / "profile") as tab:
            version = tab.browser_version
            for _ in range(arguments.runs):
                for figures in pages.values():
                    tab.open(figures["path"])
                    tab.wait_for("performance.getEntriesByName('first-contentful-paint').length")
                    load, paint = tab.evaluate(_FIGURES)
                    figures["load_ms"].append(round(load, 1))
                    figures["first_paint_ms"].append(round(paint, 1))
    for figures in pages.values():
        del figures["path"]
        for name in ("load_ms", "first_paint_ms"):
            figures[f"{name}_median"] = statistics.median(figures[name])
    result = {
        **machine.describe(machine.command_line()),
        "browser": version,
        "load_average": os.getloadavg()[0],
        "pages": pages,
    }
    text = json.dumps(result, indent=1) + "\n"
    if arguments.output:
        arguments.output.write_text(text, "utf-8")
    print(text)


def _make(path: Path, directory: Path) -> dict[str, Any]:
    with FragmentDatabase(path) as database:
        begin = time.perf_counter()
        text = page.to_html(describe(database))
        seconds = time.perf_counter() - begin
        html = directory / f"{path.stem}.html"
        html.write_text(text, "utf-8")
        return {
            "path": html,
            "fragments": len(database.fragments()),
            "bytes": len(text.encode()),
            "made_in_seconds": round(seconds, 3),
            "load_ms": [],
            "first_paint_ms": [],
        }


if __name__ == "__main__":
    main()
