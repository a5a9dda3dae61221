"""What tallies of the family ``transport`` must be: problems, with answers known exactly or from NumPy.

Each check takes a function that simulates, so that the same checks hold for the sources on a CPU and the kernels on a
GPU. Seeds are fixed and histories are the same everywhere: a check that passes once passes always.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from docs.examples.transport import FACES, FULL_WEIGHT, Estimate, Material, Problem, Run, Tallies, shield
from tests.support import transport_reference as reference

Simulate = Callable[[Problem, Run], Tallies]

_PARTICLES = 50_021  # a prime: no multiple of a batch or a block
_RUN = Run(_PARTICLES, seed=20_260_131)


def agree(what: str, found: Estimate, expected: Estimate | ArrayLike, sigmas: float = 5.0) -> None:
    """Assert that estimates are within so many standard errors, each of them, and on the whole nearer than that."""
    other = expected if isinstance(expected, Estimate) else Estimate(np.asarray(expected, np.float64), np.zeros(()))
    difference, error = found.mean - other.mean, np.hypot(found.error, other.error)
    # What rounding to float leaves where a result has no variance.
    slack = 1e-6 * np.abs(other.mean)
    z = np.where(error > 0, np.maximum(abs(difference) - slack, 0) / np.where(error > 0, error, 1), 0)
    certain = (error > 0) | (abs(difference) <= slack)
    assert np.all(certain), f"{what}: {found.mean} is certain, and not {other.mean}"
    worst = np.unravel_index(np.argmax(z), np.shape(z))
    assert np.max(z) < sigmas, f"{what}: {z[worst]:.1f} standard errors apart at {worst}: {found} and {other}"
    if np.size(z) >= 20:
        assert np.sqrt(np.mean(z**2)) < 1.6, f"{what}: {np.sqrt(np.mean(z**2)):.2f} standard errors apart on average"


def balanced(tallies: Tallies) -> Tallies:
    """Assert that what was absorbed, leaked and lost is what was born, to the last unit and in every batch."""
    assert not tallies.unbalanced().any(), f"weight went astray: {tallies.unbalanced()}"
    return tallies


def _slab(material: Material, **rest: Any) -> Problem:
    return Problem((20, 1, 1), (4.0, 1.0, 1.0), [material], geometry="slab", **rest)


def _box(material: Material, **rest: Any) -> Problem:
    return Problem((20, 2, 3), (4.0, 1.0, 1.0), [material], **rest)


def check_a_pure_absorber_lets_through_the_exponential(simulate: Simulate) -> None:
    section, edges = 0.7, np.linspace(0, 4, 21)
    absorber = Material((section,), (section,))
    for problem in (_slab(absorber), _box(absorber), _slab(absorber, absorption="implicit")):
        for tally in ("track_length", "collision"):
            found = balanced(simulate(problem, Run(_PARTICLES, seed=4, tally=tally)))
            through = math.exp(-section * 4)
            agree("transmission", found.balance["high x"], through)
            # The binomial error is known: the one from the batches must be near it.
            assert 0.6 < found.balance["high x"].error / math.sqrt(through * (1 - through) / _PARTICLES) < 1.5
            assert (found.balance["collisions"].mean == found.balance["absorbed"].mean).all()
            in_cells = -np.diff(np.exp(-section * edges)) / section / problem.cell_volume
            cells_across = problem.cells[1] * problem.cells[2]
            expected = np.broadcast_to(in_cells / cells_across, found.flux.mean.shape)
            agree("flux", found.flux, expected)


def check_a_void_stops_nobody(simulate: Simulate) -> None:
    void = Material((0.0,), (0.0,))
    found = balanced(simulate(_slab(void), _RUN))
    assert found.balance["high x"].mean == 1.0
    assert found.balance["flights"].mean == 20
    np.testing.assert_allclose(found.flux.mean, 1.0, rtol=1e-6)  # per cm², of 1 per cm²
    # The solid angle of a cube's faces, seen from its centre.
    cube = Problem((3, 3, 3), (1, 1, 1), [void], source="point", source_position=(0.5, 0.5, 0.5))
    found = balanced(simulate(cube, _RUN))
    for face in FACES:
        agree(face, found.balance[face], 1 / 6)
    assert not simulate(cube, Run(_PARTICLES, tally="collision")).flux.mean.any()


def check_nothing_is_absorbed_where_nothing_absorbs(simulate: Simulate) -> None:
    scatterer = Material((1.5,), (0.0,))
    for absorption in ("analog", "implicit"):
        found = balanced(simulate(_box(scatterer, absorption=absorption), _RUN))
        assert found.balance["absorbed"].mean == found.balance["lost"].mean == found.balance["cut"].mean == 0.0
        assert sum(found.ledger[:, : len(FACES)].sum(1).tolist()) == _PARTICLES * FULL_WEIGHT


def check_an_infinite_medium_has_its_equilibrium(simulate: Simulate) -> None:
    one = Material((2.0,), (0.5,), mean_cosine=(0.3,))
    two = Material((1.0, 2.0), (0.3, 0.4), ((0.4, 0.6), (0.0, 1.0)))
    fast = 1 / (1.0 - 0.7 * 0.4)
    slow = fast * 0.7 * 0.6 / (2.0 - 1.6)
    cases: list[tuple[Material, list[float], float]] = [(one, [2.0], 4.0), (two, [fast, slow], fast + 2 * slow)]
    for material, flux, collisions in cases:
        for absorption in ("analog", "implicit"):
            for scattering in ("isotropic", "linear"):
                problem = _box(material, boundary="reflective", source="volume", absorption=absorption,
                               scattering=scattering)  # fmt: skip
                found = balanced(simulate(problem, Run(20_011, seed=6)))
                assert not any(found.balance[face].mean for face in FACES)
                # All of the volume alike, since the source is.
                everywhere = np.array(flux)[:, None, None, None] / math.prod(problem.size)
                agree("flux", found.flux, np.broadcast_to(everywhere, found.flux.mean.shape))
                if absorption == "analog":
                    assert found.balance["absorbed"].mean == 1.0
                    agree("collisions", found.balance["collisions"], collisions)
                else:
                    agree("absorbed", found.balance["absorbed"], 1.0)


def check_a_grid_between_mirrors_is_a_slab(simulate: Simulate) -> None:
    material = Material((1.2, 3.0), (0.1, 0.6), ((0.5, 0.5), (0.2, 0.8)), (0.33, -0.3))
    for scattering in ("isotropic", "linear"):
        slab = balanced(simulate(_slab(material, scattering=scattering), _RUN))
        mirrors = FACES[2:]
        grid = _box(material, scattering=scattering, boundary="mixed", mirrors=mirrors)
        found = balanced(simulate(grid, Run(_PARTICLES, seed=9)))
        for name in ("low x", "high x", "absorbed"):
            agree(name, found.balance[name], slab.balance[name])
        assert not any(found.balance[face].mean for face in mirrors)
        # Both are 1 cm² across: the mean over the cells of a layer is the flux in it.
        layers, slab_layers = (Estimate.of(t.flux_counts.mean((2, 3)) / t.flux_unit, t.sizes) for t in (found, slab))
        agree("flux", layers, slab_layers)


def check_a_history_that_does_not_end_is_cut(simulate: Simulate) -> None:
    endless = _box(Material((1.0,), (0.0,)), boundary="reflective")
    found = balanced(simulate(endless, Run(100, batches=3, max_flights=50)))
    assert found.balance["cut"].mean == 1.0
    assert found.balance["flights"].mean == 50
    parallel = Problem((4, 1, 1), (1.0, 1.0, 1.0), [Material((0.0,), (0.0,))], geometry="slab", boundary="reflective")
    assert simulate(parallel, Run(100, batches=3, max_flights=9)).balance["cut"].mean == 1.0


def check_one_cell_and_one_particle(simulate: Simulate) -> None:
    material = Material((1.0,), (0.5,))
    for geometry in ("slab", "cartesian"):
        for source in ("beam", "point", "volume"):
            cell = Problem((1, 1, 1), (1.0, 1.0, 1.0), [material], geometry=geometry, source=source)
            found = balanced(simulate(cell, Run(1, batches=1)))
            assert np.isnan(found.flux.error).all()
            assert found.ledger[0, : len(FACES) + 1].sum() == FULL_WEIGHT
            balanced(simulate(cell, Run(_PARTICLES)))


def check_generators_differ_and_agree(simulate: Simulate) -> None:
    ten = simulate(shield(), Run(_PARTICLES, generator="philox_10"))
    seven = simulate(shield(), Run(_PARTICLES, generator="philox_7"))
    other = simulate(shield(), Run(_PARTICLES, seed=2**64 - 1))
    assert (ten.ledger != seven.ledger).any()
    assert (ten.ledger != other.ledger).any()
    for found in (seven, other):
        agree("absorbed", found.balance["absorbed"], ten.balance["absorbed"])
        agree("transmission", found.balance["high x"], ten.balance["high x"])


CHECKS: Final = [value for name, value in list(globals().items()) if name.startswith("check_")]

# What problems are made of that have some of everything: two materials and a void, up- and downscattering.
_ONE = (Material((1.0,), (0.2,), mean_cosine=(0.3,)), Material((0.0,), (0.0,)), Material((3.0,), (1.0,)))
_TWO = (
    Material((1.0, 2.0), (0.2, 0.5), ((0.6, 0.4), (0.1, 0.9)), (0.3, -0.2)),
    Material((0.0, 0.0), (0.0, 0.0)),
    Material((3.0, 0.3), (1.0, 0.1), ((0.5, 0.5), (0.5, 0.5)), (-0.33, 0.1)),
)


def problem_of(configuration: Mapping[str, str]) -> tuple[Problem, Run]:
    """A problem that needs the kernel of a configuration."""
    slab = configuration["geometry_name"] == "slab"
    cells = (12, 1, 1) if slab else (5, 4, 3)
    layout: NDArray[np.int64] = np.random.default_rng(7).integers(0, 3, cells[::-1])
    if configuration["tally_name"] == "collision":
        layout = np.where(layout == 1, 0, layout)  # it sees nothing in a void
    problem = Problem(
        cells,
        (6.0, 1.0, 1.0) if slab else (5.0, 2.0, 4.0),
        _ONE if configuration["cross_section_name"] == "one_group" else _TWO,
        layout,
        geometry=configuration["geometry_name"],
        source=configuration["source_name"],
        source_position=(2.2, 0.5, 0.7),
        boundary=configuration["boundary_name"],
        mirrors=("low x", "high y") if configuration["boundary_name"] == "mixed" else (),
        scattering=configuration["scattering_name"],
        absorption=configuration["absorption_name"],
    )
    run = Run(_PARTICLES, seed=11, tally=configuration["tally_name"], generator=configuration["generator_name"])
    assert problem.configuration(run.tally, run.generator) == configuration
    return problem, run


def check_against_reference(tallies: Tallies, problem: Problem) -> None:
    """Hold tallies against the reference's for the same problem."""
    balanced(tallies)
    expected = reference.simulate(problem, _PARTICLES, np.random.default_rng(13))
    agree("flux", tallies.flux, expected.flux)
    leaked = [tallies.balance[face] for face in FACES]
    stacked = Estimate(np.array([e.mean for e in leaked]), np.array([e.error for e in leaked]))
    agree("leakage", stacked, expected.leaked)
    agree("absorbed", tallies.balance["absorbed"], expected.absorbed)
