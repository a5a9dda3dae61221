"""Launchers that begin with a kernel linked of cubins, which one with LTO replaces; what the driver does is noted."""

import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import jitlto
from jitlto.base.config import Config
from jitlto.base.errors import CompileError, LaunchError, LinkError
from jitlto.base.events import Event, Kind
from jitlto.base.log import LinkWarning
from jitlto.build.pipeline import build
from jitlto.compile import nvrtc_program
from jitlto.compile.nvrtc_program import Output, Step
from jitlto.cuda import device, nvfatbin
from jitlto.cuda.nvjitlink import find_undefined
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.launch import launcher as launcher_module
from jitlto.launch.launcher import Launcher
from jitlto.link import behind
from jitlto.link.behind import Behind
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.user_code.compilation import compile_once
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support import compiled as support
from tests.support import launch_core
from tests.support.errors import raises
from tests.support.families import MINI, tiered, write_family
from tests.support.launch_core import plain_class
from tests.support.launchers import FakeDriver, Stream, launcher_class
from tests.support.process import ROOT, environment, output_of, python

FLOAT = {"data_type": "float", "op_name": "twice"}
FAST, LTO = 1, 2  # the numbers of the kernels in the order in which they are loaded
LONG = 60.0  # seconds after which a test that hangs fails


def built(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    family = declaration.load_family(write_family(directory, files))
    build([family], directory / "made.fragdb", jobs=1)
    return directory / "made.fragdb"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("tiers"), tiered(MINI))


def finish() -> None:
    """Wait until both threads behind have done what they had to."""
    barrier = threading.Barrier(3)
    jobs = [Behind(lambda: barrier.wait(LONG)).begin() for _ in range(2)]
    barrier.wait(LONG)
    for job in jobs:
        job.wait()


