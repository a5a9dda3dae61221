"""The way of a cold launch and of one fragment through a build, traced and drawn.

Three ways, each in a fresh process: ``family.launcher(**config)`` for a kernel that an earlier process linked
(``found``), the same with an empty cache (``linked``), and ``build`` of a family of one fragment (``build``), whose
compile is done in the process itself and not in a worker. A module is *entered* when one of its functions is called
from another module. Calls that an import makes are left out, and so are locks, what is computed once, and the
constructors, methods and properties of immutable values, which are read like attributes; what they call in other
modules counts. ``Plan`` is no such value: it
holds a session and a database, and links. The private modules of a package (``storage.database._hash_tree``) belong to
it. A *return* is an entry into a module that was entered before. Each pair of modules between which there are returns
needs a reason in ``REASONS``, or the command fails.

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
#: A cold launch enters fewer modules than this, of the whole package and of a folder.
LIMITS = {"found": {"": 9}, "linked": {"": 15, "runtime.": 9}}

#: Why a module is entered again, by caller and module, both without ``jitlto.``; ``*`` stands for every other caller.
REASONS = {
    # Values and pure rules, which are asked where they are needed.
    ("*", "model.types"): "values: each C++ type is looked up, of configurations and of parameters",
    ("*", "model.layouts"): "values: each parameter's type is looked up, which may be a structure",
    ("*", "model.fragment"): "values: a fragment is asked for its key, its images or its symbols",
    ("*", "model.resolve"): "values: the resolution is asked for its fragments, in link order",
    ("*", "model.headers"): "values: a source is asked for its headers, and for its digest",
    ("*", "model.header_search"): "the headers that a source reaches: among the family's own, and among all",
    ("*", "model.header_places"): "rules: each include is looked for in the places that its form and its includer give",
    ("*", "model.header_texts"): "each header is read once, and asked for its directives and its text",
    ("*", "model.directives"): "the directives of a text are found for its includes, and for those that are sure",
    ("build.proof", "storage.proofs"): "what was proved is looked up, and what is proved is stored",
    ("build.proof", "model.enumeration"): "what callers supply is no gap, and then each kernel is planned",
    (
        "*",
        "model.index",
    ): "values: fragments are asked whether they agree with a configuration; providers are found by it",
    ("model.resolve", "model.index"): "each symbol's providers, found by the values of a configuration",
    ("build.templates", "build.rendering.same_sources"): "each source is added, and all of a group are compared",
    ("*", "model.text"): "rules of wording: each function checks the types of its own arguments",
    ("*", "model.mangling"): "values: symbols are demangled",
    ("*", "model.type_spelling"): "each parameter's type is compared with the kernel's",
    ("*", "model.compatibility"): "rules: target, link mode and image of each fragment are decided one after the other",
    ("*", "model.ptx"): "each PTX that a compile makes is parsed",
    ("*", "storage.files"): "every file is opened by the same rules",
    ("*", "storage.cache_dir"): "one read or write for each entry; after a claim it is looked for again",
    ("*", "cuda.device"): "the current device is asked for when it is needed, and may differ between threads",
    ("*", "cuda.toolkit"): "the libraries' versions, found once a process, and asked for by each who needs one",
    ("cuda.toolkit", "cuda.libraries"): "each library and each header is found when it is first needed",
    ("*", "runtime.events"): "each step emits its event when it is done",
    ("*", "build.execution.events"): "the observer is told of each phase and of each fragment",
    # A launch.
    ("*", "runtime.session"): "the session makes what a process has one of when it is first asked for it",
    ("runtime.family", "runtime.linking.lookup_cache"): "the key of the request, the answer to it, and a new answer",
    ("runtime.linking.lookup_cache", "cuda.nvjitlink"): "a new answer names the nvJitLink that was found",
    ("runtime.family", "runtime.planning.planner"): "a planner is made, and then asked for its plan",
    ("runtime.planning.planner", "runtime.family"): "a family opens its database when it is first planned from",
    (
        "*",
        "storage.database",
    ): "the family's record and fragments; its images, which are read when they are linked and not before",
    ("runtime.family", "runtime.planning.plan"): "a plan is asked for its digest, and linked if that is not loaded",
    ("runtime.linking.kernel_cache", "runtime.planning.plan"): "a plan is linked only if it is in no cache",
    ("runtime.planning.plan", "cuda.nvjitlink"): "asked for its version for the digest; links only what is in no cache",
    ("storage.database.writer", "storage.database"): "the rows are made and sorted, their nodes are made, and the root",
    ("*", "storage.database.writer"): "whether it may be written is checked before the work, and it is written after",
    (
        "*",
        "runtime.linking.kernel_cache",
    ): "one thread loads a kernel that several ask for, and looks for it or links it",
    (
        "runtime.linking.kernel_cache",
        "runtime.family",
    ): "called back by the one thread, to find, link and load the kernel",
    (
        "runtime.family",
        "runtime.launch.launcher",
    ): "a class of its own for each launcher, then its instance",
    # A build.
    ("build.matrix.rules", "build.matrix.tree"): "the strict rules walk the tree of the document",
    ("build.templates", "build.matrix.document"): "the matrix is loaded, then asked for its combinations",
    ("build.templates", "build.matrix.tree"): "the tree is asked for its combinations",
    ("build.templates", "build.rendering.rendered_texts"): "what is not found is rendered, and stored",
    ("build.rendering.rendered_texts", "build.rendering.template_files"): "read for the key, and to see what changed",
    ("build.execution.scheduler", "build.execution.transport"): "workers start at the first jobs that are found",
    ("build.pipeline", "build.interface_proof"): "asks the compiler what the interfaces declare",
    ("build.interface_proof", "build.interface_compiler"): "starts what it asks, and takes the answers later",
    ("build.rendered_families", "build.interface_text"): "has the interfaces compared, with all families of the build",
    ("build.interfaces", "model.declarations"): "what a source defines is held against the interfaces",
    ("build.rendered_families", "build.interfaces"): "checks each source against the interfaces of its family",
    ("build.pipeline", "build.interfaces"): "checks what fragments require of each other",
    ("*", "build.cache.keys"): "the key without headers, for the look-up; with them, for the entry that is written",
    ("*", "build.cache.cache"): "looked up before a compile, once more after the claim, and written after it",
    (
        "*",
        "build.compilers.nvrtc",
    ): "the compiler is asked for its header directories, its identity, and then to compile",
    ("cuda.nvrtc", "build.compilers.nvrtc"): "called back to run each step of a compile, perhaps from a snapshot",
    ("*", "build.compilers.header_trace"): "its options come before a compile, what was read after it",
    ("*", "build.compilers.base"): "the worker finds the compiler by name, in a process of its own",
    ("*", "build.compilers.snapshot"): "each run of a compile may go on from a snapshot: LTO-IR, PTX, unoptimised PTX",
    ("build.compilers.snapshot", "cuda.nvrtc"): "each run of a compile is one call of NVRTC",
    ("build.execution.workers", "build.execution.forkserver"): "asked to load the compilers; ended at the end",
    ("build.execution.worker_process", "build.execution.forkserver"): "asked for each worker, and how it ended",
    ("build.execution.workers", "build.execution.worker_process"): "each call of a worker; ended at the end",
    ("build.execution.scheduler", "build.execution.shared_lookup"): "asked for all jobs, again if stores opened late",
    ("build.execution.scheduler", "build.execution.task"): "values: a job is asked for its key and rank",
    ("build.execution.scheduler", "build.execution.waiting"): "a queue: tasks are added, taken and reported as ended",
    ("build.execution.waiting", "build.execution.task"): "values: a task is asked for its rank and its includes",
    ("*", "build.execution.workers"): "the pool is made at the start, and ended at the end",
    ("*", "build.rendered_families"): "rendered, checked for what makes builds differ, and reduced to a shard",
    ("*", "compile.signatures"): "each text that defines a kernel is read for the names of parameters",
    ("build.execution.scheduler", "build.pipeline"): "called back with each compiled source, to make its fragment",
    ("build.rendered_families", "build.validate"): "families are checked against each other, then each by itself",
    ("build.pipeline", "build.validate"): "interfaces are checked first, then everything across fragments",
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

    def count(self, folder: str = "") -> int:
        """How many modules of a folder are entered."""
        return sum(module.startswith(folder) for module in self.modules)

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


def reason(caller: str, module: str) -> str | None:
    """Why a module is entered again; None if nothing is written down."""
    names = [(caller, module), (caller, "*"), ("*", module)]
    return next((REASONS[name] for name in names if name in REASONS), None)


def unexplained(way: str, trace: Trace) -> list[str]:
    """The returns of a way that have no reason."""
    return [
        f"{way}: {caller} -> {module} ({times} times)"
        for (caller, module), times in trace.returns.items()
        if reason(caller, module) is None
    ]


def exceeds(way: str, trace: Trace) -> bool:
    """Whether a way enters more modules than it may."""
    return any(trace.count(folder) >= limit for folder, limit in LIMITS.get(way, {}).items())


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
  .note { font-size: 9px; fill: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .lane { stroke: #3d444d; }
    .bar { fill: #4493f8; }
    .first { stroke: #4493f8; }
    .again { stroke: #f0883e; }
    .note { fill: #f0883e; }
  }
"""


