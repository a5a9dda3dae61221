"""Kernel parameters, as callers see them."""

from __future__ import annotations

from jitlto.record import Record


class Parameter(Record):
    """One parameter of a kernel.

    Parameters
    ----------
    name : str
        Its name.
    type : str
        Its C++ type, e.g. ``float const*``.
    size, alignment : int
        In bytes, from the ``.entry`` that the compiler emitted.
    """

    name: str
    type: str
    size: int
    alignment: int

    def __str__(self) -> str:
        return f"{self.type} {self.name}"