class World:
    """A session above a driver that notes what it is given; threads behind go on when they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, core: ModuleType | None) -> None:
        self.driver = FakeDriver(monkeypatch, core)
        monkeypatch.setattr(launcher_module, "Launcher", launcher_class(core))
        self.directory = directory
        self.may_exchange = threading.Event()
        self.events: list[str] = []
        self._patch = monkeypatch

    def family(self, path: Path, **settings: str) -> KernelFamily:
        """Load the family of a database in a session of its own."""
        session = Session(Config.read({"JITLTO_CACHE_DIR": str(self.directory / "cache")} | settings))
        session.events.subscribe(self._note)
        (name,) = FragmentDatabase(path).families
        family = jitlto.load(name, path, session=session)
        signature = next(iter(family.kernels())).resolution.entry.signature
        self.driver.signatures = defaultdict(lambda: signature)
        return family

    def _note(self, event: Event) -> None:
        if event.kind == Kind.LINKED and threading.current_thread() is not threading.main_thread():
            assert self.may_exchange.wait(LONG)
        self.events.append(event.kind)

    def launch(self, launcher: Launcher, block: int = 32, **how: Any) -> int:
        """Launch, and return the number of the kernel."""
        launcher(Stream(), 1, block, None, 1, **how)
        return self.driver.launched[-1]

    def fail_to_link(self, error: BaseException, times: int = 1000) -> None:
        """Have links with LTO fail, so many times."""
        from jitlto.link import linker

        link, failures = linker.link_plan, [error] * times

        def fail(*args: Any, **how: Any) -> Any:
            if how.get("is_first") or not failures:
                return link(*args, **how)
            raise failures.pop()

        self._patch.setattr(linker, "link_plan", fail)


@pytest.fixture(params=["core", "python"])
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(monkeypatch, tmp_path, launch_core.core() if request.param == "core" else None)
    yield made
    made.may_exchange.set()
    finish()


# --- the two tiers ---


def test_the_first_launches_are_of_cubins_and_later_ones_of_lto(world: World, path: Path) -> None:
    launcher = world.family(path).launcher(**FLOAT)
    assert launcher.tier == "fast"
    assert [world.launch(launcher) for _ in range(3)] == [FAST] * 3
    world.may_exchange.set()
    assert launcher.wait() is launcher
    assert launcher.tier == "lto"
    assert [world.launch(launcher) for _ in range(3)] == [LTO] * 3
    by_core = [shape.by_core for _, shape, *_ in world.driver.launches]
    assert by_core == ([False] * 2 + [True] * 4 if world.driver.core else [False] * 6)
    assert world.events == [
        Kind.PLANNED, Kind.REQUESTED, Kind.LINKED_FAST, Kind.LOADED, Kind.LINKED, Kind.EXCHANGED,
    ]  # fmt: skip


def test_what_is_cached_is_the_kernel_with_lto(world: World, path: Path) -> None:
    world.may_exchange.set()
    first = world.family(path).launcher(**FLOAT).wait()
    again = world.family(path).launcher(**FLOAT)
    assert (again.tier, again.linked.layer) == ("lto", "disk")
    assert again.cubin == first.cubin == first.plan.link().cubin
    assert world.events.count(Kind.LINKED_FAST) == 1


def test_without_a_cache_the_tiers_are_the_same(world: World, path: Path) -> None:
    world.may_exchange.set()
    for _ in range(2):
        launcher = world.family(path, JITLTO_CACHE="off").launcher(**FLOAT)
        assert launcher.wait().tier == "lto"
    assert world.events.count(Kind.LINKED_FAST) == world.events.count(Kind.EXCHANGED) == 2


def test_threads_that_ask_at_once_get_one_launcher_and_one_link(world: World, path: Path) -> None:
    world.may_exchange.set()
    family, found = world.family(path), []
    threads = [threading.Thread(target=lambda: found.append(family.launcher(**FLOAT).wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert found[0].tier == "lto"
    assert world.events.count(Kind.LINKED) == world.events.count(Kind.EXCHANGED) == 1


@pytest.mark.parametrize("kind", [Kind.LINKED_FAST, Kind.LOADED, Kind.LINKED, Kind.EXCHANGED])
def test_a_subscriber_may_fail_or_wait_for_the_kernel_that_it_hears_of(world: World, path: Path, kind: str) -> None:
    world.may_exchange.set()
    family, tiers = world.family(path), []

    def listen(event: Event) -> None:
        if event.kind == kind:
            tiers.append(family.launcher(**FLOAT).wait().tier if kind != Kind.LINKED_FAST else None)
            raise ValueError("a subscriber's own")

    family.session.events.subscribe(listen)
    assert family.launcher(**FLOAT).wait().tier == "lto"
    assert len(tiers) == 1


# --- who may have them ---


def test_a_caller_may_want_lto_at_once(world: World, path: Path) -> None:
    world.may_exchange.set()
    family = world.family(path)
    assert family.launcher(**FLOAT, link_options={"tiered": False}).tier == "lto"
    assert Kind.LINKED_FAST not in world.events


def test_who_wants_lto_waits_for_that_of_a_launcher_that_others_have(world: World, path: Path) -> None:
    family = world.family(path)
    fast = family.launcher(**FLOAT)
    assert fast.tier == "fast"
    threading.Timer(0.05, world.may_exchange.set).start()
    assert family.launcher(**FLOAT, link_options={"tiered": False}) is fast
    assert fast.tier == "lto"


def test_the_environment_turns_tiers_off(world: World, path: Path) -> None:
    assert world.family(path, JITLTO_TIERED="0").launcher(**FLOAT).tier == "lto"


@pytest.mark.slow
def test_tiers_are_for_the_author_to_allow(world: World, tmp_path: Path) -> None:
    files = MINI | {"family.toml": MINI["family.toml"].replace('"mini"\n', '"mini"\nsass = ["90"]\n', 1)}
    family = world.family(built(tmp_path / "plain", files))
    with raises(LinkError, "link-option-late", "tiered"):
        family.launcher(**FLOAT, link_options={"tiered": True})
    assert family.launcher(**FLOAT).tier == "lto"


@pytest.mark.parametrize(
    "how",
    [
        {"link_mode": "ptx"},
        {"link_mode": "sass"},
        {"link_options": {"max_registers": 64}},
        {"link_options": {"ftz": True}},
        {"link_options": {"libraries": ["cudadevrt"]}},
        {"link_options": {"lineinfo": False, "optimization": 0}},
    ],
)
def test_what_cubins_do_not_mean_is_linked_at_once(world: World, path: Path, how: dict[str, Any]) -> None:
    assert world.family(path).launcher(**FLOAT, **how).tier == "lto"
    assert Kind.LINKED_FAST not in world.events


@pytest.mark.slow
def test_without_a_cubin_for_the_device_it_is_lto_at_once(world: World, tmp_path: Path) -> None:
    assert world.family(built(tmp_path / "other", tiered(MINI, sass='"100"'))).launcher(**FLOAT).tier == "lto"


def test_a_process_that_may_not_link_links_nothing(world: World, path: Path) -> None:
    with raises(jitlto.base.errors.NotCachedError):
        world.family(path, JITLTO_MODE="cached").launcher(**FLOAT)


BUMP = """
static __device__ int bump() {
  int before;
  asm volatile("{ .global .u32 count; atom.global.add.u32 %0, [count], 1; }" : "=r"(before));
  return before;
}
"""
COUNTED = MINI["op.cu.jinja"].replace("template <typename T>", "VARIABLE\ntemplate <typename T>", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "use", "tier"),
    [
        ("__device__ int counter;", "atomicAdd(&counter, 1)", "lto"),
        ("__managed__ int counter;", "atomicAdd(&counter, 1)", "lto"),
        ("static __device__ float table[4] = {1, 2, 3, 4};", "table[int(a) & 3]", "lto"),
        ("__device__ const float table[4] = {1, 2, 3, 4};", "table[int(a) & 3]", "lto"),  # nothing says it is constant
        ("__constant__ float table[4];", "table[int(a) & 3]", "fast"),
        ("constexpr float number = 3; const int other = 4;", "number * other", "fast"),
        ("", 'printf("%f", float(a))', "fast"),
        ("", "T(sin(double(a)))", "fast"),  # which reads tables of the toolkit
        (BUMP, "bump()", "lto"),
    ],
)
def test_kernels_whose_variables_are_written_have_one_module(
    world: World, tmp_path: Path, variable: str, use: str, tier: str
) -> None:
    source = COUNTED.replace("VARIABLE", variable).replace("{{expr}}", f"{{{{expr}}}} + {use}")
    launcher = world.family(built(tmp_path / "state", tiered(MINI | {"op.cu.jinja": source}))).launcher(**FLOAT)
    assert launcher.tier == tier


@pytest.mark.slow
@pytest.mark.parametrize(("archs", "tier"), [('["75"]', "fast"), ('["75", "90"]', "fast")])
def test_where_code_depends_on_the_architecture_both_tiers_mean_the_same(
    world: World, tmp_path: Path, archs: str, tier: str
) -> None:
    source = MINI["op.cu.jinja"].replace("{{expr}}", "({{expr}}) * (__CUDA_ARCH__ >= 900 ? 9 : 7)")
    files = tiered(MINI | {"op.cu.jinja": source})
    files["family.toml"] = files["family.toml"].replace('"mini"\n', f'"mini"\narchs = {archs}\n', 1)
    launcher = world.family(built(tmp_path / "archs", files)).launcher(**FLOAT)
    assert launcher.tier == tier
    assert [image.architecture.number for image in launcher.plan.images][1] == 90


# --- with a caller's own source ---

OWN = "namespace mini { template <> __device__ float op<float>(float a) { return a * 3.0f; } }\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """What NVRTC is asked to make of a caller's source, and by which thread; this process has compiled nothing yet."""
    steps, run = [], nvrtc_program.run_step

    def note(source: Source, step: Step) -> Output:
        if b"user.cu" in source.text:  # no stub of a comparison
            steps.append((step.kind.value, threading.current_thread().name))
        return run(source, step)

    monkeypatch.setattr(nvrtc_program, "run_step", note)
    compile_once.cache_clear()
    yield steps
    compile_once.cache_clear()


