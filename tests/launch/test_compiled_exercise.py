"""The compiled core under a sanitizer and every interpreter at hand, against a model of it; no GPU is needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import exercise_core, exercise_tiers, launch_core
from tests.support.process import ROOT

PROGRAM = ROOT / "tests/support/exercise_core.py"
#: Other interpreters that CI may have: debug builds, whose references are counted, and free-threaded ones.
INTERPRETERS = ("python3-dbg", "python3.13-dbg", "python3.13t", "python3.14t", "python3.12", "python3.13", "python3.14")


def exercise(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_random_launches_are_those_of_the_model() -> None:
    core = launch_core.core()
    exercise_core.Exercise(core, 1).signature(30)
    exercise_core.in_threads(core, 1, 2)


@pytest.mark.slow
def test_no_launch_accesses_memory_that_is_not_its_own(tmp_path: Path) -> None:
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    try:
        compiled = launch_core.build(tmp_path, *launch_core.WARNINGS, *flags)
    except launch_core.ExtensionError as error:
        pytest.skip(f"the compiler has no sanitizers: {str(error).splitlines()[-1]}")
    preload = [_runtime(name) for name in ("libasan.so", "libubsan.so")]
    variables = {"LD_PRELOAD": " ".join(preload), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    for more in ((), ("--collect",)):
        exercise(sys.executable, PROGRAM, "--seconds=1", f"--core={compiled}", *more, **variables)
    path = exercise_tiers.build_family(tmp_path / "tiers")
    tiers = PROGRAM.with_name("exercise_tiers.py")
    exercise(sys.executable, tiers, "--count=100", f"--core={compiled}", f"--family={path}", **variables)
    # The tests themselves too, with NumPy and the objects of other libraries.
    tests = (
        "test_signature.py",
        "test_cleared.py",
        "test_called.py",
        "test_lookup.py",
        "test_step.py",
        "test_libraries.py",
    )
    named = "compiled or test_signature or test_cleared or test_lookup"
    options = ("-n0", "-q", "-x", "-s", "-m", "not slow", "-p", "no:cacheprovider", "-k", named)
    paths = [ROOT / "tests/launch" / name for name in tests]
    variables[launch_core.COMPILED] = str(compiled)
    exercise(sys.executable, "-m", "pytest", *options, *paths, **variables)


def _runtime(name: str) -> str:
    compiler = launch_core.compiler()
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout
    if not Path(found.strip()).is_absolute():
        pytest.skip(f"{compiler} has no {name}")
    return found.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERPRETERS)
def test_it_works_under_other_interpreters(name: str, tmp_path: Path) -> None:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    answer = subprocess.run([found, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
                            capture_output=True, text=True, check=False)  # fmt: skip
    if answer.returncode or not Path(answer.stdout.strip(), "Python.h").is_file():
        pytest.skip(f"{name} does not run, or has no Python.h")
    launch_core.build(tmp_path)  # skips without a compiler
    printed = exercise(found, PROGRAM)
    exercise(found, PROGRAM, "--collect", "--seconds", "0")
    assert "signatures" in printed
    if name.endswith("-dbg"):
        assert "references counted" in printed
    if name.endswith("t"):
        assert "without the GIL" in printed