def draw(title: str, trace: Trace, numbers: Mapping[tuple[str, str], int]) -> str:
    """The steps as an SVG: a lane for each module, time from left to right.

    Parameters
    ----------
    title : str
    trace : Trace
    numbers : mapping of (str, str) to int
        The number of each pair of modules between which there are returns.
    """
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
        if step.module in seen:
            note = numbers[step.caller, step.module]
            lines.append(f'<text class="note" x="{x}" y="{_TOP - 6}" text-anchor="middle">{note}</text>')
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
    """A section of the page: the drawing, what was counted, and the returns with their reasons."""
    returns = trace.returns
    lines = [
        f"## {TITLES[way]}",
        "",
        f"![{TITLES[way]}]({way}.svg)",
        "",
        f"Entered: {summarize(trace)}.",
        "",
    ]
    if returns:
        lines += ["| # | from | to | times | reason |", "|---|---|---|---|---|"]
        lines += [
            f"| {number} | `{caller}` | `{module}` | {times} | {reason(caller, module) or '**none given**'} |"
            for number, ((caller, module), times) in enumerate(returns.items(), start=1)
        ]
        lines.append("")
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
        "entered for the first time, orange where it is entered again. The numbers refer to the tables.",
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
        numbers = {pair: number for number, pair in enumerate(trace.returns, start=1)}
        (output / f"{way}.svg").write_text(draw(TITLES[way], trace, numbers), "utf-8")
    (output / "traces.md").write_text(page(traces), "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Trace, print what was counted, draw; fail where a return has no reason or a launch enters too many modules."""
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
    problems = []
    for way, trace in traces.items():
        print(f"{way}: {summarize(trace)}")
        if options.calls:
            print(*(f"  {line}" for line in outline(trace)), sep="\n")
        problems += [f"no reason for {each}" for each in unexplained(way, trace)]
        if exceeds(way, trace):
            problems.append(f"{way}: more modules are entered than {LIMITS[way]}")
    if options.output:
        write(options.output, traces)
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
