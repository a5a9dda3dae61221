"""``jitlto warm``: what is linked ahead is found by the programs it is for, and nothing is linked twice."""

import json
import shutil
from pathlib import Path

import pytest

from jitlto.base.versions import Architecture
from jitlto.database import FragmentDatabase
from jitlto.plan.plan import Request
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.recording import UsedPlan
from tests.support.commands import Result, fails, jitlto, python
from tests.support.kernels import packed_digests

#: A program: links one kernel of `search` and one of `transform` with code of its own, and says how often it linked.
PROGRAM = """
import json, sys, jitlto
from jitlto.base import events
search, transform = jitlto.load("search", sys.argv[1]), jitlto.load("transform", sys.argv[1])
source = "__device__ float user_transform(float x) { return x * x; }"
for arch in sys.argv[2:]:
    search.plan(arch=arch, data_type="float", out_type="float", idx_type="uint32_t", veclen=4,
                distance_name="euclidean", filter_name="filter_none").link()
    transform.planner(data_type="float").add_source(source, "square.cu").plan(arch=arch).link()
print(json.dumps(events.counters()))
"""


def _run(*arguments: str | Path, **variables: str) -> Result:
    return python("-c", PROGRAM, *arguments, **variables)


def _counted(done: Result) -> dict[str, int]:
    assert done.returncode == 0, done.stderr
    counters: dict[str, int] = json.loads(done.stdout)
    return counters


def _warmed(done: Result) -> tuple[int, int, int]:
    """How many were linked, found and failed."""
    described = json.loads(done.stdout)
    return described["linked"], described["found"], described["failed"]


@pytest.fixture
def shipped(shipped_path: Path, tmp_path: Path) -> Path:
    """A database of the shipped families with no pack beside it yet."""
    return Path(shutil.copy(shipped_path, tmp_path / "kernels.fragdb"))


def _line(family: str, arch: str = "sm_90", **configuration: str) -> bytes:
    return UsedPlan(Request(family, None, configuration), Architecture.parse(arch)).to_line()


@pytest.mark.slow
def test_what_is_recorded_in_one_place_is_shipped_as_a_pack_and_never_linked_again(
    shipped: Path, tmp_path: Path
) -> None:
    used, pack = tmp_path / "used.jsonl", tmp_path / "kernels.pack"
    staging, empty = {"JITLTO_CACHE_DIR": str(tmp_path / "staging")}, {"JITLTO_CACHE_DIR": str(tmp_path / "empty")}
    assert _counted(_run(shipped, "sm_90", JITLTO_RECORD=str(used), **staging))["linked"] == 2
    # What is found in the cache is used as well.
    assert _counted(_run(shipped, "sm_90", JITLTO_RECORD=str(used), **staging))["found_on_disk"] == 2
    assert len([*filter(None, used.read_bytes().splitlines())]) == 4

    refused = _run(shipped, "sm_90", JITLTO_MODE="cached", **empty)
    assert refused.returncode == 1
    assert "NotCachedError" in refused.stderr

    done = jitlto("warm", used, "--arch", "sm_90,sm_80", "--db", shipped, "-o", pack, "--json", **empty)
    assert _warmed(done) == (4, 0, 0)
    assert sorted(kernel["digest"] for kernel in json.loads(done.stdout)["kernels"]) == packed_digests(pack)

    counters = _counted(_run(shipped, "sm_90", "sm_80", JITLTO_MODE="cached", **empty))
    assert (counters["linked"], counters["found_in_pack"]) == (0, 4)
    assert not (tmp_path / "empty" / "cubins" / "kernels").exists()


@pytest.mark.slow
def test_a_pack_holds_what_was_asked_and_takes_over_what_is_there(shipped: Path, tmp_path: Path) -> None:
    pack, off = tmp_path / "kernels.pack", {"JITLTO_CACHE": "off"}
    few, more = ("veclen=16",), ("veclen=8,16",)
    base = ("warm", "search", "out_type=float", "--arch", "sm_90", "--db", shipped, "-o", pack, "--json")
    linked, found, _ = _warmed(jitlto(*base, *few, **off))
    assert (found, len(packed_digests(pack))) == (0, linked)
    data = pack.read_bytes()
    both, again, _ = _warmed(jitlto(*base, *more, **off))
    assert (both > 0, again) == (True, linked)
    assert len(packed_digests(pack)) == both + linked
    assert _warmed(jitlto(*base, *few, **off)) == (0, linked, 0)
    assert pack.read_bytes() == data


