"""What it costs to merge the parts of a large build, and whether the result is what one build gives.

The parts are synthetic, of the family of ``tests.benchmarks.database_scale``. The merge runs in a process of its own;
imports are not counted in its time, and its memory is the most that it needed.

python -m tests.benchmarks.merging --parts 100 --fragments 1000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from jitlto.build.shards import Shard, make_part_record
from jitlto.database import writer
from tests.benchmarks.database_scale import make_family
from tests.benchmarks.machine import command_line, describe

_MERGE = """
import json, resource, sys, time
from pathlib import Path
from jitlto.build.merge import merge_databases
begin, cpu = time.perf_counter(), time.process_time()
merged = merge_databases([Path(part) for part in sys.argv[2:]], Path(sys.argv[1]))
times = time.perf_counter() - begin, time.process_time() - cpu
print(json.dumps([*times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--parts", type=int, default=100)
    parser.add_argument("--fragments", type=int, default=1000, help="in each part")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, Any] = {
        **describe(command_line()), "parts": options.parts, "fragments each": options.fragments, "merges": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        parts = write_parts(place, options.parts, options.parts * options.fragments)
        result["parts, MB"] = round(sum(part.stat().st_size for part in parts) / 1e6, 1)
        for _ in range(options.runs):
            output = place / "merged.fragdb"
            command = [sys.executable, "-c", _MERGE, str(output), *map(str, parts)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path.cwd())
            seconds, cpu, memory = json.loads(done.stdout)
            figures = {"s": round(seconds, 2), "CPU s": round(cpu, 2), "memory, MB": round(memory)}
            print(figures, flush=True)
            result["merges"].append(figures)
            if output.read_bytes() != (place / "whole.fragdb").read_bytes():
                raise SystemExit("the merged database is not that of one build")
    result["load"] = os.getloadavg()
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def write_parts(place: Path, count: int, size: int) -> list[Path]:
    """Write the parts of a build of so many fragments, and ``whole.fragdb`` as one build gives it."""
    record, made, images = make_family(size)
    fragments = list(made)
    writer.write(place / "whole.fragdb", [record], fragments, images)
    contents = {fragment.key: fragment.images[0].sha256 for fragment in fragments}
    first = make_part_record(Shard(1, count), contents, (), {record.name: "nvrtc"}, ())
    paths: list[Path] = []
    for number in range(1, count + 1):
        own = fragments[number - 1 :: count]
        part = replace(first, number=number)
        paths.append(place / f"part-{number}.fragdb")
        held = {image.sha256: images[image.sha256] for fragment in own for image in fragment.images}
        writer.write(paths[-1], [record], own, held, part=part)
    return paths


if __name__ == "__main__":
    main()
