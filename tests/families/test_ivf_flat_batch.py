"""The family ``ivf_flat_batch``: its kernels link without calls."""

from __future__ import annotations

import pytest

from jitlto.check.covering_array import choose_cover
from jitlto.runtime.family import KernelFamily
from tests.families.test_ivf_flat import failures

#: Functions that a kernel calls in other fragments: two of the metric and the filter; the post_lambda.
CALLED = {
    "tiled_scan": 3,
    "select_probed": 1,
    "sort_probes": 0,
    "select_columns": 0,
    "index_step": 0,
    "convert_rows": 0,
    "store_rows": 0,
}


def covering(family: KernelFamily, entry: str, strength: int) -> list[dict[str, str]]:
    every = [each for each in family.configurations() if each["entry"] == entry]
    return [every[place] for place in choose_cover(every, strength)[0]]


def test_it_has_these_kernels(ivf_flat_batch: KernelFamily) -> None:
    entries = [each["entry"] for each in ivf_flat_batch.configurations()]
    counts = {entry: entries.count(entry) for entry in ivf_flat_batch.entrypoints}
    scans = {"sort_probes": 4, "tiled_scan": 16 * 2 * 2, "select_probed": 18 * 3, "select_columns": 18}
    assert counts == scans | {"index_step": 9, "convert_rows": 4, "store_rows": 3}
    assert len(ivf_flat_batch.database.fragments("ivf_flat")) == 341


@pytest.mark.parametrize("entry", ["tiled_scan", "select_probed"])
def test_all_pairs_of_variants_link_and_nothing_is_left_to_call(ivf_flat_batch: KernelFamily, entry: str) -> None:
    chosen = covering(ivf_flat_batch, entry, 2)
    assert failures(ivf_flat_batch, "sm_90", chosen, fragments=CALLED[entry]) == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_all_kernels_link_for_other_architectures(ivf_flat_batch: KernelFamily, arch: str) -> None:
    for entry in ivf_flat_batch.entrypoints:
        assert failures(ivf_flat_batch, arch, covering(ivf_flat_batch, entry, 1), fragments=CALLED[entry]) == []
