"""Requests: what a planner was asked for, in the caller's words, so that it can be planned again elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from jitlto.cuda.nvjitlink import InputKind

#: What a caller supplies beside fragments, as its name, its content and its kind (None for CUDA C++).
SuppliedInput: TypeAlias = "tuple[str, bytes | str, InputKind | None]"


class Request(NamedTuple):
    """The caller's words to a planner: all that is needed to plan them again elsewhere.

    A named tuple, not a dataclass: every program that plans makes this class at its start.

    Args:
        family: The family's name.
        entry: The entrypoint's group, where it was named.
        configuration: Parameter values.
        pinned: Keys of the fragments that were named outright.
        supplied: The caller's own inputs, in the order given.
        link_mode: ``lto`` or ``ptx``.
        link_options: Put over the family's own.
    """

    family: str
    entry: str | None
    configuration: Mapping[str, str]
    pinned: tuple[str, ...] = ()
    supplied: tuple[SuppliedInput, ...] = ()
    link_mode: str = "lto"
    link_options: Mapping[str, object] = MappingProxyType({})
