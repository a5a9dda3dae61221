"""Monte-Carlo transport in a few lines: a front end of the family ``transport``.

A problem is a grid of cells, the materials in them, a source and the boundaries; `simulate` plans and links the kernel
that it needs, launches it, and returns tallies as NumPy arrays with their statistical errors::

    jitlto build transport -o transport.fragdb
    python docs/examples/transport.py transport.fragdb

It is an example of what a package would put around a family, and not part of jitlto, which knows no family.
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
    from jitlto.runtime.family import KernelFamily
    from jitlto.runtime.launch.launcher import Launcher

FACES: Final = ("low x", "high x", "low y", "high y", "low z", "high z")
#: The columns of a ledger, in the order of ledger.cuh.
LEDGER: Final = (*FACES, "absorbed", "gained", "lost", "cut", "collisions", "flights")
#: The weight of a particle at birth, in the kernel's units.
FULL_WEIGHT: Final = 1 << 24


@dataclass(frozen=True)
class Material:
    """What a cell is made of; one value for each group of energy.

    Parameters
    ----------
    total, absorption : sequence of float
        Macroscopic cross sections in 1/cm. What is not absorbed scatters.
    scattering : array_like, optional
        Groups × groups: the probability that scattering in the row's group leaves a particle in the column's. By
        default it keeps its group.
    mean_cosine : sequence of float, optional
        Of the angle of scattering where it is ``linear``, from -1/3 to 1/3; by default 0.
    """

    total: Sequence[float]
    absorption: Sequence[float]
    scattering: ArrayLike | None = None
    mean_cosine: Sequence[float] | None = None

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The matrix of scattering, groups × groups."""
        return np.eye(len(self.total)) if self.scattering is None else np.asarray(self.scattering, np.float64)

    @property
    def cosines(self) -> NDArray[np.float64]:
        """The mean cosine of each group."""
        return np.zeros(len(self.total)) if self.mean_cosine is None else np.asarray(self.mean_cosine, np.float64)


