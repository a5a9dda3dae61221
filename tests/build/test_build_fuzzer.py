"""After every edit of a family's sources, all ways of building it give the same bytes, or the same error."""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitlto.build.execution.workers import ProcessExecutor
from tests.support import build_fuzzer
from tests.support.fuzzing import EFFORT

CORPUS = sorted(Path(__file__).with_name("build_fuzzer_corpus").glob("*.json"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessExecutor]:
    pool = ProcessExecutor(1)
    yield pool
    pool.shutdown()


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_failed_agrees(path: Path, tmp_path: Path, executor: ProcessExecutor) -> None:
    assert build_fuzzer.replay(json.loads(path.read_text()), tmp_path, executor) is None


@pytest.mark.parametrize("seed", range(EFFORT))
def test_all_ways_of_building_agree_after_every_edit(seed: int, tmp_path: Path, executor: ProcessExecutor) -> None:
    states = list(itertools.islice(build_fuzzer.history(random.Random(seed)), 6))  # noqa: S311
    assert build_fuzzer.replay(states, tmp_path, executor) is None


def test_a_way_that_gives_other_bytes_is_found() -> None:
    same = dict.fromkeys(("clean", "incremental", "shards", "loaded"), "0123")
    assert not build_fuzzer.disagreement(same)
    assert all(build_fuzzer.disagreement(same | {name: "4567"}) for name in same)
    assert build_fuzzer.disagreement(same | {"loaded": "error compile"})