def own(family: KernelFamily, text: str = OWN, **how: Any) -> Launcher:
    launcher: Launcher = family.planner(data_type="float").add_source(text).launcher(**how)
    return launcher


def test_a_source_is_launched_before_it_is_compiled_to_ltoir(
    world: World, path: Path, compiled: list[tuple[str, str]]
) -> None:
    launcher = own(world.family(path))
    assert (launcher.tier, world.launch(launcher)) == ("fast", FAST)
    world.may_exchange.set()
    assert world.launch(launcher.wait()) == LTO
    assert compiled[0] == ("ptx", threading.current_thread().name)
    assert [kind for kind, _ in compiled] == ["ptx", "ltoir"]
    assert launcher.cubin == launcher.plan.link(use_cache=False).cubin


def test_a_process_that_ends_before_the_ltoir_is_made_leaves_what_was_compiled(
    world: World, path: Path, compiled: list[tuple[str, str]]
) -> None:
    plan = world.family(path).planner(data_type="float").add_source(OWN).plan()
    for kinds in (["ptx"], ["ptx", "ltoir"], ["ptx", "ltoir"]):
        assert [kind for kind, _ in compiled] == kinds
        compile_once.cache_clear()
        again = world.family(path).planner(data_type="float").add_source(OWN).plan()
        assert (again.digest, again.supplied) == (plan.digest, plan.supplied)
        again.link(use_cache=False)


