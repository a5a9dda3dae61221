"""Entries of the kernel cache: a linked kernel, the inputs that determine it, and their encoding as bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jitlto.base.entry import digest_of
from jitlto.base.frozen import Frozen
from jitlto.base.types import Parameter

if TYPE_CHECKING:
    from jitlto.base.versions import Architecture

_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)  # of JSON that is not ours


class Chosen(Frozen):
    """The kernel that a plan chose, as far as launching it needs.

    Args:
        kernel: The key of the entrypoint fragment.
        digest: The plan's digest.
        signature: The kernel's parameters.
    """

    kernel: str
    digest: str
    signature: tuple[Parameter, ...]

    def encode(self) -> bytes:
        """Encode it as JSON, for :meth:`decode`."""
        return json.dumps([self.kernel, self.digest, [list(p.as_dict().values()) for p in self.signature]]).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Chosen | None:
        """Decode what :meth:`encode` returned; None if it is something else."""
        try:
            kernel, digest, signature = json.loads(payload)
            return cls(str(kernel), bytes.fromhex(digest).hex(), tuple(Parameter(*each) for each in signature))
        except _UNREADABLE:
            return None


class LinkKey(Frozen):
    """The inputs that determine linked code, and its name.

    Args:
        content: The inputs of the link as canonical JSON.
        kernel: The key of the entrypoint fragment.
        configuration: The parameters that chose the fragments.
        digest: SHA-256 of the content.
    """

    content: bytes
    kernel: str
    configuration: tuple[tuple[str, str], ...]
    digest: str

    @property
    def inputs(self) -> Mapping[str, object]:
        """The content, parsed."""
        inputs: dict[str, object] = json.loads(self.content)
        return inputs

    def encode(self, kernel: LinkedKernel) -> bytes:
        """Encode the entry of a kernel: the content, a line of JSON, the cubin."""
        about = {"kernel": self.kernel, "configuration": self.configuration, "log": kernel.log}
        return b"\n".join([self.content, json.dumps(about, sort_keys=True).encode(), kernel.cubin])

    @classmethod
    def from_entry(cls, payload: bytes) -> LinkKey:
        """Read the key of an entry that :meth:`LinkedKernel.decode` accepts."""
        return _read_entry(payload)[0]


def _read_entry(payload: bytes) -> tuple[LinkKey, str, bytes]:
    """Return the key, the log and the code in an entry."""
    content, line, code = payload.split(b"\n", 2)
    about = json.loads(line)
    configuration = tuple((name, value) for name, value in about["configuration"])
    return LinkKey(content, about["kernel"], configuration, digest_of(content).hex()), str(about["log"]), code


class LinkedKernel(Frozen):
    """A linked kernel, not loaded.

    Args:
        cubin: The machine code.
        entry: The kernel's mangled name in it.
        target: The architecture of the code, e.g. ``sm_90``.
        log: nvJitLink's info log.
        seconds: Wall time of the link or of the look-up.
        layer: Its origin: ``link``, ``pack``, ``disk`` or ``store``; ``fast`` if it was linked of cubins.
    """

    cubin: bytes
    entry: str
    target: str
    log: str
    seconds: float
    layer: str = "link"

    @classmethod
    def decode(cls, digest: str, payload: bytes, seconds: float, layer: str) -> LinkedKernel | None:
        """Decode an entry; None if it is none, or one of another digest."""
        try:
            key, log, code = _read_entry(payload)
            if key.digest != digest:
                return None
            inputs = key.inputs
            return cls(code, str(inputs["entry"]), str(inputs["arch"]), log, seconds, layer)
        except _UNREADABLE:
            return None

    @property
    def architecture(self) -> Architecture:
        """The architecture that it runs on."""
        from jitlto.base.versions import Architecture  # imported lazily: a launch does not need it

        return Architecture.parse(self.target)

    @property
    def warnings(self) -> list[str]:
        """Warnings of nvJitLink and ptxas, each behind the name of its tool, with mangled names demangled."""
        if "warning" not in self.log:
            return []
        from jitlto.base.mangling import demangle  # imported lazily: most kernels link without a warning

        found = re.findall(r"^(?:(\w+) )?warning\s*: *(.*\S)", self.log, re.M)
        return [f"{tool or 'nvJitLink'}: " + re.sub(r"\b_Z\w+", lambda n: demangle(n[0]), text) for tool, text in found]

    def __repr__(self) -> str:
        return f"<LinkedKernel {self.entry} for {self.target}, {len(self.cubin)} bytes, from {self.layer}>"
