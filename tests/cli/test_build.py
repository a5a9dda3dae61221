"""`jitlto build`: what the command itself does."""

import gc
import json
import shlex
from pathlib import Path

import pytest

from jitlto.base.text import format_bytes
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import ImageKind
from tests.support.commands import fails, jitlto, succeeds
from tests.support.families import MINI, SHARED, write_family


def test_garbage_is_collected_again_after_a_build() -> None:
    assert gc.isenabled()
    assert jitlto("build", "no-such-family", "-o", "x.fragdb").returncode == 1
    assert gc.isenabled()


def test_one_family_is_built_into_a_database_of_its_name(tmp_path: Path) -> None:
    write_family(tmp_path / "mini", MINI)
    assert "in mini.fragdb" in succeeds("build", "mini", cwd=tmp_path)
    assert FragmentDatabase(tmp_path / "mini.fragdb").verify()
    write_family(tmp_path, SHARED)
    succeeds("build", "cluster", cwd=tmp_path)  # with the family that it uses
    assert set(FragmentDatabase(tmp_path / "cluster.fragdb").families) == {"cluster", "common"}
    before = {*tmp_path.iterdir()}
    fails(jitlto("build", "mini", "cluster", cwd=tmp_path), 2, "mini, cluster", "-o DB")
    fails(jitlto("build", "mini.fragdb", cwd=tmp_path), 1, "mini.fragdb", "a fragment database", "family.toml")
    fails(jitlto("build", "mini", "--shard", "1/2", cwd=tmp_path), 2, "mini", "-o DB")
    fails(jitlto("build", "mini", "--only", "data_type=float", cwd=tmp_path), 2, "a part of mini", "-o DB")
    assert {*tmp_path.iterdir()} == before


def test_a_database_of_other_families_is_not_replaced_in_silence(tmp_path: Path) -> None:
    write_family(tmp_path / "mini", MINI)
    for _ in range(2):
        assert jitlto("build", "mini", "-q", cwd=tmp_path).stderr == ""
    toml = MINI["family.toml"].replace("entrypoint.kern", "entrypoint.nut").replace("device.op", "device.opus")
    write_family(tmp_path / "elsewhere", MINI | {"family.toml": toml})
    assert "mini.fragdb holds another mini," in jitlto("build", "elsewhere", "-q", cwd=tmp_path).stderr
    write_family(tmp_path, SHARED)
    done = jitlto("build", "cluster", "-o", "mini.fragdb", "-q", cwd=tmp_path)
    assert (done.returncode, "mini.fragdb holds another mini," in done.stderr) == (0, True)


def test_a_build_tells_how_many_kernels_it_makes_and_what_to_do_next(tmp_path: Path) -> None:
    write_family(tmp_path / "mini", MINI)
    for _ in range(2):  # an unchanged database is not planned again
        done = jitlto("build", "mini", cwd=tmp_path)
        assert done.stdout.startswith("6 fragments → 4 kernels in mini.fragdb")
        first, second = (line.removeprefix("next:").strip() for line in done.stderr.splitlines()[-2:])
        for line, command in ((first, "check"), (second, "plan")):
            assert line.startswith(f"jitlto {command} mini.fragdb ")
            succeeds(*shlex.split(line)[1:], cwd=tmp_path)
    assert json.loads(succeeds("build", "mini", "--json", cwd=tmp_path))["kernels"] == {"mini": 4}


def test_a_plan_of_several_families_names_one_and_its_entrypoint(tmp_path: Path) -> None:
    write_family(tmp_path, SHARED)
    done = jitlto("build", "cluster", "-o", "all.fragdb", cwd=tmp_path)
    succeeds(*shlex.split(done.stderr.splitlines()[-1])[1:], cwd=tmp_path)


def test_scripts_may_go_on_to_say_that_architectures_are_not_compared(tmp_path: Path) -> None:
    toml = write_family(tmp_path / "mini", MINI)
    done = jitlto("build", toml, "-o", tmp_path / "o.fragdb", "--no-compare-archs", "-q")
    assert done.returncode == 0, done.stderr


def test_a_failure_is_json_too_where_json_was_asked_for() -> None:
    done = jitlto("build", "no-such-family", "-o", "x.fragdb", "--json")
    fails(done, 1, "no-such-family")
    (error,) = json.loads(done.stdout)["diagnostics"]
    assert error["severity"] == "error"
    assert error["code"] in done.stderr
    assert "no-such-family" in error["message"]
    assert error["hint"]
    assert not jitlto("build", "no-such-family", "-o", "x.fragdb").stdout


def test_editors_and_workflows_get_the_place(tmp_path: Path) -> None:
    family = write_family(tmp_path, MINI | {"op.json": '{\n "data_type": 4, "op_name": "a", "expr": "a,%"}'})
    done = jitlto("build", family, "-o", tmp_path / "x.fragdb", "--json")
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert (found["path"], found["line"], found["column"]) == (str(tmp_path / "op.json"), 2, 2)
    assert (done.returncode, found["code"], found["severity"]) == (1, "matrix-not-a-string", "error")
    done = jitlto("build", family, "-o", tmp_path / "x.fragdb", "--github")
    begin = f"::error file={tmp_path}/op.json,line=2,col=2,title=matrix-not-a-string::"
    assert done.stdout.startswith(begin)
    assert "%0A  hint: " in done.stdout and done.stdout.count("\n") == 1
    assert done.stderr.startswith(f"error: {tmp_path}/op.json:2:2: ")


