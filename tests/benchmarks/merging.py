"""What it costs to merge the parts of a large build, and whether the result is what one build gives.

The parts are synthetic, see ``tests.support.synthetic``. The merge runs in a process of its own;
imports are not counted in its time, and its memory is the most that it needed.

python -m tests.benchmarks.merging --parts 100 --fragments 1000
"""

from pathlib import Path

from msgspec.structs import replace

from jitlto.database import writer
from jitlto.record.family_record import PartRecord
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.support.synthetic import make_family

_MERGE = """
import json, resource, sys, time
from pathlib import Path
from jitlto.build.merge import merge_databases
begin, cpu = time.perf_counter(), time.process_time()
merged = merge_databases([Path(part) for part in sys.argv[2:]], Path(sys.argv[1]))
times = time.perf_counter() - begin, time.process_time() - cpu
print(json.dumps([*times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measure(options: Options) -> Result:
    place: Path = options.place
    parts = write_parts(place, options.parts, options.parts * options.fragments)
    merges = []
    for _ in range(options.runs):
        output = place / "merged.fragdb"
        seconds, cpu, memory = script.answer(_MERGE, output, *parts)
        merges.append({"s": round(seconds, 2), "CPU s": round(cpu, 2), "memory, MB": round(memory)})
        if output.read_bytes() != (place / "whole.fragdb").read_bytes():
            raise SystemExit("the merged database is not that of one build")
    size = round(sum(part.stat().st_size for part in parts) / 1e6, 1)
    return {"parts": options.parts, "fragments each": options.fragments, "parts, MB": size, "merges": merges}


def write_parts(place: Path, count: int, size: int) -> list[Path]:
    """Write the parts of a build of so many fragments, and ``whole.fragdb`` as one build gives it."""
    record, made, images = make_family(size)
    fragments = list(made)
    writer.write(place / "whole.fragdb", [record], fragments, images)
    first = PartRecord(1, count, "0" * 64, len(fragments), ((record.name, "nvrtc"),), (), ())
    paths: list[Path] = []
    for number in range(1, count + 1):
        own = fragments[number - 1 :: count]
        part = replace(first, number=number)
        paths.append(place / f"part-{number}.fragdb")
        held = {image.sha256: images[image.sha256] for fragment in own for image in fragment.images}
        writer.write(paths[-1], [record], own, held, part=part)
    return paths


if __name__ == "__main__":
    script.run(__doc__, measure, parts=100, fragments=1000, runs=3)
