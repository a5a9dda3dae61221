"""Proof that the fast tier is fast and covers every module: ``python -m tests.support.fast_tier``.

It runs ``pytest -m "not slow"`` under coverage.py, and fails if it takes longer than a minute, or if fewer than half of
a module's functions are entered.
"""

import argparse
import ast
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.process import ROOT, environment
from tests.support.source_code import PACKAGE, syntax_trees

LIMIT = 60  # seconds, coverage.py included
SHARE = 0.5  # of a module's functions
#: Modules of which this process alone, without a GPU, enters less, and why.
EXCEPTIONS = {
    "__main__.py": "in processes of their own",
    "compile/compiler.py": "abstract methods",
    "build/execution/worker.py": "in a process of its own",
    "build/execution/transport.py": "in worker processes",
    "build/execution/events.py": "methods without a body, for observers to override",
    "cli/output.py": "in a process on a terminal",
    "packaging/hooks/setuptools.py": "in builds of packages by setuptools, which are slow",
    "packaging/hooks/build_fragments.py": "in builds of packages by setuptools, which are slow",
    "cli/demo.py": "builds and links a shipped family, which is slow",
    "cli/ending.py": "in processes that a signal ends",
    "launch/launcher.py": "a GPU",
    "frameworks/jax_call.py": "JAX, which callers bring",
    "frameworks/torch_fusion.py": "PyTorch, which callers bring",
    "frameworks/torch_kernel.py": "PyTorch, which callers bring",
    "frameworks/torch_operator.py": "PyTorch, which callers bring",
    "plan/user_code/numba_compiler.py": "Numba, an extra of its own",
}


def main() -> int:
    """Run the fast tier and judge it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds it may take")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "coverage"
        begin = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--cov", str(PACKAGE), "--cov-report="]
        status = subprocess.run(command, cwd=ROOT, env=environment(COVERAGE_FILE=str(data)), check=False).returncode
        seconds = time.monotonic() - begin
        left = list(_uncovered(data))
    print(f"fast tier: {seconds:.0f} s, {len(syntax_trees())} modules")
    for line in left:
        print(line)
    if seconds > options.limit:
        print(f"the fast tier takes longer than {options.limit:.0f} s: mark what is slow (pytest --durations=30)")
    return int(status != 0 or bool(left) or seconds > options.limit)


def _uncovered(data: Path) -> Iterator[str]:
    """A line for each module of which too few functions were entered."""
    from coverage import CoverageData

    measured = CoverageData(str(data))
    measured.read()
    for path, tree in syntax_trees().items():
        run = set(measured.lines(str(PACKAGE / path)) or ())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        missed = [function.name for function in functions if run.isdisjoint(_body(function))]
        if str(path) not in EXCEPTIONS and len(functions) - len(missed) < SHARE * len(functions):
            yield f"{path}: {len(missed)} of {len(functions)} functions not entered: {', '.join(missed)}"


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    """The lines of a function below its docstring."""
    first = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return range(first[0].lineno, (function.end_lineno or first[0].lineno) + 1)


if __name__ == "__main__":
    sys.exit(main())
