"""The wisdom that a process uses for a database: the user's own, above what is shipped beside the database.

A file that cannot be used is a warning and no error: without it, the defaults are used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import WisdomError
from jitlto.record.tuning import Variant
from jitlto.tuning import wisdom_file
from jitlto.tuning.wisdom import DeviceKind, Found, Sizes, Wisdom

_log = logging.getLogger(__name__)


class Knowledge:
    """Wisdom in layers.

    Args:
        own: The user's own.
        shipped: That beside the database.
    """

    def __init__(self, own: Wisdom, shipped: Wisdom) -> None:
        self._layers = (own, shipped)
        self._all = own.merge(shipped)

    @classmethod
    def load(cls, own: Path, database: Path) -> Knowledge:
        """Read the user's file and those beside a database."""
        shipped = [_read(path) for path in files.beside(database, wisdom_file.SUFFIX)]
        return cls(_read(own), Wisdom().merge(*shipped))

    def find(
        self,
        family: str,
        entry: str,
        configuration: Mapping[str, str],
        bucket: Sizes,
        device: DeviceKind,
        allows: Callable[[Variant], bool],
    ) -> Iterator[Found]:
        """Yield what may answer for a problem: what was measured for it, the user's own first; then guesses."""
        asked = family, entry, configuration, bucket, device, allows
        for layer in self._layers:
            for found in layer.find(*asked):
                if found.guess:
                    break
                yield found
        yield from (found for found in self._all.find(*asked) if found.guess)


def _read(path: Path) -> Wisdom:
    try:
        return wisdom_file.read(path, missing_ok=True)
    except WisdomError as error:
        _log.warning("%s: it is not used, and the defaults are", error)
        return Wisdom()
