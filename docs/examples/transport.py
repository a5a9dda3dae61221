"""Monte Carlo particle transport in a few lines: a front end for the family ``transport``.

A problem consists of a grid of cells, their materials, a source and boundaries. `simulate` plans and links the kernel
for it, launches it, and returns tallies with their statistical errors as NumPy arrays::

    jitlto build transport -o transport.fragdb
    python docs/examples/transport.py transport.fragdb

This is an example of what a package would put around a family. jitlto itself knows nothing about any particular family.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import jitlto

if TYPE_CHECKING:
    from jitlto.launch.launcher import Launcher
    from jitlto.runtime.family import KernelFamily

FACES: Final = ("low x", "high x", "low y", "high y", "low z", "high z")
#: The columns of a ledger, in the order of ledger.cuh.
LEDGER: Final = (*FACES, "absorbed", "gained", "lost", "cut", "collisions", "flights")
#: The weight of a particle at birth, in the kernel's units.
FULL_WEIGHT: Final = 1 << 24


@dataclass(frozen=True)
class Material:
    """The material of a cell, with one value for each energy group.

    Attributes:
        total: Macroscopic total cross sections in 1/cm.
        absorption: Macroscopic absorption cross sections in 1/cm. Everything else scatters.
        scattering: A matrix, groups × groups: the probability that a particle of the row's group is in the column's
            group after scattering. By default particles keep their group.
        mean_cosine: The mean cosine of the scattering angle for ``linear`` scattering, from -1/3 to 1/3; by default 0.
    """

    total: Sequence[float]
    absorption: Sequence[float]
    scattering: ArrayLike | None = None
    mean_cosine: Sequence[float] | None = None

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The scattering matrix, groups × groups."""
        return np.eye(len(self.total)) if self.scattering is None else np.asarray(self.scattering, np.float64)

    @property
    def cosines(self) -> NDArray[np.float64]:
        """The mean cosine of each group."""
        return np.zeros(len(self.total)) if self.mean_cosine is None else np.asarray(self.mean_cosine, np.float64)


