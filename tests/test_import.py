"""What importing costs, and what it must not touch: checked in fresh processes."""

import json
import os
from pathlib import Path

import pytest

import jitlto
from jitlto.cuda import libraries
from tests.benchmarks.script import installed
from tests.support.families import MINI, write_family
from tests.support.process import ROOT, output_of

HEAVY = ("cuda", "numpy", "jinja2", "sqlite3", "click", "torch", "jax")

# What the two halves share and what only runs; the build side and the command line are the rest.
RUN_SIDE = """
import importlib, pathlib
import jitlto
package = pathlib.Path(jitlto.__path__[0])
parts = ("runtime", "tuning", "launch", "link", "plan", "database", "stores", "cuda", "record", "base")
for file in sorted(f for part in parts for f in package.glob(part + "/**/*.py")):
    if file.stem != "__init__":
        importlib.import_module(".".join(("jitlto", *file.relative_to(package).with_suffix("").parts)))
"""


def run(code: str, *arguments: str, **variables: str) -> object:
    """What a fresh process prints as JSON after running ``code``."""
    return json.loads(output_of(code, *arguments, **variables))


def loaded(names: list[str], unwanted: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.partition(".")[0] in unwanted or name.startswith("jitlto.build")]


@pytest.mark.timing
@pytest.mark.slow
def test_import_takes_less_than_60_milliseconds(tmp_path: Path) -> None:
    code = "import time; t = time.perf_counter(); import jitlto; print(time.perf_counter() - t)"
    compiled = installed(tmp_path)
    seconds = [run(code, **compiled) for _ in range(5)]
    assert all(isinstance(s, float) for s in seconds)
    assert min(s for s in seconds if isinstance(s, float)) < 0.060


def test_import_loads_no_cuda_no_numpy_and_nothing_of_the_build_side() -> None:
    # What an installed package's .pth file imports at the start of every process is not ours.
    code = "import json, sys; old = set(sys.modules); import jitlto; print(json.dumps(sorted({*sys.modules} - old)))"
    names = run(code)
    assert isinstance(names, list)
    assert "jitlto" in names
    assert loaded(names, HEAVY) == []


def test_import_reads_no_environment_variable() -> None:
    code = """
import json, os
read = []
class Recording(type(os.environ)):
    def __getitem__(self, key):
        read.append(key)
        return super().__getitem__(key)
    def __iter__(self):
        read.append("*")
        return super().__iter__()
os.environ.__class__ = Recording
os.environ.get("HOME")
assert read == ["HOME"], "the recording itself works"
import jitlto
print(json.dumps(read))
"""
    assert run(code) == ["HOME"]


def test_import_opens_no_file_but_python_modules_of_its_own_and_of_the_standard_library() -> None:
    code = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import jitlto
print(json.dumps(opened))
"""
    opened = run(code)
    assert isinstance(opened, list)
    standard_library = Path(os.__file__).resolve().parent
    package = ROOT / "jitlto"
    for name in opened:
        path = Path(name).resolve()
        assert path.suffix in (".py", ".pyc"), name
        assert "site-packages" not in path.parts or path.is_relative_to(package), name
        assert path.is_relative_to(package) or path.is_relative_to(standard_library), name


@pytest.mark.slow
def test_every_exported_name_can_be_used_and_others_are_attribute_errors() -> None:
    code = """
import json, jitlto
found = [name for name in jitlto.__all__ if getattr(jitlto, name) is not None]
try:
    jitlto.nonsense
except AttributeError as error:
    found.append(str(error))
print(json.dumps(found))
"""
    assert run(code) == [*jitlto.__all__, "module 'jitlto' has no attribute 'nonsense'"]


@pytest.mark.slow
def test_run_side_modules_import_neither_jinja_nor_the_build_side() -> None:
    names = run(RUN_SIDE + "import json, sys; print(json.dumps(sorted(sys.modules)))")
    assert isinstance(names, list)
    assert {"jitlto.database", "jitlto.runtime.family", "jitlto.launch.launcher"} <= set(names)
    assert loaded(names, ("jinja2", "click")) == []


@pytest.mark.slow
def test_planning_and_linking_import_neither_jinja_nor_the_build_side(mini_path: Path) -> None:
    code = """
import json, sys, jitlto
kernel = jitlto.load("mini", sys.argv[1])
plan = kernel.planner(data_type="float").add_source(
    "namespace mini { template <> __device__ float op<float>(float a) { return a + 1; } }").plan(arch="sm_90")
assert plan.link().cubin[:4] == b"\\x7fELF"
print(json.dumps(sorted(sys.modules)))
"""
    names = run(code, str(mini_path))
    assert isinstance(names, list)
    assert loaded(names, ("jinja2", "click")) == []
    # Without JITLTO_STORE, nothing of shared stores either.
    assert [name for name in names if name.startswith(("jitlto.stores", "obstore", "cryptography"))] == []


@pytest.mark.slow
def test_jinja_and_the_build_side_are_imported_when_sources_are_loaded(mini_path: Path, tmp_path: Path) -> None:
    code = "import json, sys, jitlto; jitlto.load(*sys.argv[1:]); print(json.dumps(sorted(sys.modules)))"
    names = run(code, "mini", str(mini_path))
    assert isinstance(names, list)
    assert loaded(names, ("jinja2", "click")) == []
    names = run(code, str(write_family(tmp_path / "mini", MINI)), JITLTO_CACHE_DIR=str(tmp_path / "cache"))
    assert isinstance(names, list)
    assert {"jinja2", "jitlto.build.pipeline"} <= set(names)


@pytest.mark.slow
def test_a_build_in_which_nothing_changed_loads_no_demangler_and_finds_packages_itself(tmp_path: Path) -> None:
    code = """
import contextlib, json, sys
from jitlto.cli import run
with contextlib.redirect_stdout(sys.stderr):
    assert run(["build", sys.argv[1], "-o", sys.argv[1] + ".fragdb", "--quiet"]) == 0
print(json.dumps(sorted(sys.modules)))
"""
    path = write_family(tmp_path / "mini", MINI)
    unchanged = [run(code, str(path), JITLTO_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2)][1]
    assert isinstance(unchanged, list)
    unneeded = ["demangle", *(["cuda.pathfinder"] if libraries.find_packaged(*libraries.FILES["nvrtc"]) else [])]
    assert set(unchanged).isdisjoint(unneeded)
