"""A linked kernel, not loaded, and the form in which it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from jitlto.errors import JitltoError
from jitlto.versions import Architecture


@dataclass(frozen=True, slots=True)
class LinkedKernel:
    """A linked kernel, not loaded.

    Parameters
    ----------
    cubin : bytes
        The machine code.
    entry : str
        The kernel's mangled name in it.
    architecture : Architecture
        What it runs on.
    log : str
        nvJitLink's info log.
    seconds : float
        Wall time of the link, or of finding it.
    layer : str
        Where it is from: ``link``, ``pack`` or ``disk``.
    """

    cubin: bytes = field(repr=False)
    entry: str
    architecture: Architecture
    log: str
    seconds: float = field(compare=False)
    layer: str = field(default="link", compare=False)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that determines linked code, and what it is called.

    Parameters
    ----------
    content : bytes
        The inputs of the link as canonical JSON; its SHA-256 is the plan's digest.
    kernel : str
        The key of the entrypoint fragment.
    configuration : tuple of (str, str)
        The parameters that chose the fragments.
    """

    content: bytes
    kernel: str
    configuration: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def inputs(self) -> Mapping[str, object]:
        """The content, read."""
        inputs: dict[str, object] = json.loads(self.content)
        return inputs


def pack(recipe: Recipe, linked: LinkedKernel) -> bytes:
    """An entry of the cache: the recipe's content, a line of JSON, the cubin."""
    about = {"kernel": recipe.kernel, "configuration": recipe.configuration, "log": linked.log}
    line = json.dumps(about, sort_keys=True).encode()
    return b"\n".join([recipe.content, line, linked.cubin])


def unpack(digest: str, payload: bytes, seconds: float, layer: str) -> tuple[Recipe, LinkedKernel] | None:
    """Read an entry; None if it is not the one of that digest, as when a file was given another's name."""
    content, _, rest = payload.partition(b"\n")
    if hashlib.sha256(content).hexdigest() != digest:
        return None
    line, _, cubin = rest.partition(b"\n")
    try:
        about = json.loads(line)
        inputs = json.loads(content)
        recipe = Recipe(content, about["kernel"], tuple((name, value) for name, value in about["configuration"]))
        architecture = Architecture.parse(inputs["arch"])
        return recipe, LinkedKernel(cubin, inputs["entry"], architecture, about["log"], seconds, layer)
    except (ValueError, KeyError, TypeError, JitltoError):
        return None
