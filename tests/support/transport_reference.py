"""A NumPy reference of the family ``transport``: the same physics in float64, with a random stream of its own.

Analog histories, all particles at once, a flight at a time. It shares nothing with the device code but the description
of the problem, so that the two agree within their statistical errors only if both are right, whatever estimator and
whatever treatment of absorption the kernel has.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docs.examples.transport import FACES, Estimate, Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Estimates per particle: flux of shape (groups, z, y, x), leakage through each face, absorbed weight."""

    flux: Estimate
    leaked: Estimate
    absorbed: Estimate


def simulate(problem: Problem, particles: int, rng: np.random.Generator, batches: int = 32) -> Reference:
    """Follow so many particles to their ends."""
    cells = np.array(problem.cells)
    size = np.array(problem.size, np.float64)
    axes = 1 if problem.geometry == "slab" else 3
    width = size / cells
    layout = problem.material_of_cells
    total = np.array([m.total for m in problem.materials], np.float64)
    absorption = np.array([m.absorption for m in problem.materials], np.float64)
    cosines = np.array([m.cosines for m in problem.materials])
    cumulative = np.cumsum([m.probabilities for m in problem.materials], axis=-1)
    mirrors = {"vacuum": (), "reflective": FACES, "mixed": problem.mirrors}[problem.boundary]
    reflects = np.array([face in mirrors for face in FACES])

    position, direction = _born(problem, particles, rng)
    cell = np.clip((position / width).astype(np.int64), 0, cells - 1)
    group = np.full(particles, problem.source_group)
    batch = np.arange(particles) % batches
    flux = np.zeros((batches, problem.groups, *layout.shape))
    leaked = np.zeros((batches, len(FACES)))
    absorbed = np.zeros(batches)

    while len(position):
        n = np.arange(len(position))
        x, y, z = cell.T
        material = layout[z, y, x]
        section = total[material, group]
        with np.errstate(divide="ignore", invalid="ignore"):
            collision = rng.exponential(size=len(n)) / section
            faces = (cell + (direction > 0)) * width
            ways = np.where(direction == 0, np.inf, np.maximum((faces - position) / direction, 0))
        axis = ways[:, :axes].argmin(1)
        edge = ways[n, axis]
        collides = collision < edge
        distance = np.where(collides, collision, edge)
        position = position + direction * distance[:, None]
        np.add.at(flux, (batch, group, z, y, x), distance)

        # Those that collide: absorbed, or scattered into another group and direction.
        dies = collides & (rng.random(len(n)) * section < absorption[material, group])
        absorbed += np.bincount(batch[dies], minlength=batches)
        scatters = np.flatnonzero(collides & ~dies)
        m, g = material[scatters], group[scatters]
        cosine = _cosine(problem, cosines[m, g], rng)
        group[scatters] = (rng.random(len(m))[:, None] >= cumulative[m, g][:, :-1]).sum(1)
        direction[scatters] = _turned(direction[scatters], cosine, rng)

        # Those that reach a face: the next cell, a mirror, or out.
        crosses = np.flatnonzero(~collides)
        a = axis[crosses]
        step = np.where(direction[crosses, a] > 0, 1, -1)
        position[crosses, a] = faces[crosses, a]
        beyond = cell[crosses, a] + step
        outer = (beyond < 0) | (beyond >= cells[a])
        cell[crosses[~outer], a[~outer]] = beyond[~outer]
        face = 2 * a + (step > 0)
        back = outer & reflects[face]
        direction[crosses[back], a[back]] *= -1
        out = outer & ~back
        np.add.at(leaked, (batch[crosses[out]], face[out]), 1)

        alive = ~dies
        alive[crosses[out]] = False
        position, direction, cell = position[alive], direction[alive], cell[alive]
        group, batch = group[alive], batch[alive]

    sizes = np.array([len(range(b, particles, batches)) for b in range(batches)])
    return Reference(
        Estimate.of(flux / problem.cell_volume, sizes), Estimate.of(leaked, sizes), Estimate.of(absorbed, sizes)
    )


def _born(problem: Problem, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    size = np.array(problem.size, np.float64)
    if problem.source == "beam":
        return rng.random((n, 3)) * size * (0, 1, 1), np.tile((1.0, 0.0, 0.0), (n, 1))
    direction = rng.standard_normal((n, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    if problem.source == "point":
        return np.tile(np.array(problem.source_position, np.float64), (n, 1)), direction
    return rng.random((n, 3)) * size, direction


def _cosine(problem: Problem, mean: Floats, rng: np.random.Generator) -> Floats:
    """By rejection, where the kernel inverts the distribution."""
    cosine = rng.uniform(-1, 1, len(mean))
    if problem.scattering == "linear":
        pending = np.arange(len(mean))
        while len(pending):
            cosine[pending] = rng.uniform(-1, 1, len(pending))
            height = (1 + 3 * mean[pending] * cosine[pending]) / (1 + 3 * abs(mean[pending]))
            pending = pending[rng.random(len(pending)) >= height]
    return cosine


def _turned(direction: Floats, cosine: Floats, rng: np.random.Generator) -> Floats:
    """About a random direction across the old one: the part of a random vector that is orthogonal to it."""
    across = rng.standard_normal(direction.shape)
    across -= (across * direction).sum(1, keepdims=True) * direction
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    turned = cosine[:, None] * direction + np.sqrt(1 - cosine**2)[:, None] * across
    return np.asarray(turned / np.linalg.norm(turned, axis=1, keepdims=True), np.float64)