def test_a_kernel_with_a_source_is_the_same_with_and_without_tiers(world: World, path: Path) -> None:
    world.may_exchange.set()
    first = own(world.family(path)).wait()
    again = own(world.family(path, JITLTO_TIERED="0"))
    assert (again.tier, again.linked.layer) == ("lto", "disk")
    assert (again.chosen.digest, again.cubin) == (first.chosen.digest, first.cubin)


@pytest.mark.parametrize("how", [{"link_options": {"tiered": False}}, {"link_mode": "ptx"}, {"link_mode": "sass"}])
def test_a_source_is_linked_once_where_there_is_one_tier(world: World, path: Path, how: dict[str, Any]) -> None:
    assert own(world.family(path), **how).tier == "lto"
    assert Kind.LINKED_FAST not in world.events


def test_other_inputs_begin_with_lto(world: World, path: Path) -> None:
    alone = support.compiled("namespace mini { template <typename T> __device__ T op(T a); }\n" + OWN)
    ((architecture, ltoir),) = alone.ltoir.items()
    fatbin = nvfatbin.wrap(ImageKind.LTOIR, ltoir, architecture)
    family = world.family(path)
    for name, data in (("add_ptx", alone.ptx), ("add_ltoir", ltoir), ("add_ltoir", fatbin)):
        planner = family.planner(data_type="float")
        assert getattr(planner, name)(data).launcher().tier == "lto"
    assert Kind.LINKED_FAST not in world.events


def test_a_python_function_begins_with_lto(world: World, path: Path) -> None:
    pytest.importorskip("numba.cuda")
    family = world.family(path)
    assert family.planner(data_type="float").add_function(lambda a: a * 3, "op").launcher().tier == "lto"
    assert Kind.LINKED_FAST not in world.events


def test_a_source_that_does_not_compile_is_an_error_before_the_launch(world: World, path: Path) -> None:
    with raises(CompileError, "compile", "undeclared", "user.cu(2)"):
        own(world.family(path), OWN.replace("{ return a", "{\nreturn undeclared"))
    assert world.events == []


