"""What images for later architectures cost and gain: sizes, instructions, the time of comparing, and times on a GPU.

    python -m tests.benchmarks.architectures --output docs/benchmarks/architectures.json
    python -m tests.benchmarks.architectures --only times --output architectures_times.json     # needs a GPU

Without a GPU: the size of each shipped family's database for compute_75 and with ``archs = "auto"``, and the machine
instructions of two kernels that convert numbers. With one: the times of these kernels, base and ``auto`` in turn.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from jitlto.build.pipeline import build
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.machine import command_line, describe
from tests.support.families import CONVERT, write_family
from tests.support.line_information import count_instructions

CONVERSIONS = {
    "float to bf16": {"from_type": "float", "to_type": "__nv_bfloat16"},
    "half to fp8": {"from_type": "__half", "to_type": "__nv_fp8_e4m3"},
}
_TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
_COUNT = 8  # elements a thread


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", choices=["sizes", "instructions", "comparing", "times"])
    parser.add_argument(
        "--families", nargs="*", default=declaration.list_families(), help="names, convert, or paths of family.toml"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, object] = {"machine": describe(command_line())}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        if options.only in (None, "instructions"):
            result["instructions"] = _instructions(place)
        if options.only in (None, "sizes"):
            result["sizes"] = {name: _sizes(name, place) for name in options.families}
        if options.only in (None, "comparing"):
            result["comparing"] = {name: _comparing(name, place, options.rounds) for name in options.families}
        if options.only == "times":
            result["times"] = _times(place)
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _sizes(name: str, place: Path) -> dict[str, object]:
    """Bytes of a family's database, how many fragments have further images, and the processor seconds of the build."""
    family = _load(name, place)
    row: dict[str, object] = {}
    for form, is_auto in (("base", False), ("auto", True)):
        begin = _processor_seconds()
        report = build([replace(family, is_auto=is_auto)], place / "sizes.fragdb")
        row[f"{form}_seconds"] = round(_processor_seconds() - begin, 2)
        row[f"{form}_bytes"] = report.path.stat().st_size
        images = [sum(1 for _ in fragment.images_of(ImageKind.LTOIR)) for fragment in report.fragments]
        row[f"{form}_images"] = sum(images)
        row["fragments"] = len(images)
    return row


def _comparing(name: str, place: Path, rounds: int) -> dict[str, object]:
    """Processor seconds of a first build for compute_75 and with ``archs = "auto"``, in turn."""
    family = _load(name, place)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for is_auto, taken in seconds.items():
            begin = _processor_seconds()
            build([replace(family, is_auto=is_auto)], place / "compared.fragdb")
            taken.append(round(_processor_seconds() - begin, 2))
    without, compared = (statistics.median(taken) for taken in seconds.values())
    return {"without": seconds[False], "with": seconds[True], "median_ratio": round(compared / without, 3)}


def _load(name: str, place: Path) -> FamilyDeclaration:
    """A shipped family, the one declared in a file, or ``convert``: 16 kernels, and 4 conversions of 16-bit types."""
    if name == "convert":
        declared = CONVERT["family.toml"].replace('"auto"', '["75"]')
        counts = json.dumps({"from_type": ["float", "__half"], "count": [str(1 << n) for n in range(8)]})
        return declaration.load_family(
            write_family(place / "conversions", CONVERT | {"family.toml": declared, "kern.json": counts})
        )
    return declaration.load_family(Path(name) if name.endswith(".toml") else declaration.find_family(name))


def _processor_seconds() -> float:
    """Of this process and those that have ended; unlike wall time, other work on the machine hardly changes it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _forms(place: Path) -> dict[str, KernelFamily]:
    forms = {}
    for form, is_auto in (("base", False), ("auto", True)):
        family = declaration.load_family(write_family(place / "convert", CONVERT))
        report = build([replace(family, is_auto=is_auto)], place / f"convert-{form}.fragdb")
        forms[form] = KernelFamily("convert", FragmentDatabase(report.path))
    return forms


def _instructions(place: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Machine instructions of the linked kernels, by target."""
    forms = _forms(place)
    return {
        title: {
            target: {
                form: count_instructions(family.plan(arch=target, link_options=None, **values).link().cubin)
                for form, family in forms.items()
            }
            for target in _TARGETS
        }
        for title, values in CONVERSIONS.items()
    }


def _times(place: Path) -> dict[str, object]:
    """Milliseconds of a launch on the current device: medians of launches that take turns."""
    import cupy as cp  # here, because the rest needs no GPU

    forms, size, rows = _forms(place), 1 << 28, {}
    for title, values in CONVERSIONS.items():
        source = cp.random.standard_normal(size, dtype=cp.float32)
        given = source.astype(cp.float16) if values["from_type"] == "__half" else source
        results = {form: cp.zeros(size, dtype=cp.uint16) for form in forms}
        launchers = {form: family.launcher(**values) for form, family in forms.items()}
        taken: dict[str, list[float]] = {form: [] for form in forms}
        stream = cp.cuda.get_current_stream()
        for number in range(25):
            for form, launcher in launchers.items():
                begin, end = cp.cuda.Event(), cp.cuda.Event()
                begin.record(stream)
                launcher(stream, size // (256 * _COUNT), 256, given, results[form], size)
                end.record(stream)
                end.synchronize()
                if number >= 4:
                    taken[form].append(cp.cuda.get_elapsed_time(begin, end))
        assert bool((results["base"] == results["auto"]).all()), title
        medians = {form: round(statistics.median(times), 4) for form, times in taken.items()}
        rows[title] = {"milliseconds": medians, "base/auto": round(medians["base"] / medians["auto"], 3)}
    return {"device": device.architecture().sm, "elements": size, "kernels": rows}


if __name__ == "__main__":
    main()
