"""The databases that are measured: whole families, and those that hold no more than a few kernels need."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import RenderedSource, render_family
from jitlto.record.fragment import FragmentKey, agrees
from jitlto.runtime.family import KernelFamily

NAMES = ("ivf_flat", "fft", "transport")
#: What fragments are compiled for by default: they link upward to every later architecture.
BASE = Architecture(75)


@cache
def declared(name: str) -> FamilyDeclaration:
    """A family as it is declared."""
    return declaration.load_family(declaration.find_family(name))


@cache
def rendered(name: str) -> Mapping[FragmentKey, RenderedSource]:
    """The sources of a family's fragments."""
    return {item.key: item for item in render_family(declared(name))}


def whole_family(name: str, work: Path) -> Path:
    """The database of all fragments, built if it is not there yet."""
    path = work / f"{name}.fragdb"
    if not path.is_file():
        temporary = path.with_name(f"{os.getpid()}_{path.name}")  # another part may build the same
        build([declared(name)], temporary)
        temporary.replace(path)
    return path


def small_family(
    name: str, configurations: Sequence[Mapping[str, str]], architecture: Architecture, directory: Path
) -> KernelFamily:
    """A family of the fragments that some kernels need, compiled for one architecture."""
    directory = directory / f"{name}_{architecture}"
    directory.mkdir(parents=True)
    groups = []
    for group in declared(name).groups:
        combinations = [
            dict(item.combination)
            for item in rendered(name).values()
            if item.key.group == group.name and any(agrees(item.key.parameters, wanted) for wanted in configurations)
        ]
        matrix = directory / f"{group.name}.json"
        # A group without parameters has the empty combination.
        matrix.write_text(json.dumps(combinations if any(combinations) else {}))
        groups.append(replace(group, matrix=matrix))
    smaller = replace(declared(name), groups=tuple(groups), architectures=(architecture,))
    built = build([smaller], directory / "small.fragdb")
    return KernelFamily(name, FragmentDatabase(built.path))


def free_memory() -> None:
    """Give the device's memory back between problems."""
    import gc

    import cupy as cp

    gc.collect()
    cp.get_default_memory_pool().free_all_blocks()
