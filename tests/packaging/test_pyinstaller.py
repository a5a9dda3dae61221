"""A program that PyInstaller froze, as the page about packages says, links kernels of a package by itself."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jitlto.cuda import nvjitlink
from tests.support.distributions import install
from tests.support.process import ROOT

APP = """
import jitlto, jitlto.cuda.toolkit
plan = jitlto.family("mini").plan(arch="sm_90", data_type="float", op_name="twice")
print(plan.link(use_cache=False).layer, plan.calls_left(), jitlto.cuda.toolkit.find_library("nvJitLink"))
"""
#: What an environment of tests has and a program that links does not need: minutes, and gigabytes.
UNNEEDED = ("cupy", "jax", "numba", "scipy", "torch", "pytest", "sphinx")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("PyInstaller") is None, reason="PyInstaller is not installed")
def test_a_frozen_program_links_kernels_of_a_package(mini_path: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    install(
        site, "my-kernels", families={"mini": "my_kernels.fragments"}, databases={"my_kernels.fragments": mini_path}
    )
    (site / "my_kernels" / "__init__.py").write_text("")
    work.mkdir()
    (work / "app.py").write_text(APP)
    page = (ROOT / "docs" / "packaging.md").read_text()
    (script,) = re.findall(r"^```sh\n(library=.*?)^```", page, re.M | re.S)
    if nvjitlink.version().major == 12:
        script = script.replace("nvidia/cu13/lib", "nvidia/nvjitlink/lib")
    excluded = " ".join(f"--exclude-module {name}" for name in UNNEEDED)
    script = script.replace("pyinstaller app.py", f"{sys.executable} -m PyInstaller app.py -y {excluded}")
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{site}"}
    done = subprocess.run(
        ["/bin/bash", "-ec", script],
        cwd=work,
        env=os.environ | paths,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    moved = shutil.move(work / "dist" / "app", tmp_path / "app")
    for each in (site, work):
        shutil.rmtree(each)
    found = subprocess.run([moved / "app"], env={}, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    layer, calls, library = found.stdout.split()
    assert (layer, calls) == ("link", "[]")
    assert Path(library).is_relative_to(tmp_path / "app")