@dataclass(frozen=True)
class Problem:
    """The problem to simulate.

    Attributes:
        cells: Numbers of cells in x, y and z.
        size: Edges of the grid in cm. A slab is infinite in y and z: use 1 for both, and results are per cm².
        materials: The materials, all with the same groups.
        layout: The index of the material of each cell, of shape (z, y, x); by default 0 everywhere.
        geometry: ``slab`` or ``cartesian``.
        source: ``beam`` (through the low x face along x), ``point`` or ``volume`` (both isotropic).
        source_position: The position of a point source, in cm.
        source_group: The group in which particles are born.
        boundary: ``vacuum``, ``reflective``, or ``mixed``: the faces in ``mirrors`` reflect.
        mirrors: Some of `FACES`.
        scattering: ``isotropic`` or ``linear``.
        absorption: ``analog``, or ``implicit``: particles lose weight instead of being absorbed, with Russian roulette.

    Raises:
        ValueError: If the parts do not fit together; the message says which.
    """

    cells: tuple[int, int, int]
    size: tuple[float, float, float]
    materials: Sequence[Material]
    layout: ArrayLike | None = None
    geometry: str = "cartesian"
    source: str = "beam"
    source_position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    source_group: int = 0
    boundary: str = "vacuum"
    mirrors: Sequence[str] = ()
    scattering: str = "isotropic"
    absorption: str = "analog"

    def __post_init__(self) -> None:
        def require(condition: object, what: str) -> None:
            if not condition:
                raise ValueError(what)

        require(all(n >= 1 for n in self.cells), f"cells {self.cells}: at least one in each direction is needed")
        require(math.prod(self.cells) < 1 << 32, f"cells {self.cells}: there must be fewer than 2^32 in all")
        require(all(edge > 0 for edge in self.size), f"size {self.size}: edges must be positive")
        require(self.materials, "there are no materials")
        if self.geometry == "slab":
            require(
                (*self.cells[1:], *self.size[1:]) == (1, 1, 1, 1), "a slab must have one cell of 1 cm in y and in z"
            )
        for number, material in enumerate(self.materials):
            total, absorption = np.asarray(material.total, float), np.asarray(material.absorption, float)
            require(
                total.shape == absorption.shape == (self.groups,), f"material {number}: expected {self.groups} groups"
            )
            possible = (absorption >= 0).all() and (absorption <= total).all()
            require(possible, f"material {number}: absorption must be from 0 to total")
            matrix = material.probabilities
            require(
                matrix.shape == (self.groups, self.groups), f"material {number}: scattering must be groups × groups"
            )
            require(
                (matrix >= 0).all() and np.allclose(matrix.sum(1), 1),
                f"material {number}: rows of scattering must sum to 1",
            )
            require(
                (abs(material.cosines) <= 1 / 3 + 1e-12).all(), f"material {number}: mean cosines must be within ±1/3"
            )
        require(self.material_of_cells.shape == self.cells[::-1], f"the layout's shape is not {self.cells[::-1]}")
        require(
            ((self.material_of_cells >= 0) & (self.material_of_cells < len(self.materials))).all(),
            f"the layout may only name materials 0 to {len(self.materials) - 1}",
        )
        inside = all(0 <= place <= edge for place, edge in zip(self.source_position, self.size, strict=True))
        require(inside or self.source != "point", f"the source at {self.source_position} is outside the grid")
        require(0 <= self.source_group < self.groups, f"there is no group {self.source_group}")
        require(set(self.mirrors) <= set(FACES), f"mirrors must be some of {', '.join(FACES)}")

    @property
    def groups(self) -> int:
        """The number of energy groups."""
        return len(self.materials[0].total)

    @property
    def material_of_cells(self) -> NDArray[np.int64]:
        """The index of the material of each cell, of shape (z, y, x)."""
        return np.zeros(self.cells[::-1], np.int64) if self.layout is None else np.asarray(self.layout, np.int64)

    @property
    def cell_volume(self) -> float:
        """The volume of a cell in cm³."""
        return math.prod(edge / n for edge, n in zip(self.size, self.cells, strict=True))

    def configuration(self, tally: str, generator: str) -> dict[str, str]:
        """Return the configuration that selects the kernel."""
        return {
            "absorption_name": self.absorption,
            "boundary_name": self.boundary,
            "cross_section_name": "one_group" if self.groups == 1 else "multigroup",
            "generator_name": generator,
            "geometry_name": self.geometry,
            "scattering_name": self.scattering,
            "source_name": self.source,
            "tally_name": tally,
        }


@dataclass(frozen=True)
class Run:
    """The parameters of a simulation.

    Attributes:
        particles: The number of particles.
        seed: Equal seeds give equal results, to the last bit.
        batches: The number of batches; statistical errors are computed from the differences between them.
        tally: The estimator of the flux: ``track_length`` or ``collision``.
        generator: ``philox_10`` or ``philox_7``.
        max_flights: The most flights of a particle, after which its history is cut. This limits the kernel's time if
            nothing absorbs or leaks.
    """

    particles: int
    seed: int = 0
    batches: int = 32
    tally: str = "track_length"
    generator: str = "philox_10"
    max_flights: int = 1 << 16

    def __post_init__(self) -> None:
        if self.particles < 1 or self.max_flights < 1:
            raise ValueError(f"{self.particles} particles of {self.max_flights} flights: at least one of each required")
        if not 1 <= self.batches <= min(self.particles, 65535):
            raise ValueError(
                f"{self.batches} batches for {self.particles} particles: use 1 to 65535, with a particle or more each"
            )


def tables(problem: Problem) -> dict[str, NDArray[Any]]:
    """Return the arrays that the kernel reads, by parameter name."""
    cumulative = np.cumsum([material.probabilities for material in problem.materials], axis=-1)
    return {
        "materials": problem.material_of_cells.astype(np.uint32).ravel(),
        "total": np.array([material.total for material in problem.materials], np.float32),
        "absorption": np.array([material.absorption for material in problem.materials], np.float32),
        "mean_cosine": np.array([material.cosines for material in problem.materials], np.float32),
        "group_distribution": cumulative.astype(np.float32),
    }


