"""What images for later architectures cost and gain: sizes, the time of a build, and machine instructions.

    python -m tests.benchmarks.architectures --output docs/benchmarks/architectures.json

The size of each shipped family's database and the processor time of its build, for compute_75 and with
``archs = "auto"``, and the machine instructions of two kernels that convert numbers.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, processor_seconds, ratio
from tests.support.families import CONVERT, write_family
from tests.support.line_information import count_instructions

CONVERSIONS = {
    "float to bf16": {"from_type": "float", "to_type": "__nv_bfloat16"},
    "half to fp8": {"from_type": "__half", "to_type": "__nv_fp8_e4m3"},
}
_TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


def measure(options: Options) -> Result:
    parts = {"instructions": _instructions, "sizes": _sizes}
    return {part: parts[part](options) for part in ([options.only] if options.only else parts)}


def _sizes(options: Options) -> Result:
    """Bytes of families' databases, how many fragments they hold, and the processor seconds of a build, in turn."""
    result: Result = {}
    for name in options.families:
        family = _load(name, options.place)
        paths = {form: options.place / f"{form}.fragdb" for form in ("base", "auto")}
        forms = {form: [replace(family, is_auto=form == "auto")] for form in paths}
        sides = {form: partial(build, forms[form], path, cache=None) for form, path in paths.items()}
        times = in_turn(sides, options.rounds, processor_seconds)
        sizes = {form: path.stat().st_size for form, path in paths.items()}
        seconds = {form: script.rounded(each) for form, each in times.items()}
        result[name] = {"bytes": sizes, "processor_seconds": seconds, "auto/base": ratio(times, "auto", "base")}
    return result


def _load(name: str, place: Path) -> FamilyDeclaration:
    """A shipped family, the one declared in a file, or ``convert``: 16 kernels, and 4 conversions of 16-bit types."""
    if name == "convert":
        declared = CONVERT["family.toml"].replace('"auto"', '["75"]')
        counts = json.dumps({"from_type": ["float", "__half"], "count": [str(1 << n) for n in range(8)]})
        return declaration.load_family(
            write_family(place / "conversions", CONVERT | {"family.toml": declared, "kern.json": counts})
        )
    return declaration.load_family(Path(name) if name.endswith(".toml") else declaration.find_family(name))


def _forms(place: Path) -> dict[str, KernelFamily]:
    forms = {}
    for form, is_auto in (("base", False), ("auto", True)):
        family = declaration.load_family(write_family(place / "convert", CONVERT))
        report = build([replace(family, is_auto=is_auto)], place / f"convert-{form}.fragdb")
        forms[form] = KernelFamily("convert", FragmentDatabase(report.path))
    return forms


def _instructions(options: Options) -> Result:
    """Machine instructions of the linked kernels, by target."""
    forms = _forms(options.place)
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


if __name__ == "__main__":
    families = declaration.list_families()
    script.run(__doc__, measure, only=("sizes", "instructions"), families=families, rounds=3)
