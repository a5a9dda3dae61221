"""What LTO-IR for several architectures gains: the fragments whose code differs, and their instructions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture, Version
from jitlto.build.pipeline import build
from jitlto.check.compare_archs import ArchGain, compare_archs
from jitlto.compile import machine_code
from jitlto.compile.machine_code import MachineCode
from jitlto.cuda import nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from tests.support.commands import fails, jitlto
from tests.support.families import CONVERT, write_family


@pytest.fixture(scope="module")
def convert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family with LTO-IR for 75 and 90, of which only some fragments make other code for 90."""
    directory = tmp_path_factory.mktemp("convert")
    toml = CONVERT["family.toml"].replace('"auto"', '["75", "90"]')
    path = write_family(directory, CONVERT | {"family.toml": toml})
    return build([declaration.load_family(path)], directory / "convert.fragdb", jobs=1).path


@pytest.mark.slow
def test_it_says_which_groups_gain_on_which_target(convert: Path) -> None:
    with FragmentDatabase(convert) as database:
        gains = {
            gain.group: gain for gain in compare_archs(database, ["convert"], [Architecture(90), Architecture(80)])
        }
    assert set(gains) == {"convert/store", "convert/kern"}  # none on 80, where only LTO-IR for 75 runs
    store = gains["convert/store"]
    assert (store.target, store.architecture, store.below, store.compared, store.unlinked) == (
        "sm_90",
        "90",
        "75",
        4,
        0,
    )
    assert 1 <= store.differing < 4
    assert store.after < store.before
    assert store.bytes > 0
    assert gains["convert/kern"].differing == 0
    assert "same code" in str(gains["convert/kern"])


@pytest.mark.slow
def test_the_command_says_so(convert: Path) -> None:
    done = jitlto("check", convert, "--link", "sm_90", "--compare-archs", "--no-compare")
    assert done.returncode == 0, done.stderr
    assert "convert/store on sm_90" in done.stdout
    described = json.loads(jitlto("check", convert, "--link", "sm_90", "--compare-archs", "--json").stdout)
    assert {gain["group"] for gain in described["archs"]} == {"convert/store", "convert/kern"}


def test_a_database_for_one_architecture_has_nothing_to_compare(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        assert compare_archs(database, ["mini"], [Architecture(90)]) == ()
    done = jitlto("check", mini_path, "--link", "sm_90", "--cover", "1", "--no-compare", "--compare-archs")
    assert "jitlto build" in done.stdout
    fails(jitlto("check", mini_path, "--compare-archs"), 2, "--link")


def test_counts_are_of_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragment(number: int) -> Fragment:
        images = tuple(
            Image(ImageKind.LTOIR, Architecture(arch), f"{number}{arch}", 100, "nvrtc", Version(13, 0), None)
            for arch in (75, 80, 120)
        )
        key = FragmentKey.make("mini", "op", {"number": str(number)})
        return Fragment(key, Role.DEVICE, "", (), (), (), images)

    def alone(ltoir: str, provides: object, requires: object, isa: Version, target: Architecture) -> MachineCode:
        if ltoir[0] == "2":
            raise LinkError("does not link alone")
        later = ltoir == "080"  # of fragment 0 alone
        return MachineCode(10 - 4 * later, f"{ltoir[0]}{later}", frozenset())

    monkeypatch.setattr(machine_code, "compile_alone", alone)
    monkeypatch.setattr(nvjitlink, "version", lambda: Version(13, 0))
    database = SimpleNamespace(iterate=lambda name: map(fragment, range(3)), read=lambda image: image.sha256)
    (gain,) = compare_archs(database, ["mini"], [Architecture(90)], workers=1)  # type: ignore[arg-type]
    assert gain == ArchGain("mini/op", "sm_90", "80", "75", 2, 1, 10, 6, 300, 1)
    assert str(gain).endswith("1 do not link alone")
    assert "6 instead of 10" in str(gain)
