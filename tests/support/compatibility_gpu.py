"""The cells of docs/compatibility.md that need a GPU, run once and recorded.

Where the CUDA releases are (see tests/support/toolkits.py), a database and a cubin of each go into one folder::

    JITLTO_TEST_TOOLKITS=DIRECTORY python -m tests.support.compatibility_gpu prepare FOLDER

Where the GPU is, an sm_90 with CUDA 13.0's nvJitLink and driver for example, they are launched; what is there of CUDA
does not matter to the code that was linked before::

    JITLTO_CACHE=off python -m tests.support.compatibility_gpu record FOLDER > docs/benchmarks/compatibility.json

Then ``python -m tests.support.compatibility_cases`` marks the cells in the page.
"""

import json
import platform
import sys
from pathlib import Path

from jitlto.base.errors import JitltoError
from jitlto.cuda import device, driver, nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.launch.launcher import Launcher
from jitlto.plan.cache_entry import Chosen, LinkedKernel
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from tests.support import toolkits
from tests.support.compatibility_cases import CODE

RELEASES = ("12.9", "13.0", toolkits.NEWEST)
SIZE = 1000


def prepare(folder: Path) -> None:
    """Fill a folder with what each release makes: ``both.fragdb`` and ``sm_90.cubin``."""
    for release in RELEASES:
        python, cache = toolkits.python(release), folder / "cache"
        for what in ("build", "cubin"):
            toolkits.run(python, "tests.support.compatibility_probe", what, folder / release, cache=cache)


def launched(plan: Plan, linked: LinkedKernel | None) -> dict[str, object]:
    """Launch ``twice``, as it was linked before or as it is linked here; say what came of it."""
    import cupy

    try:
        # What was linked before is launched without planning it here, where nvJitLink may be too old for the fragments.
        chosen = Chosen(plan.entry.key.text, "0" * 64, plan.entry.signature) if linked else plan.chosen
        launcher = Launcher(chosen, linked or plan.link(), lambda: plan)
        values = cupy.arange(SIZE, dtype=cupy.float32)
        launcher(None, (SIZE + 255) // 256, 256, values, SIZE)
        mode = "linked before" if linked else plan.link_mode
        return {"mode": mode, "right": bool((values == 2 * cupy.arange(SIZE, dtype=cupy.float32)).all())}
    except JitltoError as error:
        return {"error": type(error).__name__, "message": str(error)}


def record(folder: Path) -> dict[str, object]:
    """Launch everything; return what came of it."""
    cuda = driver.cuda_version()
    names = {cell.row: cell.name for cell in CODE.cells if cell.column == f"driver for CUDA {cuda}"}
    codes: dict[str, object] = {}
    databases: dict[str, object] = {}
    for release in RELEASES:
        with FragmentDatabase(folder / release / "both.fragdb") as database:
            plan = KernelFamily("mini", database).plan(data_type="float", op_name="twice")
            version = str(plan.fragments[0].images[0].version)
            cubin = (folder / release / "sm_90.cubin").read_bytes()
            made_by = f"cubin of nvJitLink {version}"
            found = launched(plan, LinkedKernel(cubin, plan.entry.entry, "sm_90", "", 0.0))
            codes[names.get(made_by, made_by)] = {"made_by": made_by, **found}
            databases[version] = launched(plan, None)
    return {
        "command": "python -m tests.support.compatibility_gpu record",
        "device": device.current().name,
        "architecture": device.architecture().sm,
        "cuda": str(cuda),
        "nvjitlink": str(nvjitlink.version()),
        "python": platform.python_version(),
        "code": codes,
        "databases": databases,
    }


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    else:
        print(json.dumps(record(Path(sys.argv[2])), indent=2))