def test_a_source_that_compiles_to_no_ltoir_stays_fast_and_a_warning_says_why(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[tuple[str, str]]
) -> None:
    run = nvrtc_program.run_step

    def fail(source: Source, step: Step) -> Output:
        if step.kind is ImageKind.LTOIR:
            raise CompileError("no LTO-IR of this")
        return run(source, step)

    monkeypatch.setattr(nvrtc_program, "run_step", fail)
    with pytest.warns(LinkWarning, match="no LTO-IR of this"):
        launcher = own(world.family(path)).wait()
    assert (launcher.tier, world.launch(launcher)) == ("fast", FAST)
    with raises(CompileError):
        own(world.family(path), link_options={"tiered": False})


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        (OWN.replace("return", "static __device__ int counter; return counter++ +"), "lto"),
        ("__constant__ float factor = 2;\n" + OWN.replace("3.0f", "factor"), "fast"),
        ("#include <cuda_fp16.h>\n" + OWN.replace("3.0f", "__half2float(__float2half(a))"), "fast"),
        (OWN.replace("return", 'if (a > 1) printf("%f", a); return'), "fast"),
    ],
)
def test_a_source_has_two_tiers_unless_it_writes_to_variables(world: World, path: Path, text: str, tier: str) -> None:
    assert own(world.family(path), text).tier == tier


def test_a_source_that_names_architectures_means_the_same_in_both_tiers(world: World, path: Path) -> None:
    launcher = own(world.family(path), OWN.replace("3.0f", "(__CUDA_ARCH__ / 1.0f)"))
    assert launcher.tier == "fast"
    seven_fifty = "0f443B8000"
    (item,) = launcher.plan.supplied[0].for_mode("sass")
    assert seven_fifty in item.data.decode()
    assert seven_fifty in launcher.plan.link_ptx()


@pytest.mark.slow
def test_a_source_that_shares_a_function_with_fragments_for_another_architecture_is_refused(
    world: World, tmp_path: Path
) -> None:
    by = "template <typename T> __device__ __noinline__ T by(T a) { return a * (__CUDA_ARCH__ >= 900 ? 9 : 7); }"
    files = MINI | {"op.cuh": f"{MINI['op.cuh']}\nnamespace mini {{ {by} }}\n"}
    files["kern.cu.jinja"] = MINI["kern.cu.jinja"].replace("op<T>(x[i])", "by(op<T>(x[i]))")
    family = world.family(built(tmp_path / "by", tiered(files)))
    with raises(LinkError, "link-conflicting-definitions", "mini::by"):
        own(family, OWN.replace("a * 3.0f", "by(a)"))
    assert own(family).tier == "lto"


SHARED = "namespace mini { template <typename T> __device__ __noinline__ T shared(T a) { return a / 7; } }\n"


@pytest.mark.slow
def test_functions_that_a_source_shares_with_fragments_must_be_the_same_in_both_tiers(
    world: World, tmp_path: Path
) -> None:
    kernel = SHARED + MINI["kern.cu.jinja"].replace("op<T>(x[i])", "shared(op<T>(x[i]))")
    family = world.family(built(tmp_path / "sharing", tiered(MINI | {"kern.cu.jinja": kernel})))
    same = SHARED + OWN.replace("3.0f", "shared(a)")
    assert own(family, same).tier == "fast"
    with raises(LinkError, "link-conflicting-definitions", "shared<float>", "user.cu"):
        own(family, same.replace("a / 7", "a / 9"))


# A function that keeps many values alive.
GREEDY = """{
  float v[96], s = 0;
  #pragma unroll
  for (int i = 0; i < 96; i++) v[i] = a * (a + i) / (i + 1);
  #pragma unroll
  for (int i = 0; i < 96; i++) s = s * v[i] + v[95 - i];
  return s;
}"""


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("table", "limit"), [("family", ""), ("family", "sass_registers = 64"), ("link", "max_registers = 128")]
)
def test_a_source_gets_no_more_registers_than_the_kernel_may_use(
    world: World, tmp_path: Path, table: str, limit: str
) -> None:
    kernel = MINI["kern.cu.jinja"].replace("__global__", "__global__ __launch_bounds__(1024)", 1)
    files = tiered(MINI | {"kern.cu.jinja": kernel})
    files["family.toml"] = files["family.toml"].replace(f"[{table}]", f"[{table}]\n{limit}", 1)
    family, text = world.family(built(tmp_path / "limit", files)), OWN.replace("{ return a * 3.0f; }", GREEDY)
    assert own(family, text).tier == "fast"
    assert find_undefined(own(family, text, link_mode="sass").cubin) == []


