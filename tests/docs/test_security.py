"""docs/security.md is true of the package's own code: what it does not use, it does not use."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.process import ROOT
from tests.support.source_code import PACKAGE, syntax_trees

PAGE = ROOT / "docs" / "security.md"
# Modules that run what they read, and functions that run text.
UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm", "yaml",
                  "ruamel", "code", "codeop", "runpy", "imp", "pickletools", "xmlrpc"}  # fmt: skip
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
EXCEPTIONS = {
    ("build/execution/workers.py", "pickle"),
    ("build/execution/worker.py", "pickle"),
    ("compile/snapshot.py", "pickle"),
    ("build/execution/transport.py", "pickle"),
}


def used(tree: ast.AST) -> Iterator[str]:
    """The unsafe modules and functions that code uses."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if isinstance(node.func, ast.Name) and called in UNSAFE_CALLS:
                yield called
            if called == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
                names = [str(node.args[0].value)]
            if called in ("system", "popen") and isinstance(node.func, ast.Attribute):
                yield f"os.{called}"
            if any(word.arg == "shell" for word in node.keywords):
                yield "a shell"
            if called == "load" and any(word.arg == "allow_pickle" for word in node.keywords):
                yield "numpy's pickles"
            if called in ("enable_load_extension", "load_extension"):
                yield called
        yield from (root for name in names if (root := name.partition(".")[0]) in UNSAFE_MODULES)


@pytest.mark.slow
def test_nothing_runs_what_it_reads_but_what_the_page_lists() -> None:
    found = {(str(path), what) for path, tree in syntax_trees().items() for what in used(tree)}
    assert found == EXCEPTIONS
    page = PAGE.read_text("utf-8")
    assert {name for name, _ in EXCEPTIONS} == set(re.findall(r"^\| `([\w/]+\.py)` \|", page, re.M))


def test_the_search_for_it_finds_it() -> None:
    text = """
import pickle, yaml.loader
from marshal import loads
import_module("dill")
eval("1"); exec(x); os.system("x"); subprocess.run("x", shell=True); connection.enable_load_extension(True)
re.compile("x"); toolchain.compile(job)
"""
    assert list(used(ast.parse(text))) == [
        "pickle", "yaml", "marshal", "dill", "eval", "exec", "os.system", "a shell", "enable_load_extension",
    ]  # fmt: skip


@pytest.mark.slow
def test_only_jobs_of_a_cluster_are_decompressed() -> None:
    modules = {"zlib", "gzip", "bz2", "lzma", "zipfile", "tarfile", "compression", "zstandard"}
    found = {
        str(path)
        for path, tree in syntax_trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in modules for alias in node.names))
        or (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] in modules
            and any(alias.name != "compress" for alias in node.names)
        )
    }
    assert found == {"build/execution/transport.py"}


def test_the_run_side_reads_no_pickles() -> None:
    assert not any("pickle" in path.read_text("utf-8") for path in sorted((PACKAGE / "runtime").rglob("*.py")))
