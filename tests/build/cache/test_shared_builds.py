"""Builds and checks on fresh machines that share a store: they compile and link only what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.families import MINI, write_family
from tests.support.process import Result, python
from tests.support.store_server import FaultyStore, faulty_store

pytestmark = [pytest.mark.slow, pytest.mark.timing]

FRAGMENTS = 6
PATIENCE = {"JITLTO_STORE_PATIENCE": "5"}  # this machine may be busy


@pytest.fixture(scope="module")
def faulty() -> Iterator[FaultyStore]:
    with faulty_store() as faulty:
        yield faulty


@dataclass
class Runners:
    """Machines of a CI: each has a checkout of the family and an empty cache directory."""

    directory: Path
    store: dict[str, str]  # variables
    count: int = field(default=0)

    def fresh(self, files: dict[str, str] | None = None) -> Runner:
        """Start the next one."""
        self.count += 1
        place = self.directory / f"runner {self.count}"
        write_family(place / "fragments" / "mini", files or MINI)
        return Runner(place, {"JITLTO_CACHE_DIR": str(place / "cache"), **PATIENCE, **self.store})


@dataclass
class Runner:
    """A machine."""

    place: Path
    variables: dict[str, str]

    def run(self, *arguments: str | Path, **variables: str) -> Result:
        """Run jitlto."""
        done = python("-m", "jitlto", *arguments, cwd=self.place, **self.variables | variables)
        assert done.returncode == 0, done.stderr
        return done

    def build(self, *arguments: str, **variables: str) -> dict[str, Any]:
        """Build the family; return what ``--json`` prints."""
        done = self.run("build", "fragments/mini", "-o", "mini.fragdb", "--json", *arguments, **variables)
        result: dict[str, Any] = json.loads(done.stdout)
        counts = {**result["cache"], "compiled": result["compiled"]}
        return counts | {"stderr": done.stderr, "bytes": (self.place / "mini.fragdb").read_bytes()}


@pytest.fixture
def runners(faulty: FaultyStore, tmp_path: Path) -> Runners:
    faulty.set()
    store = f"s3://{faulty.bucket}/{tmp_path.name}"
    return Runners(tmp_path, faulty.variables | {"JITLTO_STORE": store, "JITLTO_STORE_TRUST": "checksum"})


def test_a_fresh_runner_compiles_nothing_and_writes_the_same_bytes(runners: Runners) -> None:
    first = runners.fresh().build()
    assert (first["compiled"], first["store"]) == (FRAGMENTS, 0)
    assert first["bytes_written"] > 0
    runner = runners.fresh()
    second = runner.build()
    assert (second["compiled"], second["store"], second["bytes"]) == (0, FRAGMENTS, first["bytes"])
    assert second["bytes_read"] > 0
    third = runner.build()
    assert (third["compiled"], third["directory"], third["bytes_read"]) == (0, FRAGMENTS, 0)
    assert second["stderr"] == third["stderr"] == ""


def test_a_warm_directory_fills_a_store_with_what_it_lacks(runners: Runners) -> None:
    runner = runners.fresh()
    runner.build(JITLTO_STORE="")
    second = runner.build()
    assert (second["compiled"], second["directory"], second["bytes_read"]) == (0, FRAGMENTS, 0)
    assert second["bytes_written"] > 0
    fresh = runners.fresh().build()
    assert (fresh["compiled"], fresh["store"], fresh["bytes"]) == (0, FRAGMENTS, second["bytes"])
    assert runner.build()["bytes_written"] == 0
    assert second["stderr"] == ""


def test_a_pull_request_compiles_only_what_it_changes(runners: Runners) -> None:
    runners.fresh().build()
    changed = MINI | {"op.json": MINI["op.json"].replace("a * a", "a * a * a")}
    second = runners.fresh(changed).build()
    assert (second["compiled"], second["store"]) == (2, FRAGMENTS - 2)
    third = runners.fresh(changed).build(JITLTO_STORE="")
    assert (third["compiled"], third["bytes"]) == (FRAGMENTS, second["bytes"])
    header = MINI | {"op.cuh": MINI["op.cuh"] + "// read by all\n"}
    assert runners.fresh(header).build()["compiled"] == FRAGMENTS


def test_shards_share_and_a_build_without_cache_does_not(runners: Runners) -> None:
    assert sum(runners.fresh().build("--shard", f"{n}/2")["compiled"] for n in (1, 2)) == FRAGMENTS
    whole = runners.fresh().build()
    assert (whole["compiled"], whole["store"]) == (0, FRAGMENTS)
    assert runners.fresh().build("--no-cache")["compiled"] == FRAGMENTS


def test_a_check_on_a_fresh_runner_links_nothing_again(runners: Runners) -> None:
    known = []
    for _ in range(2):
        runner = runners.fresh()
        runner.build()
        result = json.loads(runner.run("check", "mini.fragdb", "--link", "sm_90", "--json").stdout)
        assert result["holds"]
        (family,) = result["families"]
        known.append((family["known"], family["linked"]))
    assert known == [(0, 4), (4, 4)]


@pytest.mark.parametrize(
    "conditions",
    [
        {"fault": "status", "status": 500},
        {"fault": "refuse"},
        {"fault": "silent"},
        {"fault": "tampered"},
        {"fault": "html"},
    ],
    ids=str,
)
def test_a_build_with_a_failing_store_is_a_build_without_one(
    faulty: FaultyStore, tmp_path: Path, mini_path: Path, conditions: dict[str, Any]
) -> None:
    store = {"JITLTO_STORE": f"s3://{faulty.bucket}/{tmp_path.name}", "JITLTO_STORE_TRUST": "checksum"}
    faulty.set(**conditions)
    try:
        built = Runners(tmp_path, faulty.variables | store).fresh().build(JITLTO_STORE_PATIENCE="0.05")
    finally:
        faulty.set()
    assert (built["compiled"], built["store"]) == (FRAGMENTS, 0)
    assert built["bytes"] == mini_path.read_bytes()
    assert built["stderr"].count("shared store") <= 1
    assert "Traceback" not in built["stderr"]
