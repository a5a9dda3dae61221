"""The physics of the family ``transport`` without a GPU: its sources on the CPU, against NumPy and theory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from docs.examples.transport import Estimate, Material, Problem, Run, flux_scale, shield
from tests.support.transport_host import COMPILER, Host
from tests.support.transport_physics import CHECKS, Simulate, check_against_reference, problem_of
from tests.support.transport_variants import COVER

pytestmark = [pytest.mark.one_major, pytest.mark.skipif(COMPILER is None, reason="there is no g++")]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_physics(host: Host, check: Callable[[Simulate], None]) -> None:
    check(host.simulate)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", COVER, ids=lambda c: "-".join(c.values()))
def test_variants_agree_with_numpy(host: Host, configuration: dict[str, str]) -> None:
    problem, run = problem_of(configuration)
    check_against_reference(host.simulate(problem, run), problem)


@pytest.mark.slow
def test_tallies_do_not_depend_on_the_launch(host: Host) -> None:
    run = Run(1009, seed=3, batches=5)
    first = host.simulate(shield(), run)
    for grid, block in ((1, 1), (2, 32), (7, 96)):
        other = host.simulate(shield(), run, grid=grid, block=block)
        assert (other.flux_counts == first.flux_counts).all()
        assert (other.ledger == first.ledger).all()


# D. E. Shaw Research's Random123, tests/kat_vectors: rounds, counter, key, result.
_KNOWN_ANSWERS = [
    (7, 0, 0, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (7, 0x0370734413198A2E_85A308D3243F6A88, 0x299F31D0A4093822, "4dfccaba 190a87f0 c47362ba b6b5242a"),
    (7, 2**128 - 1, 2**64 - 1, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (10, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (10, 0x0370734413198A2E_85A308D3243F6A88, 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    (10, 2**128 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "counter", "key", "words"), _KNOWN_ANSWERS)
def test_the_generators_give_the_known_answers(host: Host, rounds: int, counter: int, key: int, words: str) -> None:
    found = host.random_block(f"philox_{rounds}", key, counter >> 64, counter & (2**64 - 1))
    assert " ".join(f"{word:08x}" for word in found) == words


@pytest.mark.slow
def test_the_elementary_functions_are_exact_to_float(host: Host) -> None:
    # All that `uniform` gives near its ends, and many between.
    between = np.random.default_rng(1).integers(0, 2**23, 10**6)
    odd = np.concatenate([np.arange(4096), 2**23 - 1 - np.arange(4096), between])
    u = ((2 * odd + 1) * 2.0**-24).astype(np.float32)
    (logarithm,) = host.elementary("minus_logarithm", u, 1)
    np.testing.assert_allclose(logarithm, -np.log(u.astype(np.float64)), rtol=1.2e-7)
    cosine, sine = host.elementary("unit_circle", u, 2)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * u.astype(np.float64)), atol=1e-7)
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * u.astype(np.float64)), atol=1e-7)


@pytest.mark.slow
def test_a_turn_is_by_the_given_angle_and_to_all_sides(host: Host) -> None:
    rng = np.random.default_rng(2)
    before = rng.standard_normal((100_000, 3))
    before[:6] = np.concatenate([np.eye(3), -np.eye(3)])
    before = (before / np.linalg.norm(before, axis=1, keepdims=True)).astype(np.float32)
    cosines = rng.uniform(-1, 1, len(before)).astype(np.float32)
    after = host.turned("cartesian", cosines, before)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, atol=3e-7)
    np.testing.assert_allclose((before * after).sum(1), cosines, atol=1e-6)
    # What is across the old direction points nowhere on the average, in one half of the sphere and in the other.
    across = after - cosines[:, None] * before
    for half in (before[:, 2] < 0, before[:, 2] > 0):
        assert abs(across[half].mean(0)).max() < 5 * across[half].std() / np.sqrt(half.sum())
    # A slab keeps one component of the same: its mean and its mean square over azimuths are known.
    along = np.full(len(before), 0.6, np.float32)
    slab = host.turned("slab", cosines, np.stack([along, 0 * along, 0 * along], 1))[:, 0]
    assert abs((slab - 0.6 * cosines).mean()) < 0.005
    assert abs((slab - 0.6 * cosines).var() - 0.64 * (1 - cosines**2).mean() / 2) < 0.005


@pytest.mark.slow
def test_errors_are_those_of_many_runs(host: Host) -> None:
    """The standard error that a run gives is the spread of runs with other seeds."""
    runs = [host.simulate(shield(), Run(2000, seed=seed, batches=20)) for seed in range(200)]
    means = np.array([run.flux.mean for run in runs])
    errors = np.sqrt(np.mean([run.flux.error**2 for run in runs], axis=0))
    near = means.mean(0) > means.mean(0).max() / 100  # where there are hits enough
    assert near.sum() > 20
    assert abs(means.std(0, ddof=1)[near] / errors[near] - 1).max() < 0.25


def test_an_estimate_of_unequal_batches_is_the_mean_of_all_particles() -> None:
    estimate = Estimate.of(np.array([[3.0], [1.0]]), np.array([2, 1]))
    assert estimate.mean == pytest.approx(4 / 3)
    assert np.isnan(Estimate.of(np.array([[3.0]]), np.array([2])).error)


def test_the_unit_of_the_flux_is_a_power_of_two_that_cannot_overflow() -> None:
    for particles in (1, 1000, 10**9, 10**12):
        run = Run(particles, batches=1)
        scale = flux_scale(shield(), run)
        assert np.log2(scale).is_integer()
        assert scale * 2**24 * particles * run.max_flights * 25 < 2**64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": (0, 1, 1)}, "at least one"),
        ({"cells": (1 << 11, 1 << 11, 1 << 10)}, "fewer than 2"),
        ({"size": (1.0, 0.0, 1.0)}, "edges must be positive"),
        ({"source": "point", "source_position": (0.5, 1.5, 0.5)}, "outside the grid"),
        ({"geometry": "slab", "cells": (2, 2, 1)}, "a slab must have one cell"),
        ({"materials": []}, "no materials"),
        ({"materials": [Material((1.0,), (2.0,))]}, "absorption must be from 0 to total"),
        ({"materials": [Material((1.0,), (0.5,), mean_cosine=(0.5,))]}, "mean cosines"),
        ({"materials": [Material((1.0,), (0.5,), scattering=((0.5,),))]}, "sum to 1"),
        ({"layout": np.ones((2, 1, 2))}, "shape"),
        ({"layout": np.ones((1, 1, 2))}, "may only name materials"),
        ({"source_group": 1}, "no group 1"),
        ({"mirrors": ("top",)}, "mirrors must be some of"),
    ],
)
def test_a_problem_that_makes_no_sense_says_why(change: dict[str, object], message: str) -> None:
    sound = {"cells": (2, 1, 1), "size": (1.0, 1.0, 1.0), "materials": [Material((1.0,), (0.5,))]}
    Problem(**sound)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        Problem(**sound | change)  # type: ignore[arg-type]


def test_a_batch_without_particles_is_refused() -> None:
    with pytest.raises(ValueError, match="with a particle or more each"):
        Run(3, batches=4)
    with pytest.raises(ValueError, match="1 to 65535"):
        Run(10**6, batches=65536)


@pytest.mark.parametrize("change", [{"particles": 0, "batches": 1}, {"particles": -1}, {"max_flights": 0}])
def test_a_run_without_particles_or_flights_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one of each"):
        Run(**{"particles": 100} | change)
