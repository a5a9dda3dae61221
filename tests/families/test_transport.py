"""The family ``transport``: all of its kernels plan, a covering set links for every target, and no call is left."""

import re
from pathlib import Path

import pytest

from jitlto.runtime.family import KernelFamily
from tests.support.shipped import ARCHS, check_links, check_plans, check_ptx_keeps_calls
from tests.support.transport_variants import COVER, PARAMETERS

#: Arithmetic on floats that a later step may still fuse, for it does not say how it is rounded.
_FREE_TO_FUSE = re.compile(r"\b(?:add|sub|mul|mad)(?:\.ftz)?\.f32\b")


def test_there_are_576_kernels_of_the_entrypoint(transport: KernelFamily) -> None:
    check_plans(transport, 576)
    assert transport.parameters == PARAMETERS
    assert len(transport.plan(arch="sm_90", **COVER[0]).fragments) == 16


@pytest.mark.parametrize("arch", ["sm_90", *ARCHS])
def test_kernels_link_and_nothing_is_left_to_call(transport: KernelFamily, arch: str) -> None:
    check_links(transport, arch, COVER if arch == "sm_90" else COVER[:1])


def test_ptx_links_too_and_keeps_the_calls(transport: KernelFamily) -> None:
    check_ptx_keeps_calls(transport, COVER[0])


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
