"""What once broke something, found by ``python -m tests.support.fuzz``: now a result or a JitltoError."""

from pathlib import Path

import pytest

from tests.support.fuzz_targets import TARGETS, Ground, refused

CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, mini_path: Path) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"), mini_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_that_once_broke_something_are_handled(ground: Ground, path: Path) -> None:
    run, _ = TARGETS[path.parent.name]
    refused(lambda: run(ground, path.read_bytes()))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_each_fuzz_target_accepts_its_seeds(ground: Ground, target: str) -> None:
    run, seeds = TARGETS[target]
    given = seeds(ground)
    assert given
    for data in given:
        assert refused(lambda data=data: run(ground, data)) is None  # type: ignore[misc]