def scalars(problem: Problem, run: Run) -> dict[str, int | float]:
    """Return the numbers that the kernel takes, by parameter name."""
    axes = ("x", "y", "z")
    mirrors = sum(1 << FACES.index(face) for face in set(problem.mirrors))
    return {
        "seed": run.seed,
        "num_particles": run.particles,
        "max_flights": run.max_flights,
        **{f"cells_{axis}": n for axis, n in zip(axes, problem.cells, strict=True)},
        **{f"size_{axis}": edge for axis, edge in zip(axes, problem.size, strict=True)},
        "num_groups": problem.groups,
        **{f"source_{axis}": place for axis, place in zip(axes, problem.source_position, strict=True)},
        "source_group": problem.source_group,
        "reflective_faces": mirrors,
        "flux_scale": flux_scale(problem, run),
    }


def flux_scale(problem: Problem, run: Run) -> float:
    """Return the units of the integer flux per cm of track at the smallest weight: the finest that cannot overflow.

    No score is longer than the longest flight through a cell (for the collision estimator: the longest mean free path),
    and the number of flights in a history is limited. Flights along a layer may be longer: a slab gets a wide margin.
    """
    across = [edge / n for edge, n in zip(problem.size, problem.cells, strict=True)]
    longest = across[0] * 4096 if problem.geometry == "slab" else math.hypot(*across)
    if run.tally == "collision":
        longest = max(1 / value for material in problem.materials for value in (*material.total, 1) if value > 0)
    most = longest * run.max_flights * math.ceil(run.particles / run.batches)
    return 2.0 ** (min(24, 63 - math.ceil(math.log2(most))) - 24)


@dataclass(frozen=True)
class Estimate:
    """Means with their standard errors: arrays of the same shape. With one batch the errors are NaN."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, sums: NDArray[Any], sizes: NDArray[np.int64]) -> Estimate:
        """Estimate from the sums over batches (first axis), given the number of particles in each."""
        sizes = sizes.reshape(-1, *[1] * (sums.ndim - 1)).astype(np.float64)
        batches, particles = len(sizes), sizes.sum()
        mean = sums.sum(0, np.float64) / particles
        if batches == 1:
            return cls(mean, np.full_like(mean, np.nan))
        # The variance of one particle, from the spread of the batches, whose sizes differ by at most one.
        variance = ((sums - sizes * mean) ** 2 / sizes).sum(0) / (batches - 1)
        return cls(mean, np.sqrt(variance / particles))


@dataclass(frozen=True)
class Tallies:
    """The results, per particle born.

    Attributes:
        flux: The flux in 1/cm², of shape (groups, z, y, x).
        balance: For each name in `LEDGER`: the weight that leaked through a face, was absorbed, and so on, and the
            numbers of collisions and flights.
        flux_counts: The kernel's own integers for the flux, uint64, of shape (batches, groups, z, y, x).
        ledger: The kernel's own integers for the balance, uint64, of shape (batches, len(LEDGER)).
        flux_unit: The integer that stands for a flux of 1 per particle and cm².
        sizes: The number of particles in each batch.
    """

    flux: Estimate
    balance: Mapping[str, Estimate]
    flux_counts: NDArray[np.uint64]
    ledger: NDArray[np.uint64]
    flux_unit: float
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem, run: Run, flux: NDArray[np.uint64], ledger: NDArray[np.uint64]) -> Tallies:
        """Make the tallies from the kernel's integers."""
        flux = flux.reshape(run.batches, problem.groups, *problem.cells[::-1])
        ledger = ledger.reshape(run.batches, len(LEDGER))
        sizes = np.array([len(range(batch, run.particles, run.batches)) for batch in range(run.batches)])
        unit = flux_scale(problem, run) * FULL_WEIGHT * problem.cell_volume
        weights = {name: 1.0 if name in ("collisions", "flights") else FULL_WEIGHT for name in LEDGER}
        return cls(
            Estimate.of(flux / unit, sizes),
            {name: Estimate.of(ledger[:, i] / weights[name], sizes) for i, name in enumerate(LEDGER)},
            flux,
            ledger,
            unit,
            sizes,
        )

    def unbalanced(self) -> NDArray[np.int64]:
        """Return the weight missing from each batch, in the kernel's units: exactly zero if all is well."""
        entry = {name: self.ledger[:, i].astype(np.int64) for i, name in enumerate(LEDGER)}
        gone = sum((entry[name] for name in (*FACES, "absorbed", "lost", "cut")), np.zeros_like(self.sizes))
        return self.sizes * FULL_WEIGHT + entry["gained"] - gone


