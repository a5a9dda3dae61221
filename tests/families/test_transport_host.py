"""The physics of the family ``transport`` without a GPU: its sources on the CPU, against NumPy and theory."""

from collections.abc import Callable

import numpy as np
import pytest

from docs.examples.transport import Run, shield
from tests.support.transport_host import COMPILER, Host
from tests.support.transport_physics import CHECKS, Simulate, check_against_reference, problem_of
from tests.support.transport_variants import COVER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no g++")


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
