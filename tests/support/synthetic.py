"""Families of any number of fragments that nobody compiled: one group of kernels and one of functions, half of each."""

import hashlib
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from jitlto.base.versions import Architecture, Version
from jitlto.cuda import nvjitlink
from jitlto.database import writer
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Parameter, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions

_NAMES = ("data_type", "metric", "shape")


def make_family(size: int, name: str = "family") -> tuple[FamilyRecord, Iterator[Fragment], dict[str, bytes]]:
    """Make a family of so many fragments: its record, these, and their images, which are there when they are."""
    groups = (
        GroupRecord("kernel", Role.ENTRYPOINT, _NAMES, None, False),
        GroupRecord("op", Role.DEVICE, _NAMES, "op.cuh", False),
    )
    header = ("op.cuh", "#pragma once\n" + "// an interface\n" * 50)
    record = FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, (header,))
    images: dict[str, bytes] = {}
    roles = (("kernel", Role.ENTRYPOINT), ("op", Role.DEVICE))
    return record, (_fragment(k, role, images) for group, role in roles for k in _keys(name, size // 2, group)), images


def write_family(path: Path, size: int, name: str = "family") -> Path:
    """Write a database of one family with so many fragments."""
    record, fragments, images = make_family(size, name)
    writer.write(path, [record], fragments, images)
    return path


def middle(size: int) -> dict[str, str]:
    """The parameters of a kernel in the middle of a family."""
    return dict(next(islice(_keys("family", size // 2, "kernel"), size // 4, None)).parameters)


def _keys(family: str, size: int, group: str) -> Iterator[FragmentKey]:
    steps = next(n for n in range(1, size + 1) if n**3 >= size)
    every = product(*([f"{name}_{n}" for n in range(steps)] for name in _NAMES))
    for values in islice(every, size):
        yield FragmentKey.make(family, group, dict(zip(_NAMES, values, strict=True)))


def _fragment(key: FragmentKey, role: Role, images: dict[str, bytes]) -> Fragment:
    data = key.text.encode()
    sha = hashlib.sha256(data).hexdigest()
    images[sha] = data
    function = Symbol(f"_ZN6family2opE{key.parameters[0][1]}", SymbolKind.FUNCTION, "(4)(4,4)")
    kernel = Symbol(f"_ZN6family6kernelE{len(images)}", SymbolKind.KERNEL, "()(8,8,4)")
    image = Image(ImageKind.LTOIR, Architecture(75), sha, len(data), "nvrtc", Version(nvjitlink.version().major, 0))
    if role is Role.DEVICE:
        return Fragment(key, role, "", (), (function,), (), (image,))
    parameters = tuple(Parameter(f"p{n}", "float const*", 8, 8) for n in range(4))
    return Fragment(key, role, kernel.name, parameters, (kernel,), (function,), (image,))
