"""Recording: a program's plans are written down once, completely, by many at a time, never at the program's cost."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.base.errors import JitltoError, UnknownParameterError
from jitlto.base.versions import Architecture
from jitlto.cuda.nvjitlink import InputKind
from jitlto.plan.plan import Request
from jitlto.plan.planner import Planner
from jitlto.record.headers import Source
from jitlto.runtime import recording, session
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.recording import Recorder, UsedPlan
from tests.support.compiled import compile_source, relocatable_cubin
from tests.support.errors import raises
from tests.support.outputs import SPECIAL, special_file
from tests.support.process import ROOT

_SOURCE = "__device__ float user_transform(float x) { return x + 1; }"
_CHOSEN = {"data_type": "float", "op_name": "twice"}

_text = st.text(max_size=20)
_given = st.one_of(
    st.tuples(_text, _text.map(str.encode), st.none()),
    st.tuples(_text, st.binary(max_size=40), st.sampled_from(InputKind)),
)
_used = st.builds(
    UsedPlan,
    st.builds(
        Request,
        _text,
        st.none() | _text,
        st.dictionaries(_text, _text, max_size=3),
        st.lists(_text, max_size=2).map(tuple),
        st.lists(_given, max_size=2).map(tuple),
        st.sampled_from(["lto", "ptx"]),
        st.dictionaries(_text, st.booleans() | st.integers() | st.lists(_text), max_size=2),
    ),
    st.builds(Architecture, st.integers(10, 999), st.sampled_from(["", "a", "f"])),
)


def _again(path: Path, family: KernelFamily) -> list[str]:
    """The digests of what is recorded, planned again."""
    return [family.plan_request(used.request, used.arch).digest for used in recording.read(path)]


@pytest.mark.slow
@given(_used)
def test_a_plan_is_read_as_it_was_written_in_one_line(used: UsedPlan) -> None:
    line = used.to_line()
    assert line.index(b"\n") == len(line) - 1
    assert UsedPlan.from_line(line) == used


def test_a_plan_is_recorded_once_however_often_it_is_used(mini: KernelFamily, tmp_path: Path) -> None:
    path = tmp_path / "used.jsonl"
    plan = mini.plan(arch="sm_90", **_CHOSEN)
    with session.recording(path):
        plan.link()
        plan.link()
        mini.plan(arch="sm_90", **_CHOSEN).link()
        plan.link("sm_80")
    (first, second) = recording.read(path)
    assert first == UsedPlan(Request("mini", None, _CHOSEN), Architecture(90))
    assert second.arch == Architecture(80)
    assert _again(path, mini) == [plan.digest, plan.for_arch("sm_80").digest]


def test_link_mode_options_and_named_fragments_come_back(mini: KernelFamily, tmp_path: Path) -> None:
    path = tmp_path / "used.jsonl"
    named = mini.planner(data_type="float").add("mini/op[data_type=float,op_name=square]")
    plans = [
        mini.plan(arch="sm_90", link_mode="ptx", **_CHOSEN),
        mini.plan(arch="sm_90", link_options={"max_registers": 32, "ptxas": ["-v"]}, **_CHOSEN),
        named.plan(arch="sm_90"),
    ]
    with session.recording(path):
        for plan in plans:
            plan.link()
    assert _again(path, mini) == [plan.digest for plan in plans]
    assert len({plan.digest for plan in plans}) == 3


def test_the_callers_own_code_comes_back_in_every_form(transform: KernelFamily, tmp_path: Path) -> None:
    compiled = compile_source(Source(_SOURCE.encode(), {}), [Architecture(75)], ["--std=c++17"])

    def planner() -> Planner:
        return transform.planner(data_type="float")

    ltoir = compiled.ltoir[Architecture(75)]
    planners = [
        planner().add_source(_SOURCE, "mine.cu"),
        planner().add_ltoir(ltoir),
        planner().add_ptx(compiled.ptx),
        planner().add_ptx(compiled.ptx.encode() + b"\0", "bytes.ptx"),
        planner().add_binary(relocatable_cubin(_SOURCE), "cubin"),
    ]
    path = tmp_path / "used.jsonl"
    plans = [each.plan(arch="sm_90") for each in planners]
    recorder = Recorder(path)
    for plan in plans:
        recorder.record(plan)
    assert _again(path, transform) == list(dict.fromkeys(plan.digest for plan in plans))
    names = [used.request.supplied[0][0] for used in recording.read(path)]
    assert names[:2] == ["mine.cu", "user.ltoir"]


@pytest.mark.slow
def test_several_processes_write_to_one_file_at_once(mini: KernelFamily, mini_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "used.jsonl"
    code = """
