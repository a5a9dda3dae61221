"""The way of a cold launch and of one fragment through a build, traced and drawn.

Three ways, each in a fresh process: ``family.launcher(**config)`` for a kernel that an earlier process linked
(``found``), the same with an empty cache (``linked``), and ``build`` of a family of one fragment (``build``), whose
compile is done in the process itself and not in a worker. A module is *entered* when one of its functions is called
from another module. Calls that an import makes are left out, and so are locks, what is computed once, and the
constructors, methods and properties of immutable values, which are read like attributes; what they call in other
modules counts. ``Plan`` is no such value: it holds a session and a database, and links. The private modules of a
package belong to it. A *return* is an entry into a module that was entered before.

python -m tests.benchmarks.trace_launch --output docs/architecture

Without a GPU, a stand-in takes the place of the driver: of ``cuda.core`` and ``cuda.bindings``, not of any part of
jitlto.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ContextDecorator, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from html import escape
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from jitlto.base.frozen import Frozen
from tests.support.families import MINI, write_family

#: What each trace is called in the drawings.
TITLES = {
    "found": "A cold launch of a kernel that is in the cache",
    "linked": "A cold launch of a kernel that has to be planned and linked",
    "build": "One fragment through a build",
}


@dataclass
class Step:
    """One entry into a module.

    Parameters
    ----------
    caller : str
        The module that calls; empty for the caller of jitlto.
    module : str
        The module entered.
    function : str
        The function that is called first.
    end : int
        The number of the step that follows its return.
    """

    caller: str
    module: str
    function: str
    end: int = -1


@dataclass
class Trace:
    """The steps of one way, in order."""

    steps: list[Step] = field(default_factory=list)

    @property
    def modules(self) -> list[str]:
        """The modules entered, in the order of their first entries."""
        return list(dict.fromkeys(step.module for step in self.steps))

    @property
    def returns(self) -> Counter[tuple[str, str]]:
        """How often each pair of caller and module is an entry into a module that was entered before."""
        seen: set[str] = set()
        found: Counter[tuple[str, str]] = Counter()
        for step in self.steps:
            if step.module in seen:
                found[step.caller, step.module] += 1
            seen.add(step.module)
        return found


class Tracer:
    """A profile function that notes the entries into the modules of jitlto."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._stack: list[_Call] = []
        self._generators: set[FrameType] = set()  # that have begun

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._call(frame)
        elif event == "return" and self._stack and self._stack[-1].frame is frame:
            step = self._stack.pop().step
            if step is not None:
                step.end = len(self.trace.steps)

    def _call(self, frame: FrameType) -> None:
        name = frame.f_globals.get("__name__", "")
        last = self._stack[-1] if self._stack else None
        importing = (last is not None and last.importing) or frame.f_code.co_name in ("<module>", "__getattr__")
        own = name == "jitlto" or name.startswith("jitlto.")
        if not own and not importing:
            return
        name = name.partition("._")[0]
        call = _Call(frame, importing, name, name)
        if own and not importing:
            caller = last.caller if last else ""
            # The helpers of a value's module belong to the value.
            if _is_of_value(frame) or (last and last.module == name != caller):
                call.caller = caller
            elif name not in (caller, last and last.module) and not self._goes_on(frame):
                call.step = Step(_short(caller), _short(name), frame.f_code.co_qualname)
                self.trace.steps.append(call.step)
        self._stack.append(call)

    def _goes_on(self, frame: FrameType) -> bool:
        """Whether a frame is a generator's that goes on or a generator expression, and no call."""
        if frame.f_code.co_name == "<genexpr>":
            return True
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return False
        known = frame in self._generators
        self._generators.add(frame)
        return known


@dataclass
class _Call:
    """A call under way: its module, and the one that its own calls count as coming from, which is a value's caller."""

    frame: FrameType
    importing: bool
    module: str
    caller: str
    step: Step | None = None


def _is_of_value(frame: FrameType) -> bool:
    """Whether a frame is a method, a property or the constructor of an immutable value, or of a lock."""
    made_once = frame.f_globals.get("__name__") == "jitlto.base.cached"
    if made_once or frame.f_code.co_filename == "<string>":  # what a dataclass generates
        return True
    owner: Any = SimpleNamespace(**frame.f_globals)
    for name in frame.f_code.co_qualname.partition(".<locals>")[0].split(".")[:-1]:
        owner = getattr(owner, name, None)
    if not isinstance(owner, type):
        return False
    config, params = getattr(owner, "__struct_config__", None), getattr(owner, "__dataclass_params__", None)
    return (
        issubclass(owner, Frozen | Enum | ContextDecorator)
        or (issubclass(owner, tuple) and hasattr(owner, "_fields"))
        or (config is not None and config.frozen and config.eq)
        or (params is not None and params.frozen)
    )


