"""What the scripts share: their command line, a place to work in, the machine that was measured, and their JSON."""

import argparse
import compileall
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jitlto.base.errors import NoDeviceError, ToolchainError
from jitlto.cuda import device, nvjitlink, toolkit
from tests.support.process import ROOT

Result = dict[str, Any]
#: Options of the command line, and ``place``, an empty directory.
Options = argparse.Namespace
_PACKAGES = ("jitlto", "cuda-core", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x", "numpy", "torch", "triton",
             "numba", "numba-cuda", "jax", "cuvs-cu12", "cuvs-cu13")  # fmt: skip


def read_options(doc: str | None, **options: Any) -> Options:
    """Read the command line: ``--output`` and further options.

    Args:
        doc: The script's docstring, which is its help.
        options: A default by the name of each option: a number, a path or a text, False for a flag, a list for several
            values; a type where there is no default, and a tuple of what may be chosen.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="a file, or a directory for files of the usual names")
    for name, default in options.items():
        flag, how = f"--{name.replace('_', '-')}", dict[str, Any](default=default)
        if default is False:
            how["action"] = "store_true"
        elif isinstance(default, tuple):
            how = {"choices": default}
        elif isinstance(default, list):
            how |= {"nargs": "+", "type": type(default[0])}
        else:
            how = {"type": default} if isinstance(default, type) else how | {"type": type(default)}
        parser.add_argument(flag, **how)
    return parser.parse_args()


def run(
    doc: str | None,
    measure: Callable[[Options], Result],
    plots: Callable[[Result], Mapping[str, str]] | None = None,
    **options: Any,
) -> None:
    """Be a script: measure, print, write JSON and plots.

    Args:
        doc: See :func:`read_options`.
        measure: What gives the result.
        plots: What draws it: SVG documents, by the ends of their names.
        options: See :func:`read_options`.
    """
    given = read_options(doc, **options)
    with tempfile.TemporaryDirectory() as directory:
        given.place = Path(directory)
        # Nothing of the user's, nor what nvJitLink has linked before and a driver keeps.
        os.environ |= {"JITLTO_CACHE_DIR": str(given.place / "cache"), "CUDA_CACHE_DISABLE": "1"}
        write(given.output, measure(given), plots)


def write(output: Path | None, result: Result, plots: Callable[[Result], Mapping[str, str]] | None = None) -> None:
    """Print a result below what it was measured on, and write it, with its plots beside it."""
    result = {"machine": describe(), **result}
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    print(text, flush=True)
    if output is None:
        return
    if output.is_dir():
        output /= f"{_module().rpartition('.')[2]}.json"
    output.write_text(text, "utf-8")
    for end, plot in plots(result).items() if plots else ():
        output.with_name(f"{output.stem}{end and '_'}{end}.svg").write_text(plot, "utf-8")


def describe() -> dict[str, object]:
    """The command, the machine and the versions: the head of a result."""
    return {
        "command": _command_line(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": [round(each, 1) for each in os.getloadavg()],
        "nvrtc": _version(toolkit.nvrtc_version),
        "nvjitlink": _version(nvjitlink.version),
        "packages": {name: found for name in _PACKAGES if (found := _package(name))},
        **_device(),
    }


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem


def _command_line() -> str:
    """As a user of the checkout would write it: paths by their last part alone."""
    arguments = [Path(each).name if "/" in each and " " not in each else each for each in sys.argv[1:]]
    return shlex.join(["python", "-m", _module(), *arguments])


def _version(query: Callable[[], object]) -> str | None:
    try:
        return str(query())
    except ToolchainError:
        return None


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _device() -> dict[str, object]:
    try:
        current = device.current()
    except NoDeviceError:
        return {"device": None}
    _, number = toolkit.bindings("driver").cuDriverGetVersion()
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return {"device": current.name, "arch": device.architecture().sm, "driver_cuda": cuda}


def installed(place: Path) -> dict[str, str]:
    """The variables with which a process finds jitlto as pip leaves it: compiled, and apart from the checkout."""
    directory = place / "installed"
    if not directory.is_dir():
        shutil.copytree(ROOT / "jitlto", directory / "jitlto", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(directory, quiet=1)
    return {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": ""}


def answer(code: str, *arguments: object, cwd: Path = ROOT, **variables: str) -> Any:
    """What Python code prints in a process of its own, which is JSON."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | variables
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def jitlto(*arguments: object, **variables: str) -> str:
    """Run a command of jitlto in a process of its own; return what it prints."""
    command = [sys.executable, "-m", "jitlto", *map(str, arguments)]
    environment = os.environ | variables
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True).stdout


def use_cores(count: int) -> None:
    """Have this process, and those that it starts, use so many cores."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:count]))


def rounded(values: Iterable[float], digits: int = 2) -> list[float]:
    return [round(value, digits) for value in values]
