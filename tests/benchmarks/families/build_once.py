"""One build of a kernel of ``transport`` in one mode, in a process of its own; prints what it took as JSON.

python -m tests.benchmarks.families.build_once lto 90 CONFIGURATION OUTPUT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from jitlto.base.versions import Architecture
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import Role
from jitlto.record.parameters import agrees
from tests.benchmarks.families.compile import compile_text
from tests.benchmarks.families.databases import BASE, declared, rendered

MODES = {"whole": "whole program", "separate": "separate compilation", "lto": "LTO"}
_CHANGED = "get_cross_sections"
_RELOCATABLE = "--relocatable-device-code=true"


def main() -> None:
    """Build, write the cubin, print seconds and megabytes."""
    mode, number, configuration, output = sys.argv[1:]
    target, family = Architecture.parse(number), declared("transport")
    sources = _chosen(json.loads(configuration))
    text = "\n".join(item.source for item in sources)
    # Compiler, assembler and linker are loaded and have worked once.
    empty = "__global__ void nothing() {}"
    compile_text(empty, family, target.sm, "cubin")
    nothing = compile_text(empty, family, BASE.compute, "ltoir", (_RELOCATABLE, "-dlto"))
    link([LinkInput(InputKind.LTOIR, nothing, "nothing")], target, ("-lto",))
    before = _megabytes()

    def separate(item: RenderedSource) -> LinkInput:
        code = compile_text(item.source, family, target.sm, "cubin", (_RELOCATABLE,))
        return LinkInput(InputKind.CUBIN, code, str(item.key))

    def lto(item: RenderedSource) -> LinkInput:
        code = compile_text(item.source, family, BASE.compute, "ltoir", (_RELOCATABLE, "-dlto"))
        return LinkInput(InputKind.LTOIR, code, str(item.key))

    begin = time.perf_counter()
    if mode == "whole":
        cubin = compile_text(text, family, target.sm, "cubin")
        times = {"compile": time.perf_counter() - begin, "link": 0.0}
    else:
        compile_one: Callable[[RenderedSource], LinkInput] = separate if mode == "separate" else lto
        flags = ("-lto", *family.link.flags()) if mode == "lto" else ()
        inputs = [compile_one(item) for item in sources]
        compiled = time.perf_counter()
        cubin = link(inputs, target, flags).data
        times = {"compile": compiled - begin, "link": time.perf_counter() - compiled}
    largest = _megabytes()
    begin = time.perf_counter()
    if mode == "whole":
        compile_text(text + "\n", family, target.sm, "cubin")
    else:
        place = next(n for n, item in enumerate(sources) if item.key.group == _CHANGED)
        inputs[place] = compile_one(sources[place])
        link(inputs, target, flags)
    times["again"] = time.perf_counter() - begin
    Path(output).write_bytes(cubin)
    print(json.dumps(times | {"megabytes": largest - before}))


def _chosen(configuration: Mapping[str, str]) -> list[RenderedSource]:
    """The sources of a configuration's fragments, the kernel's last."""
    items = [item for item in rendered("transport").values() if agrees(item.key, configuration)]
    return sorted(items, key=lambda item: item.group.role is Role.ENTRYPOINT)


def _megabytes() -> float:
    """The largest resident set of this process so far."""
    # Not getrusage, whose figure a process inherits from the one that started it.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
