"""The variants of the family ``transport``: every configuration, and a few with all pairs of values."""

from __future__ import annotations

from itertools import product
from typing import Final

from jitlto.check.covering_array import choose_cover

PARAMETERS: Final = {
    "absorption_name": ("analog", "implicit"),
    "boundary_name": ("mixed", "reflective", "vacuum"),
    "cross_section_name": ("multigroup", "one_group"),
    "generator_name": ("philox_10", "philox_7"),
    "geometry_name": ("cartesian", "slab"),
    "scattering_name": ("isotropic", "linear"),
    "source_name": ("beam", "point", "volume"),
    "tally_name": ("collision", "track_length"),
}
#: How many fragments each group has.
FRAGMENTS: Final = {
    "transport_kernel": 1,
    "absorb": 2,
    "apply_boundary": 3,
    "cross_boundary": 2,
    "distance_to_boundary": 2,
    "distance_to_collision": 1,
    "get_cross_sections": 2,
    "get_domain": 2,
    "locate": 2,
    "random_block": 2,
    "roulette": 2,
    "sample_cosine": 2,
    "sample_group": 2,
    "sample_source": 3,
    "tally": 2,
    "turn": 2,
}
CONFIGURATIONS: Final = [dict(zip(PARAMETERS, values, strict=True)) for values in product(*PARAMETERS.values())]
COVER: Final = [CONFIGURATIONS[place] for place in choose_cover(CONFIGURATIONS, 2)[0]]
