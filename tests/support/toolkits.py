"""Virtual environments of other CUDA releases, so that the rules between releases are tried with the real libraries.

Each holds NVRTC, nvJitLink, nvFatbin and the runtime's headers of one release, and cuda-bindings of its major; some
340 MB. All else comes from the environment that runs the tests::

    python -m tests.support.toolkits DIRECTORY
    JITLTO_TEST_TOOLKITS=DIRECTORY pytest tests/compatibility/test_compatibility.py
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from jitlto.cuda import toolkit
from tests.support.process import ROOT

VARIABLE = "JITLTO_TEST_TOOLKITS"
#: Beside the newest, which the environment that runs the tests holds.
RELEASES = ("12.8", "12.9", "13.0")
NEWEST = "newest"
_CUDA_12 = ("nvidia-cuda-nvrtc-cu12", "nvidia-nvjitlink-cu12", "nvidia-nvfatbin-cu12", "nvidia-cuda-runtime-cu12")
_CUDA_13 = ("nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-nvfatbin", "nvidia-cuda-runtime", "nvidia-cuda-crt")
_BINDINGS = {"12": "cuda-bindings==12.9.*", "13": "cuda-bindings==13.*"}


def make(directory: Path) -> None:
    """Install what is missing of the releases below a directory."""
    for release in RELEASES:
        place, major = directory / release, release.partition(".")[0]
        if (place / "complete").is_file():
            continue
        venv.create(place, symlinks=True, with_pip=False)
        packages = [f"{name}=={release}.*" for name in (_CUDA_12 if major == "12" else _CUDA_13)]
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
        subprocess.run(
            [*pip, "install", "--quiet", "--no-deps", "--no-compile", *packages, _BINDINGS[major]], check=True
        )
        (place / "complete").touch()


def place(release: str) -> Path:
    """Where a release lies; skips the test where there is none."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        pytest.skip(f"{VARIABLE} does not name what `python -m tests.support.toolkits DIRECTORY` makes")
    found = Path(directory).resolve() / release
    if not (found / "complete").is_file():
        pytest.fail(f"{VARIABLE} names {directory}, which holds no CUDA {release}")
    return found


def python(release: str) -> Path:
    """The Python of a release; skips the test where that is not to be had."""
    if release != NEWEST:
        return place(release) / "bin" / "python"
    if toolkit.nvrtc_version().major != 13:
        pytest.skip("the newest release is that of an environment with CUDA 13")
    return Path(sys.executable)


def run(interpreter: Path, module: str, *arguments: str | Path, cache: Path) -> object:
    """Run a module of the tests in the environment of a release; returns what it prints, read as JSON."""
    # Behind the release's own packages: what PYTHONPATH names would come before them.
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = (
        f"import runpy, sys; sys.path += {paths!r}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("JITLTO_") and n != "PYTHONPATH"}
    done = subprocess.run(
        [interpreter, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=inherited | {"JITLTO_CACHE_DIR": str(cache), "JITLTO_CACHE": "off"},
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} fails in {interpreter}:\n{done.stderr}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    make(parser.parse_args().directory)
