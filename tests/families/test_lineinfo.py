"""Shipped families with line information: the same machine code, each instruction of which has a file and a line."""

import random
from pathlib import Path

import pytest

from jitlto.build.lineinfo import with_lineinfo, write_sources
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cuda import toolkit
from jitlto.families.declaration import change_all
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load
from tests.conftest import DeclareShipped
from tests.support.line_information import instructions, machine_code

_KERNELS = 6  # of each family, chosen at random
_LEAST = 0.95
_SMALL = ("search",)


@pytest.fixture(params=["search", "transform", "transport", "fft", "segment_reduce", "ivf_flat_batch"])
def both(
    request: pytest.FixtureRequest, declare_shipped: DeclareShipped, tmp_path: Path
) -> tuple[KernelFamily, KernelFamily]:
    """A shipped family, and the same with line information."""
    if request.param not in _SMALL and toolkit.find_binary("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed, and large families take long to build")
    plain: KernelFamily = request.getfixturevalue(request.param)
    path = tmp_path / "lines.fragdb"
    families = map(declare_shipped, sorted(plain.contents.families))
    rendered = RenderedFamilies(change_all(families, with_lineinfo))
    build(rendered, path)
    write_sources(rendered.requests, path)
    return plain, load(plain.name, path)


def plan(family: KernelFamily, configuration: dict[str, str]) -> Plan:
    planner = family.planner(configuration.pop("entry", None), **configuration)
    if family.name == "transform":  # which has no kernel without a caller's own function
        t = configuration["data_type"]
        planner.add_source(f"__device__ {t} user_transform({t} x) {{ return x * x + 1; }}")
    return planner.plan(arch="sm_90")


@pytest.mark.slow
def test_instructions_are_the_same_and_lead_to_lines_of_fragments(
    both: tuple[KernelFamily, KernelFamily], tmp_path: Path
) -> None:
    plain, lines = both
    sources = lines.database.location.with_suffix(".sources")
    configurations = list(plain.configurations())
    for configuration in random.Random(0).sample(configurations, min(_KERNELS, len(configurations))):  # noqa: S311
        cubin = plan(lines, dict(configuration)).link(use_cache=False).cubin
        assert machine_code(cubin) == machine_code(plan(plain, dict(configuration)).link(use_cache=False).cubin)
        found = list(instructions(cubin, tmp_path))
        lengths = {path.name: len(path.read_text().splitlines()) for path in sources.rglob("*") if path.is_file()}
        leading = [any(line <= lengths.get(Path(file).name, 0) for file, line in each.places) for each in found]
        assert sum(leading) >= _LEAST * len(found)
