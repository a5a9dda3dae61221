"""One command: all parts, or one, each in a process of its own, so that none falls with another.

python -m tests.benchmarks.families --output docs/benchmarks
python -m tests.benchmarks.families --output /tmp/try --small --only fft

modes       kernel time: LTO, whole program, separate compilation, mixed, pointers
fft         transforms against cuFFT, alone and between element-wise kernels
first_call  from the first call to a kernel ready to launch
tiers       first launches without LTO, which replaces them
shipped     bytes of a database against cubins of all kernels
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import script

PARTS = ("modes", "fft", "first_call", "tiers", "shipped")
_LIMIT = 540  # seconds for a part


def main() -> None:
    """Run parts, print and write what they give; 1 if any failed."""
    options = script.read_options(__doc__, only=PARTS, small=False, rounds=25, work=Path)
    with tempfile.TemporaryDirectory() as temporary:
        options.work = (options.work or Path(temporary)).absolute()  # where databases are built, and kept
        options.work.mkdir(parents=True, exist_ok=True)
        if options.only:
            os.environ |= {"CUDA_CACHE_DISABLE": "1", "JITLTO_CACHE_DIR": str(options.work / "cache")}
            part = importlib.import_module(f"tests.benchmarks.families.{options.only}")
            if options.output:
                options.output.mkdir(parents=True, exist_ok=True)
            output = options.output and options.output / f"families_{options.only}.json"
            script.write(output, part.measure(options), getattr(part, "plots", None))
            return
        command = [sys.executable, "-m", "tests.benchmarks.families", *sys.argv[1:], "--work", str(options.work)]
        done = {part: subprocess.run([*command, "--only", part], timeout=_LIMIT, check=False) for part in PARTS}
    failed = [part for part, process in done.items() if process.returncode]
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
