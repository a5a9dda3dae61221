"""Fragments, their keys, images and symbols: the vocabulary of the build side and the run side.

None of these values refers to itself, so the garbage collector need not look at them: it took a third of the time of a
merge of 100,000 fragments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, TypeAlias
from urllib.parse import quote, unquote

from msgspec import Meta, Struct

from jitlto.base.cached import cached_property
from jitlto.base.errors import JitltoError
from jitlto.base.text import check_type
from jitlto.base.types import Parameter
from jitlto.base.versions import Architecture, Version

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: The name of a family, a group or a parameter; checked when it is decoded.
Name = Annotated[str, Meta(pattern=rf"\A{_NAME.pattern}\Z")]
#: A number of things or bytes.
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
#: A SHA-256 in hexadecimal.
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_KEY = re.compile(r"([^/\[\]]+)/([^/\[\]]+)\[([^\[\]]*)\]")
_VALUE = re.compile(r"(?:[^%=]|%[0-9A-Fa-f]{2})*")
# Printable characters are not encoded, except the punctuation of the text form.
_LONGEST_STEM = 200  # file systems take 255 bytes
_SAFE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) not in "%,=[]")


class Role(StrEnum):
    """Role of a fragment in a kernel: holding the ``__global__`` function, or being called by it."""

    ENTRYPOINT = "entrypoint"
    DEVICE = "device"


class ImageKind(StrEnum):
    """``ltoir``: LTO-IR. ``ptx``: relocatable PTX. ``sass``: a relocatable cubin."""

    LTOIR = "ltoir"
    PTX = "ptx"
    SASS = "sass"


#: The toolchain of what was compiled elsewhere; its version is that of the nvJitLink that read it at the build.
BINARY = "binary"
#: The layout of a symbol of which only the name is known.
UNKNOWN = "?"
#: What an image holds, and for which architecture.
ImageForm: TypeAlias = "tuple[ImageKind, Architecture]"
#: Values of parameters, sorted by name.
Values: TypeAlias = "tuple[tuple[Name, str], ...]"


class SymbolKind(StrEnum):
    """The kind of a symbol."""

    FUNCTION = "function"
    KERNEL = "kernel"
    VARIABLE = "variable"


class FragmentKey(Struct, frozen=True, order=True, dict=True):
    """The identity of a fragment: family, group and the group's key parameters, sorted by name.

    The text form is ``family/group[name=value,...]``, which :meth:`parse` reads. In values the characters ``%``, ``,``,
    ``=``, ``[`` and ``]``, and everything except printable ASCII, are percent-encoded (RFC 3986).

    Args:
        family, group: Identifiers; letters, digits, ``_``, ``.`` and ``-``.
        parameters: Sorted by name; use :meth:`make` for an unsorted mapping.
    """

    family: Name
    group: Name
    parameters: Values = ()

    @classmethod
    def make(cls, family: str, group: str, parameters: Mapping[str, str]) -> FragmentKey:
        """Build a key from a mapping of parameter name to value."""
        return cls(family, group, tuple(sorted(parameters.items())))

    @classmethod
    def parse(cls, text: str) -> FragmentKey:
        """Read the text form.

        Raises:
            JitltoError: If ``text`` is not the text form of a key.
        """

        check_type(text, str, "a key must be text")
        match = _KEY.fullmatch(text)
        parts = [part.partition("=") for part in match[3].split(",")] if match and match[3] else []
        values = {name: value for name, equals, value in parts if equals and _VALUE.fullmatch(value)}
        if match and len(values) == len(parts) and all(map(is_name, (match[1], match[2], *values))):
            with suppress(UnicodeDecodeError):
                decoded = {name: unquote(v, errors="strict") if "%" in v else v for name, v in values.items()}
                return cls.make(match[1], match[2], decoded)
        hint = "write family/group[name=value,name=value]; `jitlto ls -l DB` lists the keys of a database"
        raise JitltoError(f"invalid fragment key {text!r}", code="jitlto-fragment-key", hint=hint)

    @cached_property
    def text(self) -> str:
        """The text form."""
        # Most values need no encoding, and quote() is slow to find that out.
        inner = ",".join(f"{n}={v if is_name(v) else quote(v, safe=_SAFE)}" for n, v in self.parameters)
        return f"{self.family}/{self.group}[{inner}]"

    @property
    def file_name(self) -> str:
        """Name of the fragment's source, which is readable, unique in its group, and accepted by nvcc.

        nvcc takes neither ``,`` nor ``=`` in a file's name; ``+`` cannot be in an encoded value.
        """
        values = (f"{name}-{quote(value, safe='', errors='surrogatepass')}" for name, value in self.parameters)
        stem = "+".join(values) or self.group
        return f"{stem if len(stem) <= _LONGEST_STEM else hashlib.sha256(stem.encode()).hexdigest()}.cu"

    def __str__(self) -> str:
        return self.text


class Symbol(Struct, frozen=True, order=True, gc=False):
    """A function, kernel or variable that one fragment defines and another may use.

    Args:
        name: The mangled name, as the linker sees it.
        kind: Function, kernel or variable.
        layout: Sizes in bytes: ``(4)(4,b12)`` for a function (result, then parameters; ``b`` for a structure passed by
            value), as nvJitLink compares them; size and alignment, ``const 16@4``, for a variable; ``?`` for a size
            that the declaration leaves open, or for all of what only the name is known.
        weak: Whether a kernel may have several definitions, of which the linker keeps one.
    """

    name: str
    kind: SymbolKind
    layout: str
    weak: bool = False


class Image(Struct, frozen=True, order=True, gc=False):
    """A compressed fatbin with the code of a fragment for one architecture; its bytes stay in the database.

    Args:
        kind: LTO-IR, relocatable PTX, or a relocatable cubin.
        architecture: The architecture that it was compiled for.
        sha256: Of the bytes, in hexadecimal.
        size: In bytes.
        toolchain: ``nvrtc``, ``nvcc``, or ``binary`` for what was compiled elsewhere.
        version: The toolchain's.
        ptx_isa: The PTX ISA version of a PTX image.
    """

    kind: ImageKind
    architecture: Architecture
    sha256: Sha256
    size: Count
    toolchain: str
    version: Version
    ptx_isa: Version | None = None

    @property
    def code(self) -> str:
        """The architecture as compilers name it, ``sm_90`` for machine code and ``compute_90`` for all else."""
        return self.architecture.sm if self.kind is ImageKind.SASS else self.architecture.compute

    def __str__(self) -> str:
        isa = f" (ISA {self.ptx_isa})" if self.ptx_isa else ""
        return f"{self.kind} {self.code}, {self.toolchain} {self.version}{isa}"


class Fragment(Struct, frozen=True, gc=False):
    """One compiled source: its key, the symbols that it provides and requires, and its images.

    Args:
        key: Family, group and parameters.
        role: Entrypoint or device.
        entry: The kernel's mangled name; empty for a device fragment.
        signature: The kernel's parameters; empty for a device fragment.
        provides: The symbols that it defines, sorted.
        requires: The symbols that another fragment must define, sorted.
        images: Sorted.
        bodies: Of what is weak in the PTX image, the names and the hashes of the definitions; sorted.
    """

    key: FragmentKey
    role: Role
    entry: str
    signature: tuple[Parameter, ...]
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]
    images: tuple[Image, ...]
    bodies: tuple[tuple[str, Sha256], ...] = ()

    def images_of(self, kind: ImageKind) -> Iterable[Image]:
        """Return the images of one kind, lowest architecture first."""
        return (image for image in self.images if image.kind is kind)


def is_name(text: str) -> bool:
    """Return whether ``text`` may name a family, a group or a parameter."""
    return _NAME.fullmatch(text) is not None


def agrees(parameters: Values, configuration: Mapping[str, str]) -> bool:
    """Return whether no parameter contradicts a configuration; parameters that it does not name are free."""
    return all(configuration.get(name, value) == value for name, value in parameters)


def sorted_values(several: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """Join values by parameter: return each parameter with all of its values, both sorted."""
    values: dict[str, set[str]] = {}
    for name, some in several:
        values.setdefault(name, set()).update(some)
    return {name: tuple(sorted(values[name], key=numbers_first)) for name in sorted(values)}


def numbers_first(text: str) -> tuple[int, float, str]:
    """Return the key by which values are sorted: numbers first, and 8 before 16."""
    return (0, float(text), text) if text.isdecimal() else (1, 0.0, text)