@pytest.mark.slow
def test_sources_for_profilers_are_written_beside_a_database_with_line_information(tmp_path: Path) -> None:
    family, database = write_family(tmp_path / "mini", MINI), tmp_path / "mini.fragdb"
    printed = json.loads(succeeds("build", family, "-o", database, "--lineinfo", "--json"))
    assert Path(printed["sources"]) == tmp_path / "mini.sources"
    assert "mini.sources" in succeeds("build", family, "-o", database, "--lineinfo")
    assert {path.name for path in tmp_path.iterdir()} == {"mini", "mini.fragdb", "mini.sources"}


@pytest.mark.slow
def test_parts_with_line_information_are_merged_to_what_a_whole_build_makes(tmp_path: Path) -> None:
    family, whole = write_family(tmp_path / "mini", MINI), tmp_path / "whole.fragdb"
    succeeds("build", family, "-o", whole, "--lineinfo")
    parts = [tmp_path / "1.fragdb", tmp_path / "2.fragdb"]
    for number, part in enumerate(parts, 1):
        succeeds("build", family, "-o", part, "--lineinfo", "--shard", f"{number}/2")
    succeeds("merge", "-o", tmp_path / "merged.fragdb", *parts)
    assert (tmp_path / "merged.fragdb").read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_sources_that_cannot_be_written_are_one_error(tmp_path: Path) -> None:
    family = write_family(tmp_path / "mini", MINI)
    (tmp_path / "mini.sources").touch()
    done = jitlto("build", family, "-o", tmp_path / "mini.fragdb", "--lineinfo")
    fails(done, 1, "mini.sources", "jitlto-unwritable-file")


@pytest.mark.slow
def test_cubins_are_left_out_on_request(mini_path: Path, tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace("[family]", '[family]\nsass = ["90"]\nsass_registers = 64', 1)
    family, database = write_family(tmp_path / "mini", MINI | {"family.toml": toml}), tmp_path / "mini.fragdb"
    succeeds("build", family, "-o", database, "--no-sass")
    assert database.read_bytes() == mini_path.read_bytes()


def test_what_cubins_take_is_said_where_there_are_some(mini_path: Path, sass_path: Path, tmp_path: Path) -> None:
    def merged(path: Path) -> str:
        return succeeds("merge", "-o", tmp_path / "out.fragdb", path)

    with FragmentDatabase(sass_path) as opened:
        images = {image for each in opened.fragments() for image in each.images_of(ImageKind.SASS)}
    said = f"cubins take {format_bytes(sum(image.size for image in images))} of "
    assert said + format_bytes(sass_path.stat().st_size) in merged(sass_path)
    assert "cubins take" not in merged(mini_path)


@pytest.mark.slow
def test_neither_are_they_in_the_family_that_another_uses(tmp_path: Path) -> None:
    toml = SHARED["common/family.toml"].replace("[family]", '[family]\nsass = ["90"]\nsass_registers = 64', 1)
    write_family(tmp_path, SHARED | {"common/family.toml": toml})
    succeeds("build", tmp_path / "cluster", "-o", tmp_path / "c.fragdb", "--no-sass", "--lineinfo")
    with FragmentDatabase(tmp_path / "c.fragdb") as opened:
        assert {image.kind for each in opened.fragments() for image in each.images} == {"ltoir", "ptx"}
        assert all(family.link.lineinfo for family in opened.families.values())


def test_a_family_that_the_named_one_uses_is_named(tmp_path: Path) -> None:
    write_family(tmp_path, SHARED)
    assert "of cluster, common →" in succeeds("build", tmp_path / "cluster", "-o", tmp_path / "c.fragdb")


def only(tmp_path: Path, *arguments: str) -> list[str]:
    """The keys of what is built of a family."""
    family, database = write_family(tmp_path / "mini", MINI), tmp_path / "mini.fragdb"
    succeeds("build", family, "-o", database, *arguments)
    return [str(fragment.key) for fragment in FragmentDatabase(database).fragments()]


def test_what_agrees_with_values_is_built_alone(tmp_path: Path) -> None:
    assert only(tmp_path, "--only", "data_type=float") == [
        "mini/kern[data_type=float]",
        "mini/op[data_type=float,op_name=square]",
        "mini/op[data_type=float,op_name=twice]",
    ]
    assert only(tmp_path, "--only", "data_type=float,double", "--only", "op_name=twice") == [
        "mini/kern[data_type=double]",
        "mini/kern[data_type=float]",
        "mini/op[data_type=double,op_name=twice]",
        "mini/op[data_type=float,op_name=twice]",
    ]
    assert len(only(tmp_path, "--only", "entry=kern")) == 6


def test_a_value_that_nothing_has_is_named_with_the_nearest(tmp_path: Path) -> None:
    family = write_family(tmp_path / "mini", MINI)
    for setting, status, *words in (
        ("op_name=twicee", 1, "[plan-unknown-value]", "'twice'"),
        ("opname=twice", 1, "[plan-unknown-parameter]", "'op_name'"),
        ("entry=kernel", 1, "[plan-unknown-value]", "'kern'"),
        ("twice", 2, "NAME=VALUE"),
    ):
        fails(jitlto("build", family, "-o", tmp_path / "x.fragdb", "--only", setting), status, *words)
    assert not (tmp_path / "x.fragdb").exists()


@pytest.mark.slow
def test_shards_of_what_agrees_merge_to_it(tmp_path: Path) -> None:
    family = write_family(tmp_path / "mini", MINI)
    parts = [tmp_path / f"{number}.fragdb" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        succeeds("build", family, "-o", part, "--only", "data_type=float", "--shard", f"{number}/2")
    succeeds("merge", "-o", tmp_path / "all.fragdb", *parts)
    succeeds("build", family, "-o", tmp_path / "one.fragdb", "--only", "data_type=float")
    assert FragmentDatabase(tmp_path / "all.fragdb").digest == FragmentDatabase(tmp_path / "one.fragdb").digest