def _short(module: str) -> str:
    return module.removeprefix("jitlto.")


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace what this thread does meanwhile."""
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        yield tracer.trace
    finally:
        sys.setprofile(None)
    for step in tracer.trace.steps:
        if step.end < 0:
            step.end = len(tracer.trace.steps)


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
        properties = SimpleNamespace(multiprocessor_count=132, max_threads_per_multiprocessor=2048)

        def __init__(self, _: int = 0) -> None: ...

        def set_current(self) -> None: ...

        @staticmethod
        def get_all_devices() -> list[Device]:
            return [Device()]

    class ObjectCode:
        from_cubin = from_ptx = staticmethod(lambda _, **__: ObjectCode())

        def get_kernel(self, _: str) -> object:
            return SimpleNamespace(handle=0)

    replaced: Any = cuda.core
    replaced.Device, replaced.ObjectCode = Device, ObjectCode
    bindings: Any = driver
    bindings.cuCtxGetCurrent = lambda: (0, 1)
    bindings.cuThreadExchangeStreamCaptureMode = lambda mode: (driver.CUresult.CUDA_SUCCESS, mode)


def _submit(_: object, job: object, run: Callable[[Any], Any]) -> Future[Any]:
    """Compile at once in this process, where the trace sees it: what ``transport.submit`` has a worker do."""
    future: Future[Any] = Future()
    try:
        future.set_result(run(job))
    except Exception as error:  # noqa: BLE001 - as executors do
        future.set_exception(error)
    return future


#: A family of one fragment.
ONE = {
    "family.toml": """
[family]
name = "one"

[entrypoint.scale]
matrix = "scale.json"
template = "scale.cu.jinja"
key = ["data_type"]
params = ["{{data_type}}* x", "{{data_type}} factor", "unsigned n"]
""",
    "scale.json": '{"data_type": ["float"]}',
    "scale.cuh": "#pragma once\ntemplate <typename T> __device__ inline T scaled(T x, T f) { return x * f; }\n",
    "scale.cu.jinja": """#include "scale.cuh"
