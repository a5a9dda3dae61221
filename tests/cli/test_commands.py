"""The command line: what each command prints, its exit status, and errors without a traceback."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jitlto.cli import cli
from jitlto.cuda import nvjitlink, toolkit
from jitlto.database import FragmentDatabase
from tests.support.commands import Result, fails, jitlto, succeeds
from tests.support.families import MINI, built, calling_op, write_family
from tests.support.process import environment

TWICE = ("data_type=float", "op_name=twice")


def test_verify_reads_packs_too_beside_a_database_and_by_themselves(mini_path: Path, tmp_path: Path) -> None:
    database, pack = Path(shutil.copy(mini_path, tmp_path / "mini.fragdb")), tmp_path / "mini.pack"
    done = jitlto("warm", "mini", *TWICE, "--arch", "sm_90", "--db", database, "-o", pack)
    assert done.returncode == 0, done.stderr
    assert f"{pack}: 1 kernel intact" in jitlto("verify", database).stdout
    assert jitlto("verify", pack).stdout == f"{pack}: 1 kernel intact\n"
    whole = pack.read_bytes()
    plan = ("plan", "mini", *TWICE, "--arch", "sm_90", "--db", database)
    assert "found in a pack" in jitlto(*plan).stdout
    code = whole.index(b"\x7fELF")  # of the kernel
    for damaged in (whole[:code] + b"\x7eELF" + whole[code + 4 :], whole[:code], b""):
        pack.write_bytes(damaged)
        for target in (database, pack):
            fails(jitlto("verify", target), 1, str(pack), "[jitlto-damaged-pack]", "jitlto warm")
        assert "found in a pack" not in jitlto(*plan).stdout
    fails(jitlto("verify", tmp_path / "none.pack"), 1, "[jitlto-damaged-pack]", "none.pack")


@pytest.mark.slow
def test_verify_fails_for_a_pack_of_kernels_that_match_no_plan(mini_path: Path, tmp_path: Path) -> None:
    """As after a device function was edited."""
    database, kept = Path(shutil.copy(mini_path, tmp_path / "mini.fragdb")), tmp_path / "mini.pack"
    pack = tmp_path / "first.pack"
    done = jitlto("warm", "mini", "data_type=float", "--arch", "sm_90", "--db", database, "-o", pack)
    assert done.returncode == 0, done.stderr
    other = write_family(tmp_path / "mini", MINI | {"op.json": MINI["op.json"].replace("a + a", "2 * a")})
    database.unlink()
    assert jitlto("build", other, "-o", database).returncode == 0
    pack.rename(kept)
    for named in ([database], [kept, database]):
        fails(jitlto("verify", *named), 1, "[jitlto-stale-pack]", "1 of 2 kernels", "jitlto warm")
    assert f"{kept}: 2 kernels intact" in jitlto("verify", kept).stdout


@pytest.mark.parametrize("command", sorted(cli.list_commands(None)))  # type: ignore[arg-type]
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = jitlto(command, "--help")
    assert done.returncode == 0
    assert f"jitlto {command}" in " ".join(done.stdout.split())
    assert "Example:" in done.stdout


def test_usage_errors_have_status_2() -> None:
    fails(jitlto("no-such-command"), 2, "no-such-command")
    fails(jitlto("render", "search"), 2, "--output")
    fails(jitlto("plan", "mini", "data_type"), 2, "NAME=VALUE")
    fails(jitlto("plan", "mini", "a=1", "a=2"), 2, "twice")


@pytest.mark.slow
def test_a_family_is_rendered_built_listed_shown_and_verified(tmp_path: Path) -> None:
    family = write_family(tmp_path / "mini", MINI)
    assert "6 sources" in succeeds("render", family, "-o", tmp_path / "out")
    assert len([path for path in (tmp_path / "out").rglob("*.cu") if path.read_text()]) == 6
    database = tmp_path / "mini.fragdb"
    built = json.loads(jitlto("build", family, "-o", database, "--json").stdout)
    assert len(built["fragments"]) == 6
    listed = json.loads(jitlto("ls", database, "--json").stdout)
    assert listed["digest"] == built["digest"] == FragmentDatabase(database).digest
    assert [fragment["key"] for fragment in listed["fragments"]] == sorted(built["fragments"])
    lines = jitlto("ls", database, "--long").stdout.splitlines()
    assert len(lines) == 6
    assert all(key in text for key, text in zip(sorted(built["fragments"]), lines, strict=True))
    assert listed["kernels"] == {"mini": 4}
    tree = [line.split() for line in jitlto("ls", database).stdout.splitlines()]
    assert tree[0] == ["mini:", "6", "fragments", "→", "4", "kernels"]
    assert [line[1] for line in tree if line[0] in "├─└─"] == ["kern:", "op:"]
    assert tree[-1] == ["op_name", "square,", "twice"]
    key = "mini/op[data_type=float,op_name=twice]"
    assert "float mini::op<float>(float)" in jitlto("show", database, key).stdout
    assert json.loads(jitlto("show", database, key, "--json").stdout)["role"] == "device"
    assert built["digest"] in jitlto("verify", database).stdout


def test_a_group_that_callers_supply_is_listed_and_shown(tmp_path: Path) -> None:
    kernel = "__global__ void kern(float* x) { *x = op(*x); }"
    path = built(tmp_path, calling_op("call", "__device__ float op(float);", kernel), "call").location
    assert jitlto("ls", path, "--long").stdout.splitlines()[1].split() == ["device", "supplied", "call/op[]"]
    assert "op: device, supplied by callers" in jitlto("ls", path).stdout
    (listed,) = json.loads(jitlto("ls", path, "--json").stdout)["supplied"]
    assert listed["key"] == "call/op[]"
    shown = jitlto("show", path, "call/op[]").stdout
    assert all(text in shown for text in ("supplied  by callers", "interface op.cuh", "op(float)  layout (4)(4)"))
    described = json.loads(jitlto("show", path, "call/op[]", "--json").stdout)
    assert (described["supplied"], [each["name"] for each in described["provides"]]) == ("by callers", ["_Z2opf"])


def test_unreadable_databases_have_status_1(tmp_path: Path, mini_path: Path) -> None:
    fails(jitlto("ls", tmp_path / "none.fragdb"), 1, "[database-not-found]", "none.fragdb")
    other = tmp_path / "other.fragdb"
    other.write_text("something else")
    fails(jitlto("verify", other), 1, "[database-foreign]")
    other.write_bytes(mini_path.read_bytes()[:20_000])
    fails(jitlto("verify", other), 1, "[database-damaged]")
    fails(jitlto("show", mini_path, "mini/op[data_type=int]"), 1, "[database-no-such-fragment]", "jitlto ls")
    fails(jitlto("show", mini_path, "nonsense"), 1, "nonsense")


def test_a_part_of_a_key_is_enough_where_one_fragment_has_it(mini_path: Path) -> None:
    whole = succeeds("show", mini_path, "mini/op[data_type=float,op_name=twice]")
    for key in (
        "op[op_name=twice,data_type=float]",
        "[op_name=twice,data_type=float]",
        "mini/op[data_type=float,op_name=twice",
    ):
        assert succeeds("show", mini_path, key) == whole
    assert succeeds("show", mini_path, "kern[data_type=float]").startswith("mini/kern[data_type=float]")
    several = jitlto("show", mini_path, "op[op_name=twice]")
    fails(
        several,
        1,
        "[database-ambiguous-key]",
        "op[data_type=float,op_name=twice]",
        "op[data_type=double,op_name=twice]",
    )
    assert "square" not in several.stderr
    fails(jitlto("show", mini_path, "other/op[data_type=float,op_name=twice]"), 1, "[database-no-such-fragment]")


def test_plan_says_what_a_kernel_is_made_of_and_links_it_or_where_it_is(mini_path: Path, tmp_path: Path) -> None:
    cache = {"JITLTO_CACHE_DIR": str(tmp_path)}
    done = jitlto("plan", "mini", *TWICE, "--db", mini_path, "--arch", "sm_90", **cache)
    assert "bytes, linked in" in done.stdout
    assert "mini/op[data_type=float,op_name=twice]" in done.stdout
    assert "no call between fragments is left" in done.stdout
    place = {"JITLTO_DATABASE_PATH": str(mini_path.parent)}
    found = jitlto("plan", "mini", *TWICE, "--arch", "sm_90", **place, **cache)
    assert "bytes, found in the user's cache" in found.stdout


def test_an_entrypoint_is_chosen_as_configurations_name_it(mini_path: Path) -> None:
    base = ("--db", mini_path, "--arch", "sm_90")
    ways = ((), ("entry=kern",))
    assert len({succeeds("plan", "mini", *TWICE, *way, *base, "--dump", "json") for way in ways}) == 1
    fails(jitlto("plan", "mini", *TWICE, "entry=kren", *base), 1, "[plan-unknown-entrypoint]", "'kren'")
    for name in ("arch", "self", "link_options"):
        fails(jitlto("plan", "mini", *TWICE, f"{name}=1", *base), 1, "[plan-unknown-parameter]", f"'{name}'")


def test_plan_dumps_json_ptx_and_cubin(mini_path: Path, tmp_path: Path) -> None:
    base = ("plan", "mini", *TWICE, "--db", mini_path, "--arch", "sm_90", "--dump")
    described = json.loads(jitlto(*base, "json").stdout)
    assert described["configuration"] == {"data_type": "float", "op_name": "twice"}
    assert described["arch"] == "sm_90"
    assert ".target sm_90" in jitlto(*base, "ptx").stdout
    cubin = jitlto(*base, "cubin").data
    assert cubin[:4] == b"\x7fELF"
    assert jitlto(*base, "cubin", "-o", tmp_path / "k.cubin").returncode == 0
    assert (tmp_path / "k.cubin").read_bytes() == cubin


def test_configurations_that_do_not_resolve_have_status_1(mini_path: Path) -> None:
    def plan(*settings: str) -> Result:
        return jitlto("plan", "mini", *settings, "--db", mini_path, "--arch", "sm_90")

    fails(plan("data_typ=float"), 1, "[plan-unknown-parameter]", "'data_type'")
    fails(plan("data_type=flaot"), 1, "[plan-unknown-value]", "'float'")
    fails(plan("data_type=float"), 1, "[plan-ambiguous]", "op_name (square, twice)")
    fails(jitlto("plan", "mni", "--db", mini_path), 1, "[registry-unknown-family]", "'mini'")


@pytest.mark.slow
def test_doctor_names_what_it_finds(mini_path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.fragdb"
    damaged.write_bytes(mini_path.read_bytes()[:9000])
    done = jitlto("doctor", "--json", JITLTO_DATABASE_PATH=os.pathsep.join([str(mini_path), str(damaged)]))
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["well"] is True
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert str(toolkit.nvrtc_version()) in findings["NVRTC (compiler)"]["value"]
    assert str(nvjitlink.version()) in findings["nvJitLink (linker)"]["value"]
    databases = [finding for finding in report["findings"] if finding["name"] == "database"]
    assert [(finding["ok"], "mini" in finding["value"]) for finding in databases] == [(True, True), (False, False)]
    assert "building and linking work" in jitlto("doctor").stdout


@pytest.mark.slow
def test_demo_holds() -> None:
    done = jitlto("demo")
    assert done.returncode == 0, done.stderr
    assert "32 fragments → 96 kernels" in done.stdout
    assert re.search(r"N \+ M: 32 compiles .*\nN × M: 96 compiles", done.stdout)
    assert "distance_name   inner_product" in done.stdout
    assert "no call left" in done.stdout
    assert "results are right" in done.stdout or "the kernel was not launched" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("dump", [("--json",), ("--dump", "cubin")], ids=" ".join)
@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_a_dump_to_a_closed_or_full_output_is_one_line(
    mini_path: Path, dump: tuple[str, ...], redirection: str
) -> None:
    kernel = ("plan", "mini", *TWICE, "--db", mini_path, "--arch", "sm_90", *dump)
    command = ("ls", mini_path, "--json") if dump == ("--json",) else kernel
    script = f"{shlex.join([sys.executable, '-m', 'jitlto', *map(str, command)])} {redirection}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, env=environment(), timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(rb"error: standard output: [^\n]+\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_a_build_needs_no_standard_error_and_no_standard_input(tmp_path: Path, closed: str) -> None:
    family = write_family(tmp_path / "mini", MINI)
    build = [sys.executable, "-m", "jitlto", "build", str(family), "-o", "x.fragdb", "--no-cache"]
    script = f"{shlex.join(build)} {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, env=environment(), timeout=120, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith(b"6 fragments")
    assert FragmentDatabase(tmp_path / "x.fragdb").verify() == 12