def device_arguments(problem: Problem, run: Run) -> dict[str, Any]:
    """Return the kernel's arguments by parameter name: tables and zeroed tallies on the GPU, and numbers."""
    import cupy as cp

    return {
        **{name: cp.asarray(table) for name, table in tables(problem).items()},
        **scalars(problem, run),
        "flux": cp.zeros((run.batches, problem.groups, math.prod(problem.cells)), cp.uint64),
        "ledger": cp.zeros((run.batches, len(LEDGER)), cp.uint64),
    }


def launch(
    kernel: Launcher,
    problem: Problem,
    run: Run,
    *,
    grid: int | None = None,
    block: int = 128,
    stream: object = None,
) -> Tallies:
    """Launch a kernel that was linked for the problem, and wait for its tallies.

    Args:
        kernel: The launcher for the problem's configuration.
        problem: The problem to simulate.
        run: The parameters of the simulation.
        grid: Blocks per batch; by default enough to keep the device busy. The results do not depend on it.
        block: Threads per block.
        stream: Anything that a launcher accepts; by default CuPy's current stream.
    """
    import cupy as cp

    if stream is None:
        stream = cp.cuda.get_current_stream()
    if grid is None:
        # Histories differ in length: a few waves of blocks balance them.
        per_batch = math.ceil(run.particles / run.batches)
        grid = max(1, min(math.ceil(per_batch / block), 4 * kernel.max_blocks(block) // run.batches))
    values = device_arguments(problem, run)
    cp.cuda.get_current_stream().synchronize()  # which fills the arrays
    kernel(stream, (grid, run.batches), block, *(values[parameter.name] for parameter in kernel.signature))
    cp.cuda.Device().synchronize()
    return Tallies.of(problem, run, values["flux"].get(), values["ledger"].get())


def simulate(
    family: KernelFamily,
    problem: Problem,
    run: Run,
    *,
    link_mode: str = "lto",
    link_options: Mapping[str, object] | None = None,
) -> Tallies:
    """Simulate a problem on the current GPU.

    Args:
        family: ``jitlto.load("transport", ...)``.
        problem: The problem to simulate.
        run: The parameters of the simulation.
        link_mode: As for `KernelFamily.launcher`. Both modes give the same results, to the last bit.
        link_options: As for `KernelFamily.launcher`. ``fast_math`` changes the results.

    Raises:
        jitlto.base.errors.PlanError: If the family has no such variant.
        jitlto.base.errors.NoDeviceError: If there is no GPU.
    """
    configuration = problem.configuration(run.tally, run.generator)
    return launch(family.launcher(link_mode=link_mode, link_options=link_options, **configuration), problem, run)


def shield() -> Problem:
    """Return an example: a fast beam on 20 cm of moderator in front of 5 cm of absorber, in two groups."""
    moderator = Material(total=(0.25, 0.8), absorption=(0.005, 0.02), scattering=((0.7, 0.3), (0.0, 1.0)))
    absorber = Material(total=(0.3, 4.0), absorption=(0.1, 3.5))
    layout = np.repeat((0, 1), (20, 5)).reshape(1, 1, 25)
    return Problem((25, 1, 1), (25.0, 1.0, 1.0), (moderator, absorber), layout, geometry="slab", absorption="implicit")


def main() -> None:
    """Simulate the example and print the fluxes."""
    parser = argparse.ArgumentParser(description="Monte Carlo transport through a shield, on a GPU.")
    parser.add_argument("database", type=Path, help="made by: jitlto build transport -o transport.fragdb")
    parser.add_argument("--particles", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tallies = simulate(jitlto.load("transport", options.database), shield(), Run(options.particles, options.seed))
    print(f"{'depth (cm)':>10}  {'fast flux':>23}  {'slow flux':>23}")
    for x in range(0, 25, 2):
        means, errors = tallies.flux.mean[:, 0, 0, x], tallies.flux.error[:, 0, 0, x]
        print(f"{x + 0.5:>10}  " + "  ".join(f"{m:.5e} ± {e:.2e}" for m, e in zip(means, errors, strict=True)))
    for name in ("low x", "high x", "absorbed"):
        estimate = tallies.balance[name]
        print(f"{name:>10}  {estimate.mean:.5e} ± {estimate.error:.2e}")


if __name__ == "__main__":
    try:
        main()
    except jitlto.JitltoError as error:
        raise SystemExit(f"error: {error}") from None