# --- what a launch may ask of a kernel ---


def test_a_block_that_the_fast_kernel_cannot_take_waits_for_lto(world: World, path: Path) -> None:
    launcher = world.family(path).launcher(**FLOAT)
    world.driver.too_large = {FAST}
    world.may_exchange.set()
    assert world.launch(launcher, block=1024) == LTO
    world.driver.too_large = {FAST, LTO}
    with raises(LaunchError, "launch-failed"):
        world.launch(launcher, block=1024)


def test_what_was_granted_to_one_kernel_is_granted_to_the_other(world: World, path: Path) -> None:
    launcher = world.family(path).launcher(**FLOAT)
    assert world.launch(launcher, shared_memory=100_000) == FAST
    world.may_exchange.set()
    launcher.wait()
    assert world.driver.granted == [(FAST, 100_000), (LTO, 100_000)]
    assert world.launch(launcher, shared_memory=200_000) == LTO
    assert world.driver.granted[2:] == [(LTO, 200_000)]


def test_who_asks_for_the_kernel_gets_the_one_that_stays(world: World, path: Path) -> None:
    launcher = world.family(path).launcher(**FLOAT)
    world.may_exchange.set()
    assert int(launcher.kernel.handle) == LTO
    assert world.launch(launcher) == LTO


def test_a_graph_holds_the_kernel_with_lto(world: World, path: Path) -> None:
    launcher = world.family(path).launcher(**FLOAT)
    assert [world.launch(launcher) for _ in range(3)] == [FAST] * 3
    world.driver.is_capturing = True
    threading.Timer(0.05, world.may_exchange.set).start()
    assert world.launch(launcher) == LTO


def test_if_lto_does_not_link_the_launcher_stays_fast_and_says_why_once(world: World, path: Path) -> None:
    world.fail_to_link(LinkError("out of registers"))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        launcher = world.family(path).launcher(**FLOAT)
        for _ in range(2):
            assert launcher.wait().tier == "fast"
    (warning,) = (each.message for each in found if isinstance(each.message, LinkWarning))
    assert "out of registers" in warning.text
    assert "mini/kern" in warning.kernel
    assert world.launch(launcher) == FAST
    assert Kind.EXCHANGED not in world.events


def test_who_wants_lto_gets_the_error_where_it_does_not_link(world: World, path: Path) -> None:
    world.fail_to_link(LinkError("out of registers"))
    family = world.family(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkWarning)
        launcher = family.launcher(**FLOAT).wait()
    for _ in range(2):
        with raises(LinkError, "link"):
            family.launcher(**FLOAT, link_options={"tiered": False})
        with raises(LinkError, "link"):
            family.load(family.plan(**FLOAT, link_options={"tiered": False}))
    assert world.launch(launcher) == FAST


def test_an_error_of_who_wants_lto_is_none_for_who_takes_the_fast_tier(world: World, path: Path) -> None:
    world.fail_to_link(LinkError("out of registers"))
    family = world.family(path)
    with raises(LinkError, "link"):
        family.launcher(**FLOAT, link_options={"tiered": False})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkWarning)
        assert world.launch(family.launcher(**FLOAT).wait()) == FAST


# --- what happens at the same time ---


@pytest.fixture
def busy(world: World) -> Iterator[None]:
    """Both threads behind have other things to do."""
    gate, barrier = threading.Event(), threading.Barrier(3)
    jobs = [Behind(lambda: (barrier.wait(LONG), gate.wait(LONG))).begin() for _ in range(2)]
    barrier.wait(LONG)
    yield
    gate.set()
    for job in jobs:
        job.wait()


