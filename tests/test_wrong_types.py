"""Arguments of a wrong type, and absurd ones, are a TypeError or one of jitlto's errors in every public function."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jitlto
from jitlto import FragmentDatabase, FragmentKey, KernelFamily, load
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.build import merge, pipeline
from jitlto.build.shards import Shard
from jitlto.families import declaration
from jitlto.packaging import project
from jitlto.record.options import LinkOptions
from jitlto.runtime import recording
from jitlto.stores.manifest import Manifest
from tests.support.families import MINI, write_family

CHOSEN = {"data_type": "float", "op_name": "twice"}
#: Right for no parameter at all.
WRONG = (3.5, b"x", object(), [None], {"a": object()}, lambda: 0, 10**5000, float("nan"), object)
#: Texts that no parameter has as its value.
ABSURD = ("", "x\0y", "\ud800", "x" * 1_000_000, "9" * 10_000)

Call = Callable[[Any], object]


def run_side(family: KernelFamily, database: Path) -> dict[str, Call]:
    """What a caller may call, by name: with one argument that is wrong."""
    plan = partial(family.plan, arch="sm_90")

    def planner() -> jitlto.Planner[jitlto.Launcher]:
        return family.planner(**CHOSEN)

    def added(made: jitlto.Planner[jitlto.Launcher]) -> object:
        return made.plan(arch="sm_90")

    return {
        "load(family)": lambda v: load(v, database),
        "load(database)": lambda v: load("mini", v),
        "family(name)": jitlto.family,
        "family(distribution)": lambda v: jitlto.family("mini", distribution=v),
        "plan(value)": lambda v: plan(**CHOSEN | {"data_type": v}),
        "plan(entry)": lambda v: plan(entry=v, **CHOSEN),
        "plan(arch)": lambda v: family.plan(arch=v, **CHOSEN),
        "plan(link_mode)": lambda v: plan(link_mode=v, **CHOSEN),
        "plan(link_options)": lambda v: plan(link_options=v, **CHOSEN),
        "plan(link_options.name)": lambda v: plan(link_options={v: 1}, **CHOSEN),
        "dispatcher(names)": family.dispatcher,
        "dispatcher(entry)": lambda v: family.dispatcher("op_name", entry=v),
        "dispatcher(link_mode)": lambda v: family.dispatcher("op_name", link_mode=v),
        "dispatcher(link_options)": lambda v: family.dispatcher("op_name", link_options=v),
        "launcher(link_options)": lambda v: family.launcher(link_options=v, **CHOSEN),
        "callback(group)": lambda v: family.callback(v, arch="sm_90", **CHOSEN),
        "callback(arch)": lambda v: family.callback("op", arch=v, **CHOSEN),
        "plan_request": family.plan_request,
        "Planner.add": lambda v: planner().add(v),
        "Planner.add_source(text)": lambda v: added(planner().add_source(v)),
        "Planner.add_source(name)": lambda v: added(planner().add_source("__device__ int q;", v)),
        "Planner.add_ptx": lambda v: added(planner().add_ptx(v)),
        "Planner.add_ltoir": lambda v: added(planner().add_ltoir(v)),
        "Planner.add_binary(data)": lambda v: planner().add_binary(v, "cubin"),
        "Planner.add_binary(kind)": lambda v: planner().add_binary(b"x", v),
        "Planner.add_function(function)": lambda v: planner().add_function(v),
        "Planner.add_function(group)": lambda v: added(planner().add_function(lambda x: x, v)),
        "FragmentDatabase": FragmentDatabase,
        "FragmentDatabase.get": FragmentDatabase(database).get,
        "FragmentKey.parse": FragmentKey.parse,
        "Version.parse": Version.parse,
        "Architecture.parse": Architecture.parse,
        "LinkOptions.from_mapping": lambda v: LinkOptions.from_mapping(v),
    }  # fmt: skip


def build_side(tmp_path: Path) -> dict[str, Call]:
    """The same of the build side."""
    families = [declaration.load_family(write_family(tmp_path / "mini", MINI))]
    build = partial(pipeline.build, families)
    return {
        "build(families)": lambda v: pipeline.build([v], tmp_path / "x.fragdb"),
        "build(output)": lambda v: build(v),
        "build(jobs)": lambda v: build(tmp_path / "x.fragdb", jobs=v),
        "build(executor)": lambda v: build(tmp_path / "x.fragdb", executor=v),
        "build(cache)": lambda v: build(tmp_path / "x.fragdb", cache=v),
        "build(shard)": lambda v: build(tmp_path / "x.fragdb", shard=v),
        "build_package": lambda v: project.build_package(v, tmp_path / "x.fragdb"),
        "merge(paths)": lambda v: merge.merge_databases([v], tmp_path / "x.fragdb"),
        "Shard.parse": Shard.parse,
        "find_family": declaration.find_family,
        "load_family": lambda v: declaration.load_family(v),
        "Manifest.read": Manifest.read,
        "recording.read": recording.read,
    }


def _check(calls: dict[str, Call]) -> None:
    """Give every function every value; a few values are right for some."""
    unclear = []
    for name, call in calls.items():
        for value in (*WRONG, *ABSURD):
            try:
                call(value)
            except (TypeError, JitltoError) as error:
                assert len(str(error)) > 10, name
            except Exception as error:  # noqa: BLE001
                unclear.append((name, type(value).__name__, repr(error)[:100]))
    assert not unclear, "\n".join(map(str, unclear))


@pytest.mark.slow
def test_no_function_of_the_run_side_fails_in_another_way(
    mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _check(run_side(load("mini", mini_path), mini_path))


@pytest.mark.slow
def test_no_function_of_the_build_side_fails_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _check(build_side(tmp_path))
