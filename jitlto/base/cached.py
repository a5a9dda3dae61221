"""What is computed once, in a process that may fork and has several threads."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from jitlto.base.uninterrupted import alone

if TYPE_CHECKING:
    import msgspec

V = TypeVar("V")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property[V]):  # noqa: N801 - the name of the standard library
        """That of Python 3.12, without the lock of 3.11's, which a fork in another thread would leave locked."""

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def decoder(kind: type[V]) -> msgspec.json.Decoder[V]:
    """Return the decoder of JSON into a type; :func:`msgspec.convert` needs it to have been made as well.

    msgspec reads the annotations of structures when it first meets them, and crashes if it meets them again in another
    thread before it has read them all (seen in 0.22).
    """
    found = _decoders.get(kind)
    if found is None:
        import msgspec  # imported lazily: finding a linked kernel needs none

        with alone:
            found = _decoders[kind] = _decoders.get(kind) or msgspec.json.Decoder(kind)
    return found
