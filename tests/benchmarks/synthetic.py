"""Databases of any number of fragments, made without compiling: each is one of ``mini`` with other values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase, writer
from jitlto.families import declaration
from jitlto.record.fragment import Fragment, FragmentKey, Role
from tests.support.families import MINI, write_family


def compile_mini(directory: Path) -> Path:
    """Compile the family that the others are made from."""
    family = declaration.load_family(write_family(directory / "mini", MINI))
    return build([family], directory / "mini.fragdb", jobs=1).path


def write(path: Path, mini: Path, count: int, family: str = "mini") -> Path:
    """Write a database of so many fragments: two entrypoints, and device functions with a parameter more."""
    with FragmentDatabase(mini) as opened:
        record, fragments = opened.families["mini"], opened.fragments()
        blobs = {image.sha256: opened.read(image) for f in fragments for image in f.images}
    record = replace(record, name=family)
    writer.write(path, [record], [*_fragments(fragments, family, count)], blobs)
    return path


def _fragments(fragments: list[Fragment], family: str, count: int) -> Iterator[Fragment]:
    kernels = [f for f in fragments if f.role is Role.ENTRYPOINT]
    device = [f for f in fragments if f.role is not Role.ENTRYPOINT]
    for fragment in kernels:
        yield replace(fragment, key=replace(fragment.key, family=family))
    for number in range(count - len(kernels)):
        fragment = device[number % len(device)]
        parameters = dict(fragment.key.parameters) | {"op_name": f"op_{number:06}"}
        yield replace(fragment, key=FragmentKey(family, fragment.key.group, tuple(sorted(parameters.items()))))
