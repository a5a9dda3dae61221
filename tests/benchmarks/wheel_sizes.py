"""How large the wheels are: jitlto's own, and that of a package as `jitlto new` writes it.

python -m tests.benchmarks.wheel_sizes --output docs/benchmarks/wheel_sizes.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

from jitlto.packaging import scaffold
from tests.benchmarks.machine import command_line, describe
from tests.support.process import ROOT


def main() -> None:
    """Build, measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory) / "project"
        scaffold.write_package("my-kernels", project, 12)
        result = {
            "machine": describe(command_line()),
            "jitlto": measure(build(ROOT, Path(directory) / "jitlto")),
            "jitlto new": measure(build(project, Path(directory) / "new")),
        }
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def build(project: Path, output: Path) -> Path:
    """Build a wheel with what is installed."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", str(output), str(project)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = output.glob("*.whl")
    return wheel


def measure(wheel: Path) -> dict[str, object]:
    """Bytes of a wheel, and of what it holds unpacked, by the first folders of its names."""
    unpacked: Counter[str] = Counter()
    with zipfile.ZipFile(wheel) as file:
        for info in file.infolist():
            *folders, _ = info.filename.split("/")
            unpacked["/".join(folders[:2])] += info.file_size
    sizes = dict(sorted(unpacked.items()))
    return {"wheel": wheel.stat().st_size, "unpacked": sum(sizes.values()), "by folder": sizes}


if __name__ == "__main__":
    main()
