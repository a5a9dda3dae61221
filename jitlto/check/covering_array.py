"""Covering arrays: few configurations that contain every combination of N parameter values that occurs at all.

Nearly every fault depends on the values of a few parameters, so a set that contains all pairs finds nearly all the
faults that the full set would (D. R. Kuhn, R. N. Kacker, Y. Lei, «Practical Combinatorial Testing», NIST SP 800-142,
2010).
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import combinations


def choose_cover(configurations: Sequence[Mapping[str, str]], strength: int) -> list[int]:
    """Return the places of configurations that contain every combination of ``strength`` values that occurs in any.

    Greedy and deterministic: each step takes the first configuration with the most combinations not covered yet. A
    configuration with fewer than ``strength`` parameters counts as one combination.
    """
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    remaining = []
    for configuration in configurations:
        items = sorted(configuration.items())
        found = combinations(items, min(strength, len(items)))
        remaining.append({numbers.setdefault(combination, len(numbers)) for combination in found})
    # Counts of combinations not covered yet only shrink, so the greatest old count is the maximum if still right.
    queue = [(-len(own), place) for place, own in enumerate(remaining)]
    heapq.heapify(queue)
    covered: set[int] = set()
    chosen = []
    while len(covered) < len(numbers):
        bound, place = heapq.heappop(queue)
        remaining[place] -= covered
        if len(remaining[place]) == -bound:
            chosen.append(place)
            covered |= remaining[place]
        elif remaining[place]:
            heapq.heappush(queue, (-len(remaining[place]), place))
    return sorted(chosen)