@dataclass(frozen=True)
class Problem:
    """What is simulated.

    Parameters
    ----------
    cells : tuple of int
        Cells in x, y and z.
    size : tuple of float
        Edges of the grid in cm. A slab is infinite in y and z: give 1 for both, and results are per cm².
    materials : sequence of Material
        All with the same groups.
    layout : array_like of int, optional
        The material of each cell, of shape (z, y, x); by default the first everywhere.
    geometry : str
        ``slab`` or ``cartesian``.
    source : str
        ``beam`` (through the low x face along x), ``point`` or ``volume`` (both isotropic).
    source_position : tuple of float
        Of a point source, in cm.
    source_group : int
        In which group particles are born.
    boundary : str
        ``vacuum``, ``reflective``, or ``mixed``: the faces in ``mirrors`` reflect.
    mirrors : collection of str
        Of `FACES`.
    scattering : str
        ``isotropic`` or ``linear``.
    absorption : str
        ``analog``, or ``implicit``: weights instead of absorbed particles, and Russian roulette.

    Raises
    ------
    ValueError
        If the parts do not fit together; the message says which.
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
        def require(holds: object, what: str) -> None:
            if not holds:
                raise ValueError(what)

        require(all(n >= 1 for n in self.cells), f"cells are {self.cells}: at least one in each direction")
        require(math.prod(self.cells) < 1 << 32, f"cells are {self.cells}: fewer than 2^32 in all")
        require(all(edge > 0 for edge in self.size), f"the size is {self.size}: edges are positive")
        require(self.materials, "there are no materials")
        if self.geometry == "slab":
            require((*self.cells[1:], *self.size[1:]) == (1, 1, 1, 1), "a slab has one cell of 1 cm in y and in z")
        for number, material in enumerate(self.materials):
            total, absorption = np.asarray(material.total, float), np.asarray(material.absorption, float)
            require(total.shape == absorption.shape == (self.groups,), f"material {number}: {self.groups} groups each")
            possible = (absorption >= 0).all() and (absorption <= total).all()
            require(possible, f"material {number}: 0 ≤ absorption ≤ total")
            matrix = material.probabilities
            require(matrix.shape == (self.groups, self.groups), f"material {number}: scattering is groups × groups")
            require(
                (matrix >= 0).all() and np.allclose(matrix.sum(1), 1), f"material {number}: rows of scattering sum to 1"
            )
            require((abs(material.cosines) <= 1 / 3 + 1e-12).all(), f"material {number}: mean cosines within ±1/3")
        require(self.material_of_cells.shape == self.cells[::-1], f"the layout's shape is not {self.cells[::-1]}")
        require(
            ((self.material_of_cells >= 0) & (self.material_of_cells < len(self.materials))).all(),
            f"the layout names other materials than 0 to {len(self.materials) - 1}",
        )
        inside = all(0 <= place <= edge for place, edge in zip(self.source_position, self.size, strict=True))
        require(inside or self.source != "point", f"the source at {self.source_position} is outside the grid")
        require(0 <= self.source_group < self.groups, f"there is no group {self.source_group}")
        require(set(self.mirrors) <= set(FACES), f"mirrors are some of {', '.join(FACES)}")

    @property
    def groups(self) -> int:
        """How many groups of energy there are."""
        return len(self.materials[0].total)

    @property
    def material_of_cells(self) -> NDArray[np.int64]:
        """The material of each cell, of shape (z, y, x)."""
        return np.zeros(self.cells[::-1], np.int64) if self.layout is None else np.asarray(self.layout, np.int64)

    @property
    def cell_volume(self) -> float:
        """In cm³."""
        return math.prod(edge / n for edge, n in zip(self.size, self.cells, strict=True))

    def configuration(self, tally: str, generator: str) -> dict[str, str]:
        """What chooses the kernel."""
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
    """How a problem is simulated.

    Parameters
    ----------
    particles : int
        How many are born.
    seed : int
        Equal seeds give equal results, to the last bit.
    batches : int
        In how many parts the particles are counted; statistical errors come from the differences between these.
    tally : str
        ``track_length`` or ``collision``: how the flux is estimated.
    generator : str
        ``philox_10`` or ``philox_7``.
    max_flights : int
        A history that is longer is given up. It bounds the kernel's time where nothing absorbs or leaks.
    """

    particles: int
    seed: int = 0
    batches: int = 32
    tally: str = "track_length"
    generator: str = "philox_10"
    max_flights: int = 1 << 16

    def __post_init__(self) -> None:
        if self.particles < 1 or self.max_flights < 1:
            raise ValueError(f"{self.particles} particles of {self.max_flights} flights: at least one of each")
        if not 1 <= self.batches <= min(self.particles, 65535):
            raise ValueError(
                f"{self.batches} batches for {self.particles} particles: 1 to 65535, and at least a particle in each"
            )


def tables(problem: Problem) -> dict[str, NDArray[Any]]:
    """The arrays that the kernel reads, by the names of its parameters."""
    cumulative = np.cumsum([material.probabilities for material in problem.materials], axis=-1)
    return {
        "materials": problem.material_of_cells.astype(np.uint32).ravel(),
        "total": np.array([material.total for material in problem.materials], np.float32),
        "absorption": np.array([material.absorption for material in problem.materials], np.float32),
        "mean_cosine": np.array([material.cosines for material in problem.materials], np.float32),
        "group_distribution": cumulative.astype(np.float32),
    }


def scalars(problem: Problem, run: Run) -> dict[str, int | float]:
    """The numbers that the kernel takes, by the names of its parameters."""
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
    """Units of the flux's integers in a cm of track at the smallest weight: as fine as cannot overflow.

    No score is longer than the flight through a cell (or the longest mean free path, for the estimator by collisions),
    and no history has more than so many. A flight along a layer may be longer; a slab gets a wide margin for these.
    """
    across = [edge / n for edge, n in zip(problem.size, problem.cells, strict=True)]
    longest = across[0] * 4096 if problem.geometry == "slab" else math.hypot(*across)
    if run.tally == "collision":
        longest = max(1 / value for material in problem.materials for value in (*material.total, 1) if value > 0)
    most = longest * run.max_flights * math.ceil(run.particles / run.batches)
    return 2.0 ** (min(24, 63 - math.ceil(math.log2(most))) - 24)


@dataclass(frozen=True)
class Estimate:
    """Means with their standard errors: arrays of one shape. One batch has no error: NaN."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, sums: NDArray[Any], sizes: NDArray[np.int64]) -> Estimate:
        """From the sums over batches (first axis) of so many particles each."""
        sizes = sizes.reshape(-1, *[1] * (sums.ndim - 1)).astype(np.float64)
        batches, particles = len(sizes), sizes.sum()
        mean = sums.sum(0, np.float64) / particles
        if batches == 1:
            return cls(mean, np.full_like(mean, np.nan))
        # The variance of one particle, by the spread of batches, whose sizes differ by one at most.
        variance = ((sums - sizes * mean) ** 2 / sizes).sum(0) / (batches - 1)
        return cls(mean, np.sqrt(variance / particles))


