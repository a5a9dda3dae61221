"""Look-ups in packs: the first process that takes a kernel from a pack opens, plans and loads nothing for it.

And it never gets another kernel than planning would give.
"""

import json
import shutil
from collections.abc import Iterator
from operator import call
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from jitlto.base import events
from jitlto.base.errors import JitltoError, UnknownValueError
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.link import packs, requests
from jitlto.link.requests import find_chosen, request_key
from jitlto.link.sources import REQUESTS
from jitlto.plan.plan import Request
from jitlto.runtime import recording, session
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.warming import family_jobs, find_answers, link_jobs
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.process import output_of

SM_90 = Architecture(90)
TWICE = {"data_type": "float", "op_name": "twice"}


class Family(KernelFamily):
    """A family whose kernels are found and linked, and not loaded."""

    def _launcher(self, chosen: Any, linked: Any, plan: Any) -> Any:
        return SimpleNamespace(chosen=chosen, linked=linked, plan=plan, load_seconds=0.0, tier="lto", later=call)


@pytest.fixture(autouse=True)
def _one_nvjitlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is installed, as long as the test says nothing else."""
    monkeypatch.setattr(session, "installed_release", lambda _: str(nvjitlink.version()))


@pytest.fixture
def packed(mini_path: Path, tmp_path: Path, empty_cache: Path, capability: SimpleNamespace) -> Iterator[Path]:
    """A database with a pack of one kernel beside it; the user's cache is empty."""
    path = Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))
    make_pack(path, "float", "twice")
    shutil.rmtree(empty_cache, ignore_errors=True)
    yield path
    session.default.reset()


def make_pack(path: Path, *values: str, arch: Architecture = SM_90) -> None:
    chosen = list(zip(("data_type", "op_name"), values, strict=True))
    link_jobs(family_jobs(process(path), chosen, [arch]).jobs, path.with_suffix(".pack"))
    session.default.reset()


def process(path: Path) -> Family:
    """The family, as a process that begins sees it."""
    session.default.reset()
    return Family("mini", session.default.registry.file(path))


def counted(path: Path, **configuration: Any) -> tuple[str, int]:
    """The layer from which a new process gets a kernel, and how many plans it makes."""
    before = events.counters()["planned"]
    found: Any = process(path).launcher(**(configuration or TWICE))
    return found.linked.layer, events.counters()["planned"] - before


COLD = """
import json, sys
from types import SimpleNamespace
opened = []
sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name in ("open", "sqlite3.connect") else None)
from jitlto import load
from jitlto.cuda import device
device.current = lambda: SimpleNamespace(compute_capability=(9, 0))
device.place = lambda: 0
from jitlto.runtime.family import KernelFamily
KernelFamily._launcher = lambda self, chosen, linked, plan: SimpleNamespace(
    linked=linked, load_seconds=0.0, tier="lto", later=lambda job: job()
)
linked = load("mini", sys.argv[1]).launcher(data_type="float", op_name="twice").linked
maps = open("/proc/self/maps").read()
print(json.dumps([linked.layer, "nvJitLink" in maps, sorted(sys.modules), opened]))
"""


@pytest.mark.slow
def test_the_first_process_opens_no_database_plans_nothing_and_loads_no_nvjitlink(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    packed.write_bytes(whole[: 2 * 4096] + bytes(len(whole) - 2 * 4096))  # nothing but what its digest is read from
    layer, loaded, modules, opened = json.loads(output_of(COLD, packed, JITLTO_CACHE_DIR=str(tmp_path / "none")))
    assert (layer, loaded) == ("pack", False)
    slow = {
        "sqlite3",
        "msgspec",
        "cuda.bindings",
        "cuda.pathfinder",
        "jitlto.database",
        "jitlto.cuda.nvjitlink",
    }
    assert {*slow, "jitlto.plan.plan", "jitlto.plan.resolve"}.isdisjoint(modules)
    assert opened.count(str(packed)) <= 1  # the digest
    assert not any(path.startswith("file:") for path in opened)


@pytest.mark.slow
def test_without_a_pack_the_same_request_is_planned(packed: Path) -> None:
    assert counted(packed) == ("pack", 0)
    assert counted(packed, data_type="double", op_name="twice") == ("link", 1)
    packed.with_suffix(".pack").unlink()
    assert counted(packed) == ("link", 1)


def test_a_wrong_request_is_an_error_as_without_a_pack(packed: Path) -> None:
    with raises(UnknownValueError, None, "twize", hint="twice"):
        process(packed).launcher(data_type="float", op_name="twize")
    with pytest.raises(JitltoError):
        process(packed).launcher(data_type="float", op_name="twice", more="1")
    with pytest.raises(JitltoError):
        process(packed).launcher(data_type="float")


@pytest.mark.slow
def test_another_nvjitlink_is_not_answered(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("12.0", None):
        monkeypatch.setattr(session, "installed_release", lambda _, other=other: other)
        assert counted(packed) == ("pack", 1)  # planning has the last word


def test_another_jitlto_does_not_believe_the_look_ups(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "__version__", "99")
    assert counted(packed) == ("pack", 1)


@pytest.mark.slow
def test_a_database_that_was_built_again_is_planned_anew(packed: Path, build_family: BuildFamily) -> None:
    old: Any = process(packed).launcher(**TWICE)
    other = build_family(MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "3.0f * ({{expr}})")}, "other")
    other.path.replace(packed)
    new: Any = process(packed).launcher(**TWICE)
    assert (new.linked.layer, new.chosen.digest != old.chosen.digest) == ("link", True)


