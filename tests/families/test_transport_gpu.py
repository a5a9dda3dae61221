"""The family ``transport`` on a GPU: the same tallies however a kernel is linked, and the right ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.examples.transport import Run, Tallies, launch, shield, simulate
from jitlto.cuda import toolkit
from jitlto.families import declaration
from jitlto.families.templates import render_family
from jitlto.runtime.family import KernelFamily
from tests.support.transport_host import COMPILER, Host
from tests.support.transport_physics import agree, balanced, check_against_reference, problem_of
from tests.support.transport_variants import COVER

pytestmark = pytest.mark.gpu


def same(found: Tallies, expected: Tallies, what: str) -> None:
    """Assert that all integers are the same, and say how many are not."""
    flux = np.flatnonzero(found.flux_counts != expected.flux_counts)
    ledger = np.flatnonzero(found.ledger != expected.ledger)
    assert not flux.size, f"{what}: {flux.size} of {found.flux_counts.size} fluxes differ, first {flux[0]}"
    assert not ledger.size, f"{what}: {ledger.size} of {found.ledger.size} entries differ, first {ledger[0]}"


def whole(kernels: KernelFamily, configuration: dict[str, str], architecture: str) -> Any:
    """A kernel compiled from all of its sources in one file, without fragments and without a linker."""
    from cuda.core import Program, ProgramOptions

    from jitlto.launch.launcher import Launcher
    from jitlto.plan.cache_entry import LinkedKernel

    plan = kernels.plan(arch=architecture, **configuration)
    declared = declaration.load_family(declaration.find_family("transport"))
    rendered = {item.key: item.text for item in render_family(declared)}
    text = "\n".join(rendered[fragment.key] for fragment in plan.fragments)
    include = [str(path) for path in (*declared.include, *toolkit.header_roots())]
    options = ProgramOptions(std=declared.std, arch=architecture, include_path=include, fma=declared.link.fma)
    cubin = bytes(Program(text, "c++", options).compile("cubin").code)
    return Launcher(plan.chosen, LinkedKernel(cubin, plan.entry.entry, architecture, "", 0.0), lambda: plan)


@pytest.mark.parametrize("configuration", COVER, ids=lambda c: "-".join(c.values()))
def test_tallies_are_the_same_in_all_link_modes(transport: KernelFamily, configuration: dict[str, str]) -> None:
    from jitlto.cuda import device

    problem, run = problem_of(configuration)
    lto = simulate(transport, problem, run)
    same(simulate(transport, problem, run), lto, "the same kernel again")
    same(simulate(transport, problem, run, link_mode="ptx"), lto, "ptx")
    kernel = whole(transport, configuration, device.architecture().sm)
    same(launch(kernel, problem, run), lto, "whole program")
    check_against_reference(lto, problem)


@pytest.mark.skipif(COMPILER is None, reason="there is no g++")
@pytest.mark.parametrize("configuration", COVER, ids=lambda c: "-".join(c.values()))
def test_tallies_are_those_of_a_cpu(transport: KernelFamily, tmp_path: Path, configuration: dict[str, str]) -> None:
    problem, run = problem_of(configuration)
    same(simulate(transport, problem, run), Host(tmp_path).simulate(problem, run), "CPU")


def test_fast_math_at_the_link_gives_other_tallies_within_the_error(transport: KernelFamily) -> None:
    problem, run = shield(), Run(1_000_000, seed=5)
    exact = simulate(transport, problem, run)
    fast = balanced(simulate(transport, problem, run, link_options={"fast_math": True}))
    agree("flux", fast.flux, exact.flux)
    agree("transmission", fast.balance["high x"], exact.balance["high x"])
