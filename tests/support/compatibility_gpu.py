"""The cells of docs/compatibility.md that need a GPU, run once and recorded.

Where the CUDA releases are (see tests/support/toolkits.py), databases and cubins of each go into one folder::

    JITLTO_TEST_TOOLKITS=DIRECTORY python -m tests.support.compatibility_gpu prepare FOLDER --arch sm_90

Where the GPU is, with CUDA 13.0's nvJitLink and driver for example, they are launched; what is there of CUDA does not
matter to the code that was linked before::

    python -m tests.support.compatibility_gpu record FOLDER docs/benchmarks/compatibility.json

Then ``python -m tests.support.compatibility_cases`` marks the cells in the page.
"""

import argparse
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jitlto.base.errors import JitltoError
from jitlto.cuda import device, driver, nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.launch.launcher import Launcher
from jitlto.plan.cache_entry import Chosen, LinkedKernel
from jitlto.runtime.family import KernelFamily
from tests.support import toolkits
from tests.support.compatibility_cases import CODE

RELEASES = ("12.9", "13.0", toolkits.NEWEST)
TWICE = {"data_type": "float", "op_name": "twice"}
SIZE = 1000


def prepare(folder: Path, arch: str) -> None:
    """Fill a folder with what each release makes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as scratch:
            python, cache = toolkits.python(release), Path(scratch) / "cache"
            built = Path(scratch) / "built"
            toolkits.run(python, "tests.support.compatibility_probe", "build", built, cache=cache)
            about: Any = toolkits.run(
                python,
                "tests.support.compatibility_gpu",
                "make",
                built / "both.fragdb",
                folder,
                "--arch",
                arch,
                cache=cache,
            )
            shutil.copy(built / "both.fragdb", folder / f"{about['nvjitlink']}.fragdb")
            made.append(about)
    (folder / "made.json").write_text(json.dumps(made, indent=2))
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {len(list(folder.iterdir()))} files, {size // 1000} KB")


def make(database: Path, folder: Path, arch: str) -> None:
    """Link a cubin in the environment of one release."""
    version = str(nvjitlink.version())
    with FragmentDatabase(database) as opened:
        plan = KernelFamily("mini", opened).plan(arch=arch, **TWICE)
        (folder / f"{version}.cubin").write_bytes(plan.link().cubin)
    print(json.dumps({"nvjitlink": version, "target": plan.target.sm}))


def doubles(launcher: Launcher) -> bool:
    """Whether a launch of ``twice`` doubles what it is given."""
    import cupy

    values = cupy.arange(SIZE, dtype=cupy.float32)
    launcher(None, (SIZE + 255) // 256, 256, values, SIZE)
    return bool((values == 2 * cupy.arange(SIZE, dtype=cupy.float32)).all())


def run_code(folder: Path, about: dict[str, str]) -> dict[str, object]:
    """Load code that was linked before, and launch it if the driver takes it."""
    version, target = about["nvjitlink"], about["target"]
    with FragmentDatabase(folder / f"{version}.fragdb") as database:
        entry = KernelFamily("mini", database).plan(arch="sm_90", **TWICE).entry
    linked = LinkedKernel((folder / f"{version}.cubin").read_bytes(), entry.entry, target, "", 0.0)
    ran: dict[str, object] = {"made_by": f"cubin of nvJitLink {version}", "target": target}
    try:
        launcher = Launcher(Chosen(str(entry.key), "0" * 64, entry.signature), linked, _unplanned)
        return ran | {"loads": True, "right": doubles(launcher)}
    except JitltoError as error:
        return ran | {"loads": False, "message": str(error)}


def _unplanned() -> Any:
    raise AssertionError("a launch needs no plan")


def run_database(folder: Path, version: str) -> dict[str, object]:
    """Plan, link and launch from a database, as a caller does."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("jitlto").addHandler(handler)
    try:
        with FragmentDatabase(folder / f"{version}.fragdb") as database:
            launcher = KernelFamily("mini", database).launcher(**TWICE)
            return {"mode": launcher.plan.link_mode, "said": said, "right": doubles(launcher)}
    except JitltoError as error:
        return {"error": type(error).__name__, "message": str(error), "said": said}
    finally:
        logging.getLogger("jitlto").removeHandler(handler)


def record(folder: Path, output: Path) -> None:
    """Launch everything and write what came of it."""
    made = json.loads((folder / "made.json").read_text())
    cuda = driver.cuda_version()
    assert cuda, "there is no driver here"
    own = device.architecture()
    codes = [run_code(folder, about) for about in made]
    column = f"driver for CUDA {cuda}"
    names = {cell.row: cell.name for cell in CODE.cells if cell.column == column}
    for ran in codes:
        print(ran)
    report = {
        "command": "python -m tests.support.compatibility_gpu record",
        "device": device.current().name,
        "architecture": own.sm,
        "cuda": str(cuda),
        "nvjitlink": str(nvjitlink.version()),
        "python": platform.python_version(),
        "code": {names.get(str(ran["made_by"]), ran["made_by"]): ran for ran in codes},
        "databases": {about["nvjitlink"]: run_database(folder, about["nvjitlink"]) for about in made},
    }
    output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{output}: {len(codes)} pieces of code, {len(made)} databases")


def main() -> None:
    """Prepare, or record; ``make`` is what prepare has each release do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, paths in (("prepare", ["folder"]), ("make", ["database", "folder"]), ("record", ["folder", "output"])):
        command = commands.add_parser(name)
        for path in paths:
            command.add_argument(path, type=Path)
        if name != "record":
            command.add_argument("--arch", default="sm_90", help="The device's architecture.")
    given = parser.parse_args()
    if given.command == "prepare":
        prepare(given.folder, given.arch)
    elif given.command == "make":
        make(given.database, given.folder, given.arch)
    else:
        os.environ["JITLTO_CACHE"] = "off"  # what is found there would not be linked
        record(given.folder, given.output)


if __name__ == "__main__":
    sys.exit(main())