def test_while_plans_are_recorded_everything_is_planned(packed: Path, tmp_path: Path) -> None:
    with session.recording(tmp_path / "used.jsonl"):
        assert counted(packed) == ("pack", 1)
    assert [used.request.configuration for used in recording.read(tmp_path / "used.jsonl")] == [TWICE]


def test_a_kernel_for_an_architecture_that_no_device_chooses_answers_nothing(mini: KernelFamily) -> None:
    request = Request("mini", None, TWICE)
    plans = {arch: mini.plan_request(request, arch) for arch in ("sm_90", "sm_90a")}
    assert [bool(find_answers(mini, request, plan)) for plan in plans.values()] == [True, False]


@pytest.mark.slow
def test_a_plan_with_callers_code_answers_no_request(mini: KernelFamily) -> None:
    source = '#include "op.cuh"\nnamespace mini { template <> __device__ float op<float>(float a) { return a; } }'
    planned = mini.planner(data_type="float").add_source(source).plan(arch="sm_90")
    assert planned.request is not None
    assert find_answers(mini, planned.request, planned) == {}


def asked(family: KernelFamily, configuration: dict[str, str]) -> str:
    """A request for the best kernel on an H100."""
    how: Any = ("lto", {}, configuration, (9, 0), str(nvjitlink.version()))
    return request_key(family.contents.digest, family.name, family.entrypoints[0], *how) or ""


def test_a_request_that_needs_no_parameter_is_answered_too(build_family: BuildFamily) -> None:
    op = '{"data_type": ["float"], "_op": [{"op_name": "twice", "expr": "a + a"}]}'
    only = {**MINI, "kern.json": '{"data_type": ["float"]}', "op.json": op}
    family = KernelFamily("mini", session.default.registry.file(build_family(only).path))
    plan = family.plan(arch="sm_90")
    answers = find_answers(family, structs.replace(plan.request, configuration=plan.configuration), plan)
    for named in ({}, {"data_type": "float"}, {"op_name": "twice"}, TWICE):
        assert asked(family, named) in answers


@pytest.fixture(scope="module")
def whole_pack(search: KernelFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Look-ups of every second kernel of ``search``, without the kernels."""
    answers: dict[str, bytes] = {}
    for each in list(search.configurations())[::2]:
        answers |= find_answers(search, Request("search", None, each), search.plan(arch="sm_90", **each))
    path = tmp_path_factory.mktemp("packs") / "search.fragdb"
    packs.write(path.with_suffix(".pack"), {REQUESTS: answers})
    return path


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_a_pack_answers_is_what_planning_answers(
    whole_pack: Path, search: KernelFamily, data: st.DataObject
) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(search.parameters))))
    configuration = {name: data.draw(st.sampled_from(search.parameters[name])) for name in sorted(names)}
    if data.draw(st.booleans()):
        configuration = dict(data.draw(st.sampled_from(list(search.configurations())))) | configuration
        configuration.pop(data.draw(st.sampled_from(sorted(configuration))))
    found = find_chosen(packs.beside(whole_pack), asked(search, configuration))
    try:
        expected = search.plan(arch="sm_90", **configuration).chosen
    except JitltoError:
        expected = None
    assert found in (None, expected)