import os, pathlib, sys, jitlto
from jitlto.runtime.recording import Recorder
recorder = Recorder(pathlib.Path(os.environ["JITLTO_RECORD"]))
family = jitlto.load("mini", sys.argv[1])
source = "namespace mini { template <> __device__ float op<float>(float a) { return a; } }" + "// long\\n" * 2000
input()
for count in range(1, 41):
    options = {"max_registers": 40 * int(sys.argv[2]) + count}
    recorder.record(family.planner(data_type="float").add_source(source).plan(arch="sm_90", link_options=options))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JITLTO_RECORD": str(path)}
    command = [sys.executable, "-c", code, str(mini_path)]
    running = [subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, env=environment) for number in range(3)]
    for process in running:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(120) for process in running] == [0, 0, 0]
    found = {used.request.link_options["max_registers"] for used in recording.read(path)}
    assert found == set(range(1, 121))
    assert sum(bool(line) for line in path.read_bytes().splitlines()) == 120


def test_a_line_that_a_crash_cut_off_costs_itself_alone(
    mini: KernelFamily, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "used.jsonl"
    plan = mini.plan(arch="sm_90", **_CHOSEN)
    whole = UsedPlan(Request("mini", None, _CHOSEN), Architecture(80)).to_line()
    path.write_bytes(whole + whole[:50])
    with session.recording(path):
        plan.link()
    with caplog.at_level(logging.WARNING):
        assert [used.arch.number for used in recording.read(path)] == [80, 90]
    assert "1 of its lines" in caplog.text


def test_files_that_hold_no_recorded_plan_are_refused(tmp_path: Path, mini_path: Path) -> None:
    with raises(JitltoError, "jitlto-unreadable-file", where="none", hint="JITLTO_RECORD=FILE"):
        recording.read(tmp_path / "none")
    with raises(JitltoError, "jitlto-malformed-file", where=str(mini_path), hint="JITLTO_RECORD=FILE"):
        recording.read(mini_path)
    (tmp_path / "empty").touch()
    assert recording.read(tmp_path / "empty") == []


def test_a_file_that_cannot_be_written_is_said_once_and_harms_nothing(
    mini: KernelFamily, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = mini.plan(arch="sm_90", **_CHOSEN)
    special = [special_file(tmp_path / kind, kind) for kind in SPECIAL]
    for path in (tmp_path / "no" / "used.jsonl", *special, Path("/dev/full"), tmp_path / "a\0b"):
        caplog.clear()
        with caplog.at_level(logging.WARNING), session.recording(path):
            assert plan.link().cubin == plan.link("sm_90").cubin
            plan.link("sm_80")
        (said,) = caplog.records
        assert str(path) in said.getMessage()


@pytest.mark.parametrize("what", ["database", "text", "json"])
def test_a_file_that_holds_something_else_stays_as_it_is_with_one_warning(
    mini: KernelFamily, mini_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    path = tmp_path / "mine"
    path.write_bytes({"database": mini_path.read_bytes(), "text": b"\nnotes\n", "json": b'{"a": 1}\n'}[what])
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING), session.recording(path):
        for arch in ("sm_80", "sm_90"):
            mini.plan(arch=arch, **_CHOSEN).link()
    assert path.read_bytes() == before
    (said,) = caplog.records
    assert f"{path}: plans are not recorded: " in said.getMessage()


def test_a_plan_that_cannot_be_written_down_is_said(
    mini: KernelFamily, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = replace(mini.plan(arch="sm_90", **_CHOSEN), request=None)
    with caplog.at_level(logging.WARNING), session.recording(tmp_path / "used.jsonl"):
        plan.link()
        plan.link()
    (said,) = caplog.records
    assert "is not recorded" in said.getMessage()
    assert not (tmp_path / "used.jsonl").exists()


def test_a_request_that_somebody_made_up_is_an_error_that_says_why(mini: KernelFamily) -> None:
    with raises(UnknownParameterError, "plan-unknown-parameter", "entry"):
        mini.plan_request(Request("mini", None, {"entry": "kern"}))
