"""The way of a cold launch and of one fragment through a build, traced and drawn.

Three ways, each in a fresh process: ``family.launcher(**config)`` for a kernel that an earlier process linked
(``found``), the same with an empty cache (``linked``), and ``build`` of a family of one fragment (``build``), whose
compile is done in the process itself and not in a worker. A module is *entered* when one of its functions is called
from another module. What all steps share, in ``base`` and ``record``, and calls that an import makes are left out.

``python -m tests.support.ways --output docs/architecture`` draws them. Without a GPU, a stand-in takes the place of the
driver: of ``cuda.core`` and ``cuda.bindings``, not of any part of jitlto.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from html import escape
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

from tests.support.families import MINI, write_family

#: What each way is called in the drawings.
TITLES = {
    "found": "A cold launch of a kernel that is in the cache",
    "linked": "A cold launch of a kernel that has to be planned and linked",
    "build": "One fragment through a build",
}
_SHARED = ("jitlto.base.", "jitlto.record.")


class Step(NamedTuple):
    """One entry into a module: from how deep, of which function; ``caller`` is empty for the caller of jitlto."""

    depth: int
    caller: str
    module: str
    function: str


def modules(steps: list[Step]) -> list[str]:
    """The modules entered, in the order of their first entries."""
    return list(dict.fromkeys(step.module for step in steps))


@contextmanager
def traced() -> Iterator[list[Step]]:
    """Note the entries into modules of jitlto that this thread makes meanwhile."""
    steps: list[Step] = []
    stack: list[tuple[FrameType, str, int]] = []  # module, and the depth of entries
    generators: set[FrameType] = set()  # that have begun

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and stack and stack[-1][0] is frame:
            stack.pop()
        if event != "call":
            return
        name, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        module, depth = stack[-1][1:] if stack else ("", 0)
        if module == "import" or function in ("<module>", "__getattr__"):
            stack.append((frame, "import", depth))
        elif name.startswith("jitlto.") and not name.startswith(_SHARED) and frame not in generators:
            name = name.removeprefix("jitlto.").partition("._")[0]  # the private modules of a package belong to it
            if name != module:
                steps.append(Step(depth, module, name, function))
                depth += 1
            stack.append((frame, name, depth))
            generators.add(frame)

    sys.setprofile(profile)
    try:
        yield steps
    finally:
        sys.setprofile(None)


def stand_in() -> None:
    """Put a device of compute capability 9.0 in the place of the driver, if there is no device."""
    import cuda.core
    from cuda.bindings import driver

    try:
        cuda.core.Device(0).set_current()
        return
    except Exception:  # noqa: BLE001, S110 - cuda.core has no one error for a missing driver
        pass

    class Device:
        device_id = 0
        compute_capability = (9, 0)
        default_stream = None
        name = "none"
        properties = SimpleNamespace(
            multiprocessor_count=132, max_threads_per_multiprocessor=2048, memory_clock_rate=2_619_000
        )

        def __init__(self, _: int = 0) -> None: ...

        def set_current(self) -> None: ...

        @staticmethod
        def get_all_devices() -> list[Device]:
            return [Device()]

    class ObjectCode:
        from_cubin = from_ptx = staticmethod(lambda _, **__: ObjectCode())

        def get_kernel(self, _: str) -> object:
            return SimpleNamespace(handle=0, attributes={0: SimpleNamespace(shared_size_bytes=0)})

    replaced: Any = cuda.core
    replaced.Device, replaced.ObjectCode = Device, ObjectCode
    bindings: Any = driver
    bindings.cuCtxGetDevice = bindings.cuCtxGetCurrent = bindings.cuCtxPopCurrent = lambda: (0, 0)
    bindings.cuCtxPushCurrent = bindings.cuKernelGetFunction = lambda _: (0, 0)
    bindings.cuThreadExchangeStreamCaptureMode = lambda mode: (driver.CUresult.CUDA_SUCCESS, mode)


def _submit(_: object, job: object, run: Callable[[Any], Any]) -> Future[Any]:
    """Compile at once in this process, where the trace sees it: what ``transport.submit`` has a worker do."""
    future: Future[Any] = Future()
    try:
        future.set_result(run(job))
    except Exception as error:  # noqa: BLE001 - as executors do
        future.set_exception(error)
    return future


def trace_launch(place: Path) -> list[Step]:
    """Trace ``launcher`` of the family ``mini``, whose database is in a directory."""
    stand_in()
    import jitlto

    mini = jitlto.load("mini", place / "mini.fragdb")
    with traced() as steps:
        mini.launcher(data_type="float", op_name="twice")
    return steps


def trace_build(place: Path) -> list[Step]:
    """Trace ``build`` of one fragment, with an empty cache, and compiling in this process."""
    from jitlto.build.cache.cache import open_cache
    from jitlto.build.execution import transport
    from jitlto.build.pipeline import build
    from jitlto.families import declaration

    toml = MINI["family.toml"].partition("[device.")[0]
    kern = 'extern "C" __global__ void kern({{data_type}}* x, unsigned n) {}\n'
    one = {"family.toml": toml, "kern.json": '{"data_type": ["float"]}', "kern.cu.jinja": kern}
    family = declaration.load_family(write_family(place / "one", one))
    cache = open_cache()
    replaced: Any = transport
    replaced.submit = _submit
    with traced() as steps:
        build([family], place / "one.fragdb", jobs=1, cache=cache)
    return steps


def run(way: str, place: Path) -> list[Step]:
    """Trace a way in a fresh process."""
    command = [sys.executable, "-m", "tests.support.ways", "--way", way, "--place", str(place)]
    own = {"JITLTO_CACHE_DIR": str(place / "cache")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JITLTO_")}
    done = subprocess.run(command, env=environment | own, stdout=subprocess.PIPE, check=True)
    return [Step(*step) for step in json.loads(done.stdout)]


def collect(place: Path) -> dict[str, list[Step]]:
    """Trace all ways, with databases and a cache in an empty directory."""
    from jitlto.build.pipeline import build
    from jitlto.families import declaration

    build([declaration.load_family(write_family(place / "mini", MINI))], place / "mini.fragdb", jobs=1)
    traces = {way: run(way, place) for way in ("linked", "found", "build")}
    return {way: traces[way] for way in TITLES}


_ROW, _COLUMN, _LEFT, _TOP = 20, 14, 230, 30
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .lane { stroke: #d1d9e0; }
  .bar { fill: #0969da; }
  .first { stroke: #0969da; fill: none; stroke-width: 1.5; }
  .again { stroke: #bc4c00; fill: none; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .lane { stroke: #3d444d; }
    .bar { fill: #4493f8; }
    .first { stroke: #4493f8; }
    .again { stroke: #f0883e; }
  }
"""


