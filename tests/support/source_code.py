"""The package's source code, parsed once."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.process import ROOT

PACKAGE = ROOT / "jitlto"


@cache
def syntax_trees() -> Mapping[Path, ast.Module]:
    """The syntax tree of each module, by its path below the package."""
    return {path.relative_to(PACKAGE): ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}
