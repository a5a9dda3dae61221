"""The family ``transport``: all of its kernels plan, a covering set links for every target, and no call is left."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from jitlto.base.versions import Architecture
from jitlto.record.fragment import Role
from jitlto.runtime.family import KernelFamily
from tests.support.transport_variants import CONFIGURATIONS, COVER, FRAGMENTS, PARAMETERS

#: Kernels to link, and for what: some for each target that CUDA 12.9 and 13 both know.
CASES = [(each, "sm_90") for each in COVER] + list(zip(COVER, ["sm_80", "sm_100", "sm_120"], strict=False))
#: Arithmetic on floats that a later step may still fuse, for it does not say how it is rounded.
_FREE_TO_FUSE = re.compile(r"\b(?:add|sub|mul|mad)(?:\.ftz)?\.f32\b")


def test_there_are_576_kernels_of_32_fragments(transport: KernelFamily) -> None:
    fragments = transport.database.fragments("transport")
    assert Counter(fragment.key.group for fragment in fragments) == FRAGMENTS
    assert len(fragments) == 32
    assert [f.key.group for f in fragments if f.role is Role.ENTRYPOINT] == ["transport_kernel"]
    assert transport.parameters == PARAMETERS
    assert len(CONFIGURATIONS) == 576


def test_every_configuration_plans_and_one_kernel_calls_fifteen_fragments(transport: KernelFamily) -> None:
    digests = set()
    for configuration in CONFIGURATIONS:
        plan = transport.plan(arch="sm_90", **configuration)
        assert plan.configuration == configuration
        assert sorted(f.key.group for f in plan.fragments) == sorted(FRAGMENTS)
        digests.add(plan.digest)
    assert len(digests) == 576


@pytest.mark.parametrize(("configuration", "target"), CASES)
def test_a_kernel_links_and_nothing_is_left_to_call(
    transport: KernelFamily, configuration: dict[str, str], target: str
) -> None:
    plan = transport.plan(arch=target, **configuration)
    assert plan.calls_left() == []  # neither calls nor unresolved symbols
    linked = plan.link()
    assert linked.entry == plan.entry.entry
    assert linked.architecture == Architecture.parse(target)
    crossing = {symbol.name for fragment in plan.fragments for symbol in fragment.requires}
    assert len(crossing) == 16
    assert not any(name.encode() in linked.cubin for name in crossing)


def test_ptx_links_too_and_keeps_the_calls(transport: KernelFamily) -> None:
    plan = transport.plan(arch="sm_90", link_mode="ptx", **COVER[0])
    crossing = {symbol.name for fragment in plan.fragments for symbol in fragment.requires}
    cubin = plan.link().cubin
    assert all(name.encode() in cubin for name in crossing)


def test_no_step_is_free_to_round_differently(transport: KernelFamily) -> None:
    """Where a multiplication says how it is rounded (``mul.rn``), it is not fused with the addition that follows."""
    for configuration in COVER:
        plan = transport.plan(arch="sm_90", **configuration)
        text = plan.link_ptx()
        assert not _FREE_TO_FUSE.search(text)
        assert "mul.rn.f32" in text
        assert not re.search(r"\.approx|\.ftz", text), "division and square root are correctly rounded"
    # The test would notice: with contraction the same code leaves it to the assembler.
    free = transport.plan(arch="sm_90", link_options={"fma": True}, **COVER[0])
    assert _FREE_TO_FUSE.search(free.link_ptx())


def test_a_law_of_scattering_can_be_the_callers_own(transport: KernelFamily) -> None:
    forward = """
    __device__ float transport::sample_cosine(const cross_sections&, random_stream&) { return 1.0f; }
    """
    configuration = {name: value for name, value in COVER[0].items() if name != "scattering_name"}
    plan = transport.planner(**configuration).add_source(forward, name="forward.cu").plan(arch="sm_90")
    assert plan.calls_left() == []
    assert "sample_cosine" not in {fragment.key.group for fragment in plan.fragments}


def test_the_example_links_the_kernel_it_needs(transport: KernelFamily, tmp_path: Path) -> None:
    from docs.examples.transport import Run, scalars, shield, tables

    problem, run = shield(), Run(1000)
    plan = transport.plan(arch="sm_90", **problem.configuration(run.tally, run.generator))
    given = {*tables(problem), *scalars(problem, run), "flux", "ledger"}
    assert given == {parameter.name for parameter in plan.entry.signature}
