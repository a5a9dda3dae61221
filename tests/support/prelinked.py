"""Kernels linked on one machine and launched on another: how the CUDA 12 chain is tried on a GPU that has CUDA 13.

Where a database of one CUDA major was built, with that major's nvJitLink::

    python -m tests.support.prelinked search.fragdb kernels.zip --arch sm_90

Where the GPU is::

    JITLTO_TEST_PRELINKED=kernels.zip JITLTO_TEST_DATABASE=search.fragdb pytest tests/families/test_search_gpu.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitlto.cuda import nvjitlink
from jitlto.runtime.family import KernelFamily, load


def configurations(search: KernelFamily) -> list[dict[str, str]]:
    """All 96 configurations of the family ``search``."""
    entries = [dict(fragment.key.parameters) for fragment in search.index.entrypoints]
    choices = itertools.product(search.parameters["distance_name"], search.parameters["filter_name"])
    return [
        entry | {"distance_name": distance, "filter_name": filter_}
        for entry, (distance, filter_) in itertools.product(entries, list(choices))
    ]


def member(configuration: dict[str, str]) -> str:
    """The name of a configuration's cubin in the archive."""
    return ",".join(f"{name}={value}" for name, value in sorted(configuration.items())) + ".cubin"


def main() -> None:
    """Link all kernels of ``search`` into an archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    search = load("search", options.database)
    wanted = configurations(search)
    with ThreadPoolExecutor() as pool:
        linked = list(pool.map(lambda c: search.plan(arch=options.arch, **c).link(), wanted))
    with zipfile.ZipFile(options.output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("linked_by.json", json.dumps({"nvjitlink": str(nvjitlink.version())}))
        for configuration, kernel in zip(wanted, linked, strict=True):
            archive.writestr(member(configuration), kernel.cubin)
    print(f"{len(wanted)} kernels linked by nvJitLink {nvjitlink.version()} in {options.output}")


if __name__ == "__main__":
    main()
