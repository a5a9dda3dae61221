"""The choice of things with a size and a worth, of which only some fit: what is worth most."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_TRIED = 200  # things that are each tried as the first choice, which takes time that grows with the square


def choose(worths: Sequence[float], sizes: Sequence[int], room: int) -> frozenset[int]:
    """Return the positions of things that fit into ``room`` together, and that are worth much.

    By worth for their size, and again with each thing as the first choice, of which the best counts: never less than
    half of what the best choice is worth, and mostly that. Equal arguments have equal answers.
    """
    order = sorted(range(len(sizes)), key=lambda n: (-worths[n] / max(sizes[n], 1), sizes[n], n))

    def fill(first: int | None) -> tuple[int, ...]:
        chosen, left = [], room
        for n in order if first is None else (first, *(n for n in order if n != first)):
            if sizes[n] <= left and worths[n] > 0:
                chosen.append(n)
                left -= sizes[n]
        return tuple(chosen)

    several = [fill(None)]
    # Of many things each is small, and a first choice makes no difference; the most precious alone might.
    several += [fill(n) for n in (order if len(order) <= _MOST_TRIED else sorted(order, key=lambda n: -worths[n])[:8])]
    return frozenset(max(several, key=lambda chosen: sum(worths[n] for n in chosen)))
