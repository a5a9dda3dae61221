"""What the compatibility page says of PyTorch is what was recorded, for the extras as declared."""

import json

from tests.benchmarks import beside_pytorch
from tests.benchmarks.beside_pytorch import PAGE, RECORDED, TORCH


def test_the_tables_are_those_recorded() -> None:
    text = PAGE.read_text("utf-8")
    assert beside_pytorch.written(text, json.loads(RECORDED.read_text())) == text


def test_extras_install_beside_every_pytorch_and_those_that_run_are_less_than_half_of_those_that_build() -> None:
    recorded = json.loads(RECORDED.read_text())
    for major, releases in TORCH.items():
        assert all(all(recorded["beside"][release].values()) for release in releases)
        sizes = [sum(recorded["alone"][extra].values()) for extra in (f"cu{major}-run", f"cu{major}")]
        assert 2 * sizes[0] < sizes[1]
