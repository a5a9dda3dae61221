"""The variants of the family ``transport``: every configuration, and a few with all pairs of values."""

from itertools import product
from typing import Final

from jitlto.check.compare import choose_cover

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
CONFIGURATIONS: Final = [dict(zip(PARAMETERS, values, strict=True)) for values in product(*PARAMETERS.values())]
COVER: Final = [CONFIGURATIONS[place] for place in choose_cover(CONFIGURATIONS, 2)]