@dataclass(frozen=True)
class Tallies:
    """The results, per particle born.

    Parameters
    ----------
    flux : Estimate
        Of shape (groups, z, y, x), in 1/cm².
    balance : mapping of str to Estimate
        For each of `LEDGER`: weight that leaked through a face, was absorbed, ...; and how many collisions and flights.
    flux_counts, ledger : ndarray of uint64
        The kernel's own integers, of shapes (batches, groups, z, y, x) and (batches, len(LEDGER)).
    flux_unit : float
        What the integers of a flux of 1 per particle and cm² are.
    sizes : ndarray of int
        Particles of each batch.
    """

    flux: Estimate
    balance: Mapping[str, Estimate]
    flux_counts: NDArray[np.uint64]
    ledger: NDArray[np.uint64]
    flux_unit: float
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem, run: Run, flux: NDArray[np.uint64], ledger: NDArray[np.uint64]) -> Tallies:
        """From the kernel's integers."""
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
        """Weight, in the kernel's units, that went astray in each batch: zero, to the last unit, if all is well."""
        entry = {name: self.ledger[:, i].astype(np.int64) for i, name in enumerate(LEDGER)}
        gone = sum((entry[name] for name in (*FACES, "absorbed", "lost", "cut")), np.zeros_like(self.sizes))
        return self.sizes * FULL_WEIGHT + entry["gained"] - gone


def device_arguments(problem: Problem, run: Run) -> dict[str, Any]:
    """What the kernel takes, by the names of its parameters: tables and tallies on the GPU, the latter all zero."""
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

    Parameters
    ----------
    kernel : Launcher
        Of the problem's configuration.
    problem : Problem
        What is simulated.
    run : Run
        How.
    grid : int, optional
        Blocks for each batch; by default as many as keep the device busy. The results do not depend on it.
    block : int
        Threads of a block.
    stream : object, optional
        Anything that a launcher takes; by default CuPy's current stream.
    """
    import cupy as cp

    if stream is None:
        stream = cp.cuda.get_current_stream()
    if grid is None:
        # Histories differ in length: a few waves of blocks even that out.
        per_batch = math.ceil(run.particles / run.batches)
        grid = max(1, min(math.ceil(per_batch / block), 4 * kernel.max_blocks(block) // run.batches))
    values = device_arguments(problem, run)
    cp.cuda.get_current_stream().synchronize()  # the arrays were filled there
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

    Parameters
    ----------
    family : KernelFamily
        ``jitlto.load("transport", ...)``.
    problem : Problem
        What is simulated.
    run : Run
        How.
    link_mode, link_options
        As for `KernelFamily.launcher`. Both modes give the same results, to the last bit; ``fast_math`` gives others.

    Raises
    ------
    jitlto.errors.PlanError
        If the family has no such variant.
    jitlto.errors.NoDeviceError
        If there is no GPU.
    """
    configuration = problem.configuration(run.tally, run.generator)
    return launch(family.launcher(link_mode=link_mode, link_options=link_options, **configuration), problem, run)


def shield() -> Problem:
    """An example: a beam of fast particles on 20 cm of a moderator in front of 5 cm of an absorber, in two groups."""
    moderator = Material(total=(0.25, 0.8), absorption=(0.005, 0.02), scattering=((0.7, 0.3), (0.0, 1.0)))
    absorber = Material(total=(0.3, 4.0), absorption=(0.1, 3.5))
    layout = np.repeat((0, 1), (20, 5)).reshape(1, 1, 25)
    return Problem((25, 1, 1), (25.0, 1.0, 1.0), (moderator, absorber), layout, geometry="slab", absorption="implicit")


def main() -> None:
    """Simulate the example and print what comes through."""
    parser = argparse.ArgumentParser(description="Monte-Carlo transport through a shield, on a GPU.")
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
