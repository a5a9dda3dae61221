"""The family ``ivf_flat``: all of its kernels plan, and a covering set links into kernels without calls."""

import os

import pytest

from jitlto.runtime.family import KernelFamily
from tests.support.shipped import ALL, ARCHS, check_links, check_plans, cover


def test_there_are_12_kernels_of_each_scan(ivf_flat: KernelFamily) -> None:
    check_plans(ivf_flat, 12)


@pytest.mark.parametrize("arch", ["sm_90", *ARCHS])
def test_kernels_link_and_nothing_is_left_to_call(ivf_flat: KernelFamily, arch: str) -> None:
    pairs = cover(ivf_flat, 2, capacity="16") if arch == "sm_90" else []
    check_links(ivf_flat, arch, [*pairs, *cover(ivf_flat, 1)])


@pytest.mark.skipif(ALL not in os.environ, reason="minutes; JITLTO_TEST_LINK_ALL=1 links all")
def test_all_kernels_link_and_nothing_is_left_to_call(ivf_flat: KernelFamily) -> None:
    check_links(ivf_flat, "sm_90", ivf_flat.configurations())


@pytest.mark.parametrize("data_type", ["uint8_t", "int8_t"])
def test_bytes_are_taken_four_at_a_time(ivf_flat: KernelFamily, data_type: str) -> None:
    wanted = {"data_type": data_type, "veclen": "16", "metric_name": "euclidean"}
    chosen = min(cover(ivf_flat, 1, **wanted), key=lambda each: each["compute_norm"])
    text = ivf_flat.plan(arch="sm_90", **chosen).link_ptx()
    assert "vabsdiff4" in text
    norms = chosen["compute_norm"] == "true"  # which take products too
    assert text.count("dp4a") >= text.count("vabsdiff4") if norms else text.count("dp4a") == text.count("vabsdiff4")
    text = ivf_flat.plan(arch="sm_90", **{**chosen, "metric_name": "inner_product"}).link_ptx()
    assert "dp4a" in text
    assert "vabsdiff4" not in text