def test_nobody_finds_a_fast_kernel_before_it_is_known_that_a_better_one_comes(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.may_exchange.set()
    family, improve, tiers = world.family(path), Launcher.improve, []
    other = threading.Thread(target=lambda: tiers.append(family.launcher(**FLOAT).wait().tier))

    def improve_late(*args: Any) -> None:
        other.start()
        other.join(0.1)
        improve(*args)

    monkeypatch.setattr(plain_class(Launcher), "improve", improve_late)
    family.launcher(**FLOAT)
    other.join(LONG)
    assert tiers == ["lto"]


def test_a_kernel_may_be_there_at_once(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(behind, "_submit", lambda job: job())
        launcher = world.family(path).launcher(**FLOAT)
    assert launcher.tier == "lto"
    assert launcher._behind is None  # else the core would never launch it


def test_the_exchange_may_end_while_somebody_begins_to_wait(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.may_exchange.set()
    launcher = world.family(path).launcher(**FLOAT)
    monkeypatch.setattr(device, "ensure_context", finish)
    assert launcher.wait().tier == "lto"


def test_who_sees_that_lto_is_in_use_launches_it(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.may_exchange.set()
    launcher, seen = world.family(path).launcher(**FLOAT), []
    linked = property(lambda _: launcher.__dict__["linked"], lambda it, _: seen.append(int(it.handle)))
    monkeypatch.setattr(plain_class(Launcher), "linked", linked, raising=False)
    launcher.wait()
    assert seen == [LTO]


def test_who_wants_lto_gets_it_of_one_whom_another_overtook(world: World, path: Path) -> None:
    family = world.family(path)
    plan = family.plan(**FLOAT, link_options={"tiered": False})

    def overtake(event: Event) -> None:
        if event.kind == Kind.REQUESTED:
            stop()
            assert family.launcher(**FLOAT).tier == "fast"

    stop = family.session.events.subscribe(overtake)
    threading.Timer(0.05, world.may_exchange.set).start()
    assert family.load(plan).tier == "lto"


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("trouble", [KeyboardInterrupt, MemoryError])
def test_what_interrupts_the_link_leaves_it_to_who_waits_next(
    world: World, path: Path, trouble: type[BaseException]
) -> None:
    world.may_exchange.set()
    world.fail_to_link(trouble(), times=1)
    launcher = world.family(path).launcher(**FLOAT)
    with pytest.raises(trouble):
        launcher.wait()
    assert world.launch(launcher) == FAST
    assert launcher.wait().tier == "lto"
    assert world.launch(launcher) == LTO


@pytest.mark.usefixtures("busy")
def test_a_warning_that_is_an_error_prevents_no_exchange_and_comes_once(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkedKernel, "warnings", ["nvJitLink: slow"])
    launcher = world.family(path).launcher(**FLOAT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinkWarning)
        with pytest.raises(LinkWarning):
            launcher.wait()
        assert launcher.wait().tier == "lto"
    assert world.events.count(Kind.EXCHANGED) == 1


def test_the_core_is_used_from_the_second_launch_on_though_a_third_ends_first(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, counts = world.family(path).launcher(**FLOAT), iter([1, 3])
    monkeypatch.setattr(
        plain_class(Launcher), "_launches", property(lambda _: next(counts), lambda *_: None), raising=False
    )
    world.launch(launcher)
    assert hasattr(launcher, "_quick") == bool(world.driver.core)


def test_the_core_and_python_change_to_lto_at_once(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, launched = world.family(path).launcher(**FLOAT), []
    for _ in range(3):
        world.launch(launcher)

    def load(kernel: int) -> tuple[int, str]:
        if int(launcher.handle) == LTO:  # what Python launches
            launched.append(world.launch(launcher))
        return int(kernel), ""

    monkeypatch.setattr(device, "load_function", load)
    world.may_exchange.set()
    launcher.wait()
    assert launched == [LTO] * bool(world.driver.core)
    assert world.launch(launcher) == LTO


def test_a_sequence_waits_for_lto(world: World, path: Path) -> None:
    world.may_exchange.set()
    launcher = world.family(path).launcher(**FLOAT)
    jitlto.sequence(Stream(), [launcher.step(1, 32, None, 1)])
    assert launcher.tier == "lto"


@pytest.mark.slow
def test_random_interleavings_are_as_in_the_model(path: Path) -> None:
    done = python(ROOT / "tests/support/exercise_tiers.py", "--count=100", f"--family={path}")
    assert (done.stdout, done.stderr) == ("100 rounds\n", "")


# --- the threads behind ---


def test_a_job_is_done_once_by_whoever_comes_first() -> None:
    done: list[str] = []
    gate = threading.Event()
    blocking = [Behind(lambda: gate.wait(LONG)).begin() for _ in range(2)]  # all threads are busy
    job = Behind(lambda: done.append(threading.current_thread().name)).begin()
    job.wait()
    assert done == [threading.current_thread().name]
    gate.set()
    for each in (*blocking, job):
        each.wait()
    assert len(done) == 1


def test_a_job_begins_when_no_other_has_come_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "_QUIET", 0.2)
    begun, last, done = list[float](), 0.0, threading.Semaphore(0)
    for _ in range(3):
        last = time.monotonic()
        Behind(lambda: (begun.append(time.monotonic()), done.release())).begin()
        time.sleep(0.05)
    assert all(done.acquire(timeout=LONG) for _ in range(3))
    assert min(begun) >= last + 0.2


def test_a_job_that_fails_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    done = [threading.Event() for _ in range(4)]
    for event in done:
        Behind(lambda: 1 // 0).begin()
        Behind(event.set).begin()
    assert all(event.wait(LONG) for event in done)
    assert "ZeroDivisionError" in caplog.text


def test_jobs_that_wait_for_each_other_end() -> None:
    barrier, jobs = threading.Barrier(2), list[Behind]()
    for other in (1, 0):
        jobs.append(Behind(lambda other=other: (barrier.wait(LONG), jobs[other].wait())))  # type: ignore[misc]
    threads = [threading.Thread(target=job.wait, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)


FORKS = """
import os, threading
from jitlto.link.behind import Behind
gate = threading.Event()
jobs = [Behind(lambda: gate.wait(60)).begin() for _ in range(3)]
if os.fork() == 0:
    done = threading.Event()
    Behind(done.set).begin()
    os._exit(0 if done.wait(60) else 1)
gate.set()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_after_a_fork_the_child_has_threads_of_its_own() -> None:
    assert output_of(FORKS, seconds=LONG).split() == ["0"]


FORKED = """
import os, signal, sys
from tests.support.ways import stand_in
stand_in()
import jitlto
from jitlto.launch import launcher as module
launcher = jitlto.load("mini", sys.argv[1]).launcher(data_type="float", op_name="twice")
module._changing.acquire()  # as another thread may have
if os.fork() == 0:
    signal.alarm(30)
    try:
        launcher.max_blocks(32, 100_000)
    except jitlto.base.errors.NoDeviceError:
        os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
def test_after_a_fork_nothing_waits_for_a_thread_of_the_parent(path: Path, tmp_path: Path) -> None:
    assert output_of(FORKED, path, JITLTO_CACHE_DIR=str(tmp_path), seconds=LONG).split() == ["0"]


ENDS = """
import sys
from tests.support.ways import stand_in
stand_in()
import jitlto
family = jitlto.load("mini", sys.argv[1])
if sys.argv[2:]:
    own = "namespace mini {{ template <> __device__ float op<float>(float a) {{ return a * {}; }} }}"
    planners = [family.planner(data_type="float").add_source(own.format(n)) for n in range(12)]
    launchers = [planner.launcher() for planner in planners]
else:
    launchers = [family.launcher(data_type=t, op_name=o) for t in ("float", "double") for o in ("twice", "square")]
print([launcher.tier for launcher in launchers].count("fast") > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", [(), ("source",)], ids=["fragments", "source"])
def test_a_process_ends_while_links_are_under_way(path: Path, tmp_path: Path, own: tuple[str, ...]) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", ENDS, str(path), *own]
        variables = environment(JITLTO_CACHE="off", JITLTO_CACHE_DIR=str(tmp_path))
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LONG, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
