"""NVIDIA's Python packages are imported in one place, by one thread at a time, and used from where Python imports."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from jitlto.cuda import libraries, nvjitlink, toolkit
from tests.support.launch_core import compiler
from tests.support.process import ROOT, output_of
from tests.support.source_code import PACKAGE

#: An import of NVIDIA's packages, or the name of a module of theirs.
_NAMED = re.compile(r"^\s*(?:from|import) cuda\b|[\"']cuda\.(?:core|bindings|pathfinder)(?:\.\w+)*[\"']", re.M)


def test_no_other_module_imports_them() -> None:
    found = [path for path in PACKAGE.rglob("*.py") if _NAMED.search(path.read_text("utf-8"))]
    assert found == [PACKAGE / "cuda" / "libraries.py"]


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
from jitlto.base.errors import NoDeviceError
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


# An initialiser that waits until another thread of Python, which has seen it begin, makes a file.
WAITING = """
#include <fcntl.h>
#include <unistd.h>
int was_made;
__attribute__((constructor)) static void wait(void) {
    close(open("begun", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 10000 && !was_made; i++) { usleep(1000); was_made = !access("made", F_OK); }
}
"""
LOADED_ELSEWHERE = """
import ctypes, os, threading, time
from jitlto.cuda import libraries
libraries.FILES["nvJitLink"] = ("waiting/waiting.so",)
threading.Thread(target=libraries.load, args=("nvJitLink",)).start()
while not os.path.exists("begun"):
    time.sleep(0.001)
open("made", "w").close()
loaded = libraries.load("nvJitLink")
print(loaded.path, loaded.is_foreign, ctypes.c_int.in_dll(ctypes.CDLL(loaded.path), "was_made").value)
"""


def test_other_threads_run_while_one_loads_a_library(tmp_path: Path) -> None:
    library = tmp_path / "nvidia/waiting/waiting.so"
    compile_library(library, WAITING)
    variables = {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    assert output_of(LOADED_ELSEWHERE, cwd=tmp_path, seconds=60, **variables) == f"{library} False 1\n"


def compile_library(path: Path, text: str, *flags: str) -> None:
    """Make a shared library from C; skips where there is no C compiler."""
    if shutil.which(compiler()) is None:
        pytest.skip(f"there is no C compiler ({compiler()})")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_name(f"{path.name}.c")
    source.write_text(text)
    subprocess.run([compiler(), "-shared", "-fPIC", *flags, "-o", path, source], check=True)


def bare(directory: Path) -> Path:
    """The Python of an environment without packages, as pip's isolated builds have."""
    venv.create(directory, symlinks=True)
    return directory / "bin" / "python"


def packages() -> list[str]:
    """What Python imports from here; skips where CUDA is not in packages."""
    if libraries.find_packaged(*libraries.FILES["nvrtc"]) is None:
        pytest.skip("NVRTC is not installed as a package")
    return [str(ROOT), *(place for place in sys.path if place.endswith("-packages"))]


def printed_by(interpreter: Path, code: str, *places: str | Path) -> Any:
    """What Python code prints as JSON in a process that imports from these directories first."""
    variables = {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [interpreter, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LINK = """
import json
from jitlto.cuda import libraries, nvfatbin, nvjitlink, toolkit
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.base.versions import Architecture
from jitlto.record.fragment import ImageKind
text = b"#include <cuda_fp16.h>\\n#include <cuda/std/cstdint>\\n__global__ void f(__half* x) { *x = 1; }"
search, target = HeaderSearch(toolkit.header_roots()), Architecture(80)
ltoir = nvrtc.run_step(search.closure(text), nvrtc.Step(ImageKind.LTOIR, target, ["--std=c++17"])).data
fatbin = nvjitlink.LinkInput(nvjitlink.InputKind.FATBIN, nvfatbin.wrap(ImageKind.LTOIR, ltoir, target), "f")
assert nvjitlink.link([fatbin], target, ["-lto"]).data[:4] == b"\\x7fELF"
found = [toolkit.find_library(name) for name in ("nvrtc", "nvJitLink", "nvfatbin")]
assert not libraries.load("nvJitLink").is_foreign
print(json.dumps([*found, *map(str, toolkit.header_roots())]))
"""


@pytest.mark.slow
def test_packages_on_pythonpath_are_used_and_not_those_of_the_interpreter(tmp_path: Path) -> None:
    """Both CUDA majors are installed in the interpreter's own site-packages, and neither can be loaded."""
    interpreter = bare(tmp_path)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    for file in itertools.chain(*libraries.FILES.values(), ("cu13/include/cuda_runtime.h",)):
        (site / "nvidia" / file).parent.mkdir(parents=True, exist_ok=True)
        (site / "nvidia" / file).touch()
    places = packages()
    for found in printed_by(interpreter, LINK, *places):
        assert any(Path(found).is_relative_to(f"{place}/nvidia") for place in places), found


LIBRARY = "int nvrtcVersion(int* major, int* minor) { *major = %s; *minor = 7; return 0; }"
WHICH = """
import json
from cuda.pathfinder import load_nvidia_dynamic_lib
from jitlto.cuda import toolkit
print(json.dumps([toolkit.nvrtc_version(), load_nvidia_dynamic_lib("nvrtc").abs_path]))
"""


@pytest.mark.slow
def test_of_two_cuda_majors_the_one_that_comes_first_is_used(tmp_path: Path) -> None:
    places, here = packages(), toolkit.nvrtc_version()
    other = {12: 13, 13: 12}[here.major]
    (file,) = (each for each in libraries.FILES["nvrtc"] if each.endswith(str(other)))
    library = tmp_path / "packages" / "nvidia" / file
    compile_library(library, LIBRARY % other, f"-Wl,-soname,{library.name}")
    interpreter = bare(tmp_path / "venv")
    assert printed_by(interpreter, WHICH, tmp_path / "packages", *places) == [[other, 7], str(library)]
    version, path = printed_by(interpreter, WHICH, *places, tmp_path / "packages")
    assert (version, path) == ([*here], toolkit.find_library("nvrtc"))


MISSING = """
import json, site, sys
sys.path = [place for place in sys.path if place not in site.getsitepackages()]
from click.testing import CliRunner
from jitlto.cli import cli
from jitlto.cuda import nvjitlink, toolkit
from jitlto.base.errors import ToolchainError
said = []
for ask in (toolkit.nvrtc_version, nvjitlink.version, lambda: toolkit.find_library("nvfatbin")):
    try:
        ask()
    except ToolchainError as error:
        said.append([error.code, error.where, error.what])
diagnosis = CliRunner().invoke(cli, ["doctor"]).stdout
print(json.dumps([toolkit.cuda_major(), said, diagnosis]))
"""


@pytest.mark.slow
def test_what_is_missing_is_said_with_the_directories_searched_and_not_taken_from_elsewhere(tmp_path: Path) -> None:
    """The interpreter's own site-packages have them, but are not imported from, as in pip's isolated builds."""
    interpreter, kept = bare(tmp_path / "venv"), tmp_path / "kept"
    kept.mkdir()
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    for place in packages()[1:]:
        for entry in Path(place).iterdir():
            link = (site if entry.name == "nvidia" else kept) / entry.name
            if not link.exists():
                link.symlink_to(entry)
    major, said, diagnosis = printed_by(interpreter, MISSING, ROOT, kept)
    assert (diagnosis.count(str(kept)), diagnosis.count("pip install 'jitlto[cu")) == (3, 1)
    assert len(said) == 3
    for code, where, what in said:
        assert code == "toolchain-missing"
        assert where.split(", ").count(str(kept)) == 1
        assert f".so.{major}" in what
        assert f".so.{25 - major}" not in what


# --- the release of nvJitLink, told from its file without loading it


def install(library: Path, *releases: str) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    names = [f"__nvJitLinkComplete_{release.replace('.', '_')}" for release in releases]
    library.write_bytes(b"\x7fELF" + b"\0".join([b"", *(n.encode() for n in names), b"nvJitLinkComplete", b""]))


def test_the_newest_release_that_a_library_serves_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if libraries.find_packaged(*libraries.FILES["nvJitLink"]):
        assert libraries.installed_release("") == str(nvjitlink.version())
    for file in libraries.FILES["nvJitLink"]:
        install(tmp_path / "nvidia" / file, "12.10", "12.0", "12.9")
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        assert libraries.installed_release("") == "12.10"


def test_packages_come_before_conda_in_the_order_of_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conda, one, other = tmp_path / "conda", tmp_path / "one", tmp_path / "other"
    monkeypatch.setattr(sys, "path", [str(one), str(other)])
    assert libraries.installed_release(str(conda)) is None
    install(conda / "lib" / "libnvJitLink.so.13", "13.0")
    assert libraries.installed_release(str(conda)) == "13.0"
    assert libraries.installed_release("") is None
    install(other / "nvidia/nvjitlink/lib/libnvJitLink.so.12", "12.8")
    assert libraries.installed_release(str(conda)) == "12.8"
    install(one / "nvidia/cu13/lib/libnvJitLink.so.13", "13.1")
    assert libraries.installed_release("") == "13.1"
    install(one / "nvidia/cu13/lib/libnvJitLink.so.13")  # not like those that are known
    assert libraries.installed_release("") is None


@pytest.mark.slow
def test_telling_it_loads_nothing() -> None:
    program = (
        "from jitlto.cuda.libraries import installed_release\n"
        "assert installed_release('')\n"
        "print('libnvJitLink' in open('/proc/self/maps').read())"
    )
    assert output_of(program).strip() == "False"
