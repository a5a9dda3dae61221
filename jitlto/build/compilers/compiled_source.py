"""What goes to a compiler and what comes back: :class:`Job` and :class:`Unit`, the same for every toolchain.

A job holds its source and headers by content and a unit its images by content, so that both travel between processes
and machines; a unit has a serialised form for the build cache.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from jitlto.model.fragment import ImageKind, Symbol, SymbolKind
from jitlto.model.headers import Source
from jitlto.model.versions import Architecture, Version


@dataclass(frozen=True, slots=True)
class Job:
    """One source to compile, and how.

    Parameters
    ----------
    toolchain : str
        ``nvrtc`` or ``nvcc``.
    identity : str
        All that tells the compiler at hand from any other, see :attr:`jitlto.build.compilers.base.Toolchain.identity`.
        A worker whose compiler is another one refuses the job.
    source : Source
        Text and headers.
    architectures : tuple of Architecture
        At least one, sorted.
    options : tuple of str
        Further compiler options.
    images : tuple of ImageKind
        What to make: LTO-IR, PTX for the lowest architecture, or both.
    sharers : int
        How many jobs of this build have the same includes; whether a snapshot may pay.
    """

    toolchain: str
    identity: str
    source: Source
    architectures: tuple[Architecture, ...]
    options: tuple[str, ...]
    images: tuple[ImageKind, ...]
    sharers: int = 1


@dataclass(frozen=True, slots=True)
class Unit:
    """What one source became.

    Parameters
    ----------
    toolchain : str
        ``nvrtc`` or ``nvcc``.
    version : Version
        The toolchain's.
    target : Architecture
        The lowest architecture, for which symbols were read.
    isa : Version
        The PTX ISA version that the compiler writes.
    provides, requires : tuple of Symbol
        Sorted.
    kernels : tuple of (str, tuple of (int, int))
        The mangled name of each kernel, and the size and alignment of each of its parameters, in bytes; sorted.
    weak : tuple of (str, str)
        See :attr:`jitlto.model.fragment.Fragment.weak`.
    images : tuple of (ImageKind, Architecture, bytes)
        LTO-IR in a fatbin for each architecture, relocatable PTX for the lowest; sorted.
    reads : tuple of str
        The names of the headers that the compiler read, as far as it tells, else of all that it was given; sorted.
    log : str
        The compiler's warnings.
    """

    toolchain: str
    version: Version
    target: Architecture
    isa: Version
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]
    kernels: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    weak: tuple[tuple[str, str], ...]
    images: tuple[tuple[ImageKind, Architecture, bytes], ...]
    reads: tuple[str, ...]
    log: str

    def to_bytes(self) -> bytes:
        """The serialised form: a line of JSON, then the bytes of the images one after the other."""
        head = {
            "toolchain": self.toolchain,
            "version": self.version,
            "target": str(self.target),
            "isa": self.isa,
            "provides": [[s.name, s.kind, s.layout, s.weak] for s in self.provides],
            "requires": [[s.name, s.kind, s.layout, s.weak] for s in self.requires],
            "kernels": self.kernels,
            "weak": self.weak,
            "images": [[kind, str(architecture), len(data)] for kind, architecture, data in self.images],
            "reads": self.reads,
            "log": self.log,
        }
        line = json.dumps(head, separators=(",", ":")).encode()
        return b"\n".join([line, b"".join(data for _, _, data in self.images)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Unit:
        """Read the serialised form.

        Raises
        ------
        ValueError, KeyError, TypeError, JitltoError
            If ``data`` is not that form; whoever stores it guards it with a checksum.
        """
        line, _, rest = data.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        images, position = [], 0
        for kind, architecture, size in head["images"]:
            images.append((ImageKind(kind), Architecture.parse(architecture), rest[position : position + size]))
            position += size
        if position != len(rest):
            raise ValueError("images are missing")
        return cls(
            head["toolchain"],
            Version(*head["version"]),
            Architecture.parse(head["target"]),
            Version(*head["isa"]),
            tuple(_symbol(s) for s in head["provides"]),
            tuple(_symbol(s) for s in head["requires"]),
            tuple((name, tuple((size, align) for size, align in sizes)) for name, sizes in head["kernels"]),
            tuple((name, body) for name, body in head["weak"]),
            tuple(images),
            tuple(head["reads"]),
            head["log"],
        )

    @property
    def sha256(self) -> str:
        """Of the serialised form: equal units have equal ones."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def _symbol(fields: list[Any]) -> Symbol:
    name, kind, layout, weak = fields
    return Symbol(name, SymbolKind(kind), layout, weak)