def draw(title: str, steps: list[Step]) -> str:
    """The steps as an SVG: a lane for each module, time from left to right."""
    steps = [step for number, step in enumerate(steps) if number == 0 or step[:3] != steps[number - 1][:3]]
    lanes = {module: _TOP + _ROW * (number + 0.5) for number, module in enumerate(modules(steps))}
    width, height = _LEFT + _COLUMN * (len(steps) + 1) + 10, _TOP + _ROW * len(lanes) + 10
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>",
    ]
    for module, y in lanes.items():
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(module)}</text>')
        lines.append(f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
    seen: set[str] = set()
    for number, step in enumerate(steps):
        x, y = _LEFT + _COLUMN * (number + 0.5), lanes[step.module]
        end = next((n for n in range(number + 1, len(steps)) if steps[n].depth <= step.depth), len(steps))
        lines.append(
            f'<rect class="bar" x="{x}" y="{y - 4}" width="{(end - number) * _COLUMN - 5}" height="8" rx="2">'
            f"<title>{escape(f'{step.module}: {step.function}')}</title></rect>"
        )
        if step.caller in lanes:
            kind = "again" if step.module in seen else "first"
            lines.append(f'<path class="{kind}" d="M{x} {lanes[step.caller]}V{y}"/>')
        seen.add(step.module)
    return "\n".join([*lines, "</svg>", ""])


def text(traces: Mapping[str, list[Step]]) -> str:
    """The calls of all ways."""
    lines = []
    for way, steps in traces.items():
        calls = [f"{'  ' * step.depth}{step.module}: {step.function}" for step in steps]
        calls = [call for number, call in enumerate(calls) if number == 0 or call != calls[number - 1]]
        lines += [f"{TITLES[way]} ({len(modules(steps))} modules)", "", *calls, ""]
    return "\n".join(lines)


def main() -> None:
    """Trace and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="the directory to write the drawings to")
    parser.add_argument("--way", choices=TITLES, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        json.dump((trace_build if options.way == "build" else trace_launch)(options.place), sys.stdout)
        return
    with tempfile.TemporaryDirectory() as directory:
        traces = collect(Path(directory))
    if options.output is None:
        print(text(traces))
        return
    for way, steps in traces.items():
        (options.output / f"{way}.svg").write_text(draw(TITLES[way], steps), "utf-8")


if __name__ == "__main__":
    main()
