"""NVIDIA's Python packages are imported in one place, by one thread at a time."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from jitlto.cuda import libraries
from tests.support.process import ROOT, output_of
from tests.support.source_code import syntax_trees

_MODULE = re.compile(r"cuda\.(core|bindings|pathfinder)(\.\w+)*")


def _imported(tree: ast.Module) -> list[str]:
    """The modules of NVIDIA's packages that a module imports or names."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
        elif isinstance(node, ast.Constant) and _MODULE.fullmatch(str(node.value)):
            found.append(str(node.value))
    return [name for name in found if name.partition(".")[0] == "cuda"]


def test_no_other_module_imports_them() -> None:
    found = {str(path): names for path, tree in syntax_trees().items() if (names := _imported(tree))}
    assert found.keys() == {"cuda/libraries.py"}


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = libraries.nonsense


# As in cuda.core 1.2: while it is imported, it takes the specification of another module, so that Python believes that
# it has been.
CORE = """
import importlib.util, os, __main__
__spec__ = importlib.util.spec_from_loader("cuda.core", None)
__main__.begun.set()
for _ in range(1000):
    os.sched_yield()
class Device: ...
"""

FIRST = """
import threading
from jitlto.cuda import libraries
begun, found = threading.Event(), []
thread = threading.Thread(target=lambda: found.append(libraries.Device))
thread.start()
begun.wait()
found.append(libraries.Device)
thread.join()
print([each.__module__ for each in found])
"""

LAUNCHERS = """
import sys, threading
import jitlto
from jitlto.errors import NoDeviceError
family = jitlto.load("mini", sys.argv[1])
configurations = list(family.configurations())
barrier, found = threading.Barrier(60), []

def ask(number):
    barrier.wait()
    try:
        found.append(type(family.launcher(**configurations[number % len(configurations)])).__name__)
    except NoDeviceError as error:
        found.append(error.what)
    except BaseException as error:
        found.append(error)

threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), len({*found}))
"""


def test_a_package_is_whole_when_a_second_thread_gets_it(tmp_path: Path) -> None:
    (tmp_path / "cuda" / "core").mkdir(parents=True)
    (tmp_path / "cuda" / "core" / "__init__.py").write_text(CORE)
    printed = output_of(FIRST, seconds=60, PYTHONPATH=os.pathsep.join(map(str, (tmp_path, ROOT))))
    assert printed == "['cuda.core', 'cuda.core']\n"


@pytest.mark.slow
def test_the_first_launchers_of_many_threads_all_get_the_same_answer(mini_path: Path) -> None:
    assert output_of(LAUNCHERS, mini_path, seconds=120) == "60 1\n"
