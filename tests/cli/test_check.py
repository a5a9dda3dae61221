"""``jitlto check``: what it prints, its exit status, its JSON, and that it ends when it is told to."""

import json
from pathlib import Path

import pytest

from jitlto.database import FragmentDatabase
from tests.conftest import BuildFamily
from tests.support.commands import fails, jitlto
from tests.support.families import MINI

#: The double kernel calls `op` with a type that no fragment has, so that op<double> is used by nobody.
BROKEN = {
    **MINI,
    "op.json": '{"data_type": ["float"], "_op": [{"op_name": "twice", "expr": "a + a"}]}',
}


@pytest.mark.slow
def test_a_database_is_proved_with_status_0(shipped_path: Path) -> None:
    done = jitlto("check", shipped_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "search: 32 fragments, 96 kernels: every kernel plans, every fragment is used, inline functions agree",
        "transform: 2 fragments, 2 kernels: every kernel plans, every fragment is used",
        "  note: callers supply user_transform(double) of user_transform at run time, for 1 kernel",
        "  note: callers supply user_transform(float) of user_transform at run time, for 1 kernel",
    ]
    assert all(line.startswith("checking: ") for line in done.stderr.splitlines())
    one = jitlto("check", shipped_path, "transform").stdout
    assert "transform" in one
    assert "search" not in one


@pytest.mark.slow
def test_failures_are_printed_with_status_1(build_family: BuildFamily) -> None:
    path = build_family(BROKEN, allow_incomplete=True).path
    done = jitlto("check", path)
    fails(done, 1, "[plan-missing-provider]", "double mini::op<double>(double)", "add data_type=double to the matrix")
    assert "at mini/kern: data_type=double" in done.stderr
    assert "mini: 3 fragments, 1 kernel: FAILED" in done.stdout
    described = json.loads(jitlto("check", path, "--json").stdout)
    assert described["holds"] is False
    assert described["digest"] == FragmentDatabase(path).digest
    (cause,) = described["diagnostics"]
    assert (cause["code"], len(cause["notes"])) == ("plan-missing-provider", 1)
    assert cause["notes"][0]["message"] == "at mini/kern: data_type=double"
    # What plans is linked nevertheless.
    linked = json.loads(jitlto("check", path, "--json", "--link", "sm_90").stdout)
    assert linked["families"][0]["linked"] == 1
    assert {cause["code"] for cause in linked["diagnostics"]} == {"plan-missing-provider"}
    assert linked["holds"] is False


@pytest.mark.slow
def test_kernels_that_lack_a_callers_code_are_linked_with_a_stub(shipped_path: Path) -> None:
    done = jitlto("check", shipped_path, "transform", "--link", "sm_90", "--json")
    (transform,) = json.loads(done.stdout)["families"]
    assert (done.returncode, transform["linked"], transform["completed_by_callers"]) == (0, 2, 2)
    text = jitlto("check", shipped_path, "transform", "--link", "sm_90").stdout
    assert "transform: linked 2 kernels, for sm_90, with stubs of what callers supply: all link" in text


@pytest.mark.slow
def test_failed_links_are_grouped_by_cause(build_family: BuildFamily) -> None:
    # Compiled for a newer architecture than the target.
    path = build_family(
        {**MINI, "family.toml": MINI["family.toml"].replace('"mini"\n', '"mini"\narchs = ["90"]\n', 1)}
    ).path
    done = jitlto("check", path, "--link", "sm_80", "--link", "sm_90")
    fails(
        done,
        1,
        "[link-architecture]",
        "was compiled for compute_90, which does not run on sm_80",
        "note: at mini/kern: data_type=double op_name=square for sm_80",
    )
    assert done.stderr.count("error: ") == 1
    assert "mini: linked 4 kernels, for sm_80, sm_90: 4 of 8 links fail" in done.stdout
    (cause,) = json.loads(jitlto("check", path, "--link", "sm_80", "--json").stdout)["diagnostics"]
    assert cause["code"] == "link-architecture"
    assert {note["message"] for note in cause["notes"]} == {
        f"at mini/kern: data_type={t} op_name={o} for sm_80" for t in ("float", "double") for o in ("twice", "square")
    }


@pytest.mark.slow
def test_a_comparison_that_fails_is_no_link(build_family: BuildFamily) -> None:
    # Of a source with a kernel, the LTO-IR alone tells only those functions that are called.
    strong = "__device__ int same() { return 1; }\n"
    files = {name: strong + text if name.endswith("jinja") else text for name, text in MINI.items()}
    files["family.toml"] = files["family.toml"].replace('"mini"\n', '"mini"\nimages = ["ltoir"]\n', 1)
    done = jitlto("check", build_family(files).path, "--link", "sm_90")
    fails(done, 1, "[link-duplicate]", "for sm_75\n", "for sm_90\n")
    assert "mini: linked 4 kernels, for sm_90: 4 of 4 links fail" in done.stdout


def test_usage_errors_have_status_2(mini_path: Path) -> None:
    fails(jitlto("check", mini_path, "--link", "ninety"), 2, "invalid architecture")
    fails(jitlto("check", mini_path, "--link", "sm_50", "--link", "sm_98"), 2, "does not link for sm_")


def test_unreadable_databases_have_status_1(mini_path: Path, tmp_path: Path) -> None:
    fails(jitlto("check", tmp_path / "none.fragdb"), 1, "[database-not-found]")
    fails(jitlto("check", mini_path, "mimi"), 1, "[registry-unknown-family]", "'mini'")
