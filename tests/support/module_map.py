"""The map of modules in docs/architecture.md, made from the first lines of docstrings.

python -m tests.support.module_map
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "jitlto"
PAGE = ROOT / "docs" / "architecture.md"
#: Highest first, as pyproject.toml has the layers.
LAYERS = ("cli", "report", "verify", "build", "runtime", "cuda", "storage", "model", ".")

_MAP = re.compile(r"(?<=<!-- module map: begin -->\n).*?(?=<!-- module map: end -->)", re.S)


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    first = re.sub(r":\w+:`[~.]?([^`]+)`", r"`\1`", first)
    return re.sub(r"\.$", "", first).replace("``", "`").replace("|", "\\|")


def _folders() -> Iterator[Path]:
    for layer in LAYERS:
        if layer == ".":
            yield PACKAGE
            continue
        yield from sorted(path.parent for path in (PACKAGE / layer).rglob("__init__.py"))


def module_map() -> str:
    """The tables of all folders, highest first, in Markdown."""
    lines = []
    for folder in _folders():
        name = folder.relative_to(PACKAGE).as_posix()
        title = "`jitlto/`" if name == "." else f"`{name}/`"
        lines += [f"### {title}", "", purpose(folder / "__init__.py") + ".", ""]
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        if modules:
            lines += ["| module | purpose |", "| --- | --- |"]
            lines += [f"| `{path.name}` | {purpose(path)} |" for path in modules]
            lines.append("")
    return "\n".join(lines)


def updated(page: str) -> str:
    """The text of the page with the map as the code has it."""
    text, found = _MAP.subn(lambda _: module_map(), page)
    if found != 1:
        raise SystemExit(f"{PAGE} has no place for the map: <!-- module map: begin --> and <!-- module map: end -->")
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