@pytest.mark.slow
def test_failures_are_grouped_by_cause_and_the_rest_is_linked(shipped: Path, tmp_path: Path) -> None:
    used = tmp_path / "used.jsonl"
    whole = {"out_type": "float", "idx_type": "uint32_t", "distance_name": "euclidean", "filter_name": "filter_none"}
    lines = [_line("search", data_type="float", veclen=size, **whole) for size in ("4", "1", "3", "5")]
    used.write_bytes(b"".join(lines) + _line("serach"))
    done = jitlto("warm", used, JITLTO_DATABASE_PATH=str(shipped), JITLTO_CACHE_DIR=str(tmp_path / "cache"))
    assert "5 kernels for sm_90: 2 linked, 0 already there, 3 failed" in done.stdout
    fails(done, 1, "[plan-unknown-value]", "search has no veclen=", "veclen=5", "'serach'")
    again = jitlto("warm", used, "--json", JITLTO_DATABASE_PATH=str(shipped), JITLTO_CACHE_DIR=str(tmp_path / "cache"))
    assert again.returncode == 1
    assert _warmed(again) == (0, 2, 3)
    assert [len(cause["notes"]) for cause in json.loads(again.stdout)["diagnostics"]] == [2, 1]


def test_invalid_requests_are_one_message(mini_path: Path, tmp_path: Path) -> None:
    base = ("warm", "mini", "--db", mini_path)
    fails(jitlto(*base, "--arch", "sm_20"), 2, "sm_20")
    fails(jitlto(*base, "--arch", "ninety"), 2, "--arch", "ninety")
    fails(jitlto(*base, "data_type", "--arch", "sm_90"), 2, "NAME=VALUE")
    fails(jitlto(*base, "data_typ=float", "--arch", "sm_90"), 1, "[plan-unknown-parameter]", "'data_type'")
    fails(jitlto(*base, "data_type=float,flaot", "--arch", "sm_90"), 1, "[plan-unknown-value]", "'float'")
    fails(jitlto("warm", tmp_path / "none.jsonl", "--arch", "sm_90"), 1, "[database-not-found]", "none.jsonl")
    fails(jitlto("warm", "long" * 1000, "--arch", "sm_90"), 1, "[registry-unknown-family]")
    other = tmp_path / "other.jsonl"
    other.write_text("something else")
    fails(jitlto("warm", other, "--arch", "sm_90"), 1, "jitlto-malformed-file")
    used = tmp_path / "used.jsonl"
    used.touch()
    fails(jitlto("warm", used), 1, "[jitlto-nothing-recorded]", "JITLTO_RECORD")
    used.write_bytes(_line("mini"))
    fails(jitlto("warm", used, "data_type=float"), 2, "NAME=VALUE")
    fails(jitlto(*base, "--arch", "sm_90", "-o", tmp_path / "no" / "x.pack"), 1, "[jitlto-unwritable-file]")
    done = jitlto(*base, "--arch", "sm_90", "-o", mini_path)
    fails(done, 1, "[jitlto-unwritable-file]", "-o PACK")
    assert "remove" not in done.stderr
    assert FragmentDatabase(mini_path).verify()


def test_without_a_device_a_family_needs_an_architecture(mini_path: Path) -> None:
    from jitlto.base.errors import NoDeviceError
    from jitlto.cuda import device

    try:
        device.current()
    except NoDeviceError:
        fails(jitlto("warm", "mini", "--db", mini_path), 1, "--arch sm_90")
    else:
        pytest.skip("there is a device")


@pytest.mark.gpu
def test_on_a_device_a_family_is_linked_for_what_its_programs_ask(mini_path: Path) -> None:
    warmed = json.loads(jitlto("warm", "mini", "--db", mini_path, "--json").stdout)["kernels"]
    with FragmentDatabase(mini_path) as database:
        family = KernelFamily("mini", database)
        wanted = {family.plan(**configuration).digest for configuration in family.configurations()}
    assert {kernel["digest"] for kernel in warmed} == wanted
