"""A linked kernel, not loaded, and the form in which it is kept."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from jitlto.record import Record

if TYPE_CHECKING:
    from jitlto.runtime.recipe import Recipe
    from jitlto.versions import Architecture


class LinkedKernel(Record):
    """A linked kernel, not loaded; equal to another of the same code, wherever that is from.

    Parameters
    ----------
    cubin : bytes
        The machine code; PTX where nvJitLink makes none for the device, which is then compiled by the driver.
    entry : str
        The kernel's mangled name in it.
    target : str
        What it runs on, e.g. ``sm_90``; ``compute_90`` for PTX.
    log : str
        nvJitLink's info log.
    seconds : float
        Wall time of the link, or of finding it.
    layer : str
        Where it is from: ``link``, ``pack`` or ``disk``.
    """

    cubin: bytes
    entry: str
    target: str
    log: str
    seconds: float
    layer: str = "link"

    @property
    def architecture(self) -> Architecture:
        """What it runs on."""
        from jitlto.versions import Architecture

        return Architecture.parse(self.target)

    @property
    def is_ptx(self) -> bool:
        """Whether it is PTX."""
        return self.target.startswith("compute_")

    def _value(self) -> tuple[object, ...]:
        return (self.cubin, self.entry, self.target, self.log)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkedKernel) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        return f"<LinkedKernel {self.entry} for {self.target}, {len(self.cubin)} bytes, from {self.layer}>"


def pack(recipe: Recipe, linked: LinkedKernel) -> bytes:
    """An entry of the cache: the recipe's content, a line of JSON, the cubin."""
    about = {"kernel": recipe.kernel, "configuration": recipe.configuration, "log": linked.log}
    line = json.dumps(about, sort_keys=True).encode()
    return b"\n".join([recipe.content, line, linked.cubin])


def unpack(digest: str, payload: bytes, seconds: float, layer: str) -> LinkedKernel | None:
    """Read an entry; None if it is not the one of that digest, as when a file was given another's name.

    Its recipe can then be read by :meth:`jitlto.runtime.recipe.Recipe.of_entry`.
    """
    content, _, rest = payload.partition(b"\n")
    if hashlib.sha256(content).hexdigest() != digest:
        return None
    line, _, cubin = rest.partition(b"\n")
    try:
        about, inputs = json.loads(line), json.loads(content)
        entry, target, log = str(inputs["entry"]), str(inputs["arch"]), str(about["log"])
        number = target.removeprefix("sm_").removeprefix("compute_").rstrip("af")
        if not number.isdigit() or any(len(p) != 2 for p in about["configuration"]):
            return None
        if not isinstance(about["kernel"], str):
            return None
        return LinkedKernel(cubin, entry, target, log, seconds, layer)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