extern "C" __global__ void scale({{data_type}}* x, {{data_type}} factor, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = scaled(x[i], factor);
}
""",
}


def trace_launch(place: Path) -> Trace:
    """Trace ``launcher`` of the family ``mini`` in a directory that :func:`_prepare` has filled."""
    stand_in()
    import jitlto

    mini = jitlto.load("mini", place / "mini.fragdb")
    with traced() as trace:
        mini.launcher(data_type="float", op_name="twice")
    return trace


def trace_build(place: Path) -> Trace:
    """Trace ``build`` of a family of one fragment, with an empty cache, and compiling in this process."""
    from jitlto.build.cache.cache import open_cache
    from jitlto.build.execution import transport
    from jitlto.build.pipeline import build
    from jitlto.families import declaration

    family = declaration.load_family(write_family(place / "one", ONE))
    cache = open_cache()
    replaced: Any = transport
    replaced.submit = _submit
    with traced() as trace:
        build([family], place / "one.fragdb", jobs=1, cache=cache)
    return trace


def _prepare(place: Path) -> None:
    from jitlto.build.pipeline import build
    from jitlto.families import declaration

    build([declaration.load_family(write_family(place / "mini", MINI))], place / "mini.fragdb", jobs=1)


def run(way: str, place: Path) -> Trace:
    """Trace a way in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.trace_launch", "--way", way, "--place", str(place)]
    own = {"JITLTO_CACHE_DIR": str(place / "cache")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JITLTO_")}
    done = subprocess.run(command, env=environment | own, stdout=subprocess.PIPE, check=True)
    return Trace([Step(*step) for step in json.loads(done.stdout)])


def collect(place: Path) -> dict[str, Trace]:
    """Trace all ways, with databases and a cache in an empty directory."""
    _prepare(place)
    traces = {way: run(way, place) for way in ("linked", "found", "build")}
    return {way: traces[way] for way in TITLES}


def summarize(trace: Trace) -> str:
    """What was counted, in words: modules by folder, and returns."""
    folders = Counter(module.partition(".")[0] for module in trace.modules)
    parts = ", ".join(f"{count} of `{folder}`" for folder, count in folders.most_common())
    return f"{len(trace.modules)} modules ({parts}), {trace.returns.total()} returns"


# Drawing.

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


def draw(title: str, trace: Trace) -> str:
    """The steps as an SVG: a lane for each module, time from left to right."""
    lanes = {module: number for number, module in enumerate(trace.modules)}
    columns = _columns(trace)
    width = _LEFT + _COLUMN * (columns[-1] + 1) + 10
    height = _TOP + _ROW * len(lanes) + 10
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" aria-label="{escape(title)}">'
        ),
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
    ]

    def middle(module: str) -> float:
        return _TOP + _ROW * (lanes[module] + 0.5)

    for module in lanes:
        y = middle(module)
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(module)}</text>')
        lines.append(f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
    seen: set[str] = set()
    for number, step in enumerate(trace.steps):
        if number and columns[number] == columns[number - 1]:
            continue
        x, y = _LEFT + _COLUMN * (columns[number] + 0.5), middle(step.module)
        length = max(1, columns[step.end] - columns[number])
        lines.append(
            f'<rect class="bar" x="{x}" y="{y - 4}" width="{length * _COLUMN - 5}" height="8" rx="2">'
            f"<title>{escape(f'{step.module}: {step.function}')}</title></rect>"
        )
        if step.caller in lanes:
            kind = "again" if step.module in seen else "first"
            lines.append(f'<path class="{kind}" d="M{x} {middle(step.caller)}V{y}"/>')
        seen.add(step.module)
    return "\n".join([*lines, "</svg>", ""])


def _columns(trace: Trace) -> list[int]:
    """The column of each step, and of the end: calls that repeat one after the other share one."""
    columns: list[int] = []
    for number, step in enumerate(trace.steps):
        last = trace.steps[number - 1] if number else None
        repeats = last is not None and (last.caller, last.module) == (step.caller, step.module) and last.end == number
        leaf = step.end == number + 1
        columns.append(columns[-1] if repeats and leaf else columns[-1] + 1 if columns else 0)
    return [*columns, columns[-1] + 1]


def describe(way: str, trace: Trace) -> str:
    """A section of the page: the drawing, what was counted, and the calls."""
    lines = [f"## {TITLES[way]}", "", f"![{TITLES[way]}]({way}.svg)", "", f"Entered: {summarize(trace)}.", ""]
    lines += ["<details><summary>The calls</summary>", "", "```", *outline(trace), "```", "", "</details>", ""]
    return "\n".join(lines)


def outline(trace: Trace) -> list[str]:
    """The entries as an indented list; equal ones that follow each other are one line."""
    ends: list[int] = []
    lines: list[list[Any]] = []
    for number, step in enumerate(trace.steps):
        while ends and ends[-1] <= number:
            ends.pop()
        line = f"{'  ' * len(ends)}{step.module}: {step.function}"
        if lines and lines[-1][0] == line:
            lines[-1][1] += 1
        else:
            lines.append([line, 1])
        ends.append(step.end)
    return [line if times == 1 else f"{line} ({times} times)" for line, times in lines]


def page(traces: Mapping[str, Trace]) -> str:
    """The page of all ways, in Markdown."""
    head = [
        "# The way of a launch and of a build",
        "",
        "Written by `python -m tests.benchmarks.trace_launch --output docs/architecture`; do not edit. Each lane is a",
        "module, time runs from left to right, and a vertical line is a call into another module: blue where it is",
        "entered for the first time, orange where it is entered again.",
        "",
        "Constructors, methods and properties of immutable values (`Architecture.sm`, `LinkOptions.flags`,",
        "`LinkedKernel.decode`) are no calls into their modules: they are read like attributes.",
        "",
    ]
    return "\n".join([*head, *(describe(way, trace) for way, trace in traces.items())]).rstrip() + "\n"


def write(output: Path, traces: Mapping[str, Trace]) -> None:
    """Write the drawings and the page."""
    output.mkdir(parents=True, exist_ok=True)
    for way, trace in traces.items():
        (output / f"{way}.svg").write_text(draw(TITLES[way], trace), "utf-8")
    (output / "traces.md").write_text(page(traces), "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Trace, print what was counted, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="the directory to write the drawings and the page to")
    parser.add_argument("--calls", action="store_true", help="print the calls of each way")
    parser.add_argument("--way", choices=TITLES, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.way:
        trace = trace_build(options.place) if options.way == "build" else trace_launch(options.place)
        json.dump([[step.caller, step.module, step.function, step.end] for step in trace.steps], sys.stdout)
        return
    with tempfile.TemporaryDirectory() as directory:
        traces = collect(Path(directory))
    for way, trace in traces.items():
        print(f"{way}: {summarize(trace)}")
        if options.calls:
            print(*(f"  {line}" for line in outline(trace)), sep="\n")
    if options.output:
        write(options.output, traces)


if __name__ == "__main__":
    main()
