"""NVIDIA's Python packages are imported in one place, by one thread at a time."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from jitlto.cuda import libraries
from tests.support.process import output_of
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


FIRST = """
import sys, threading
sys.setswitchinterval(1e-5)
from jitlto.cuda import device
from jitlto.errors import NoDeviceError
barrier, others = threading.Barrier(60), []

def ask():
    barrier.wait()
    try:
        device.current()
    except NoDeviceError as error:
        if "import" in error.what:
            others.append(error)
    except BaseException as error:
        others.append(error)

threads = [threading.Thread(target=ask) for _ in range(60)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(others)
"""

LAUNCHERS = """
import sys, threading
import jitlto
from jitlto.errors import NoDeviceError
family = jitlto.load("mini", sys.argv[1])
configurations = list(family.configurations())
barrier, others = threading.Barrier(60), []

def ask(number):
    barrier.wait()
    try:
        family.launcher(**configurations[number % len(configurations)])
    except NoDeviceError:
        pass
    except BaseException as error:
        others.append(error)

threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(others)
"""


@pytest.mark.slow
def test_the_first_threads_to_ask_for_a_device_all_get_it_or_the_error_that_says_why() -> None:
    assert output_of(FIRST, seconds=120) == "[]\n"


@pytest.mark.slow
def test_the_first_launchers_of_many_threads_are_launchers_or_the_error_that_there_is_no_device(
    mini_path: Path,
) -> None:
    assert output_of(LAUNCHERS, mini_path, seconds=120) == "[]\n"
