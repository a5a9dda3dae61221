"""The family ``ivf_flat_batch``: its kernels link without calls."""

import pytest

from jitlto.runtime.family import KernelFamily
from tests.support.shipped import ARCHS, check_links, cover


def test_it_has_these_kernels(ivf_flat_batch: KernelFamily) -> None:
    entries = [each["entry"] for each in ivf_flat_batch.configurations()]
    counts = {entry: entries.count(entry) for entry in ivf_flat_batch.entrypoints}
    scans = {"sort_probes": 4, "tiled_scan": 16 * 2 * 2, "select_probed": 18 * 3, "select_columns": 18}
    assert counts == scans | {"index_step": 9, "convert_rows": 4, "store_rows": 3}
    assert ivf_flat_batch.database.fragments("ivf_flat")


@pytest.mark.parametrize("entry", ["tiled_scan", "select_probed"])
def test_all_pairs_of_variants_link_and_nothing_is_left_to_call(ivf_flat_batch: KernelFamily, entry: str) -> None:
    check_links(ivf_flat_batch, "sm_90", cover(ivf_flat_batch, 2, entry=entry))


@pytest.mark.parametrize("arch", ARCHS)
def test_all_entrypoints_link_for_other_architectures(ivf_flat_batch: KernelFamily, arch: str) -> None:
    """Every value on one of them, and a kernel of each entrypoint on both."""
    for place, entry in enumerate(ivf_flat_batch.entrypoints):
        kernels = cover(ivf_flat_batch, 1, entry=entry)
        check_links(ivf_flat_batch, arch, kernels if ARCHS[place % 2] == arch else kernels[:1])
