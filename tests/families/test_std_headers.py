"""Headers with the names of C's and C++'s, for sources that another compiler reads too."""

from pathlib import Path

import pytest

from jitlto.base.errors import CompileError
from jitlto.build.pipeline import build
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.record.headers import STD_HEADERS
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import MINI, write_family

INTERFACE = """#pragma once
#include <cstdint>
#include <type_traits>
namespace mini {
template <typename T> __device__ T op(T a, std::uint32_t n);
template <class T> constexpr bool is_real = std::is_floating_point<T>::value;
}
"""
KERNEL = (
    MINI["kern.cu.jinja"]
    .replace("op<T>(x[i])", "std::fabs(op<T>(x[i], uint32_t(n))) + std::numeric_limits<T>::epsilon()")
    .replace('#include "op.cuh"', '#include "op.cuh"\n#include <cmath>\n#include <limits>\n#include <stdint.h>')
)
OP = MINI["op.cu.jinja"].replace("T op(T a)", "T op(T a, std::uint32_t n)")
OP = OP.replace("({{data_type}});", "({{data_type}}, std::uint32_t);").replace("{{expr}}", "is_real<T> ? {{expr}} : n")
OWN = """#include <array>
#include <cmath>
namespace mini {
template <> __device__ float op<float>(float a, std::uint32_t n) {
  std::array<float, 2> both{a, std::sqrt(a)};
  return both[n & 1];
}
}
"""


def made(directory: Path, settings: str, files: dict[str, str] | None = None) -> KernelFamily:
    toml = MINI["family.toml"].replace('"mini"\n', f'"mini"\n{settings}\n', 1)
    own = {"op.cuh": INTERFACE, "kern.cu.jinja": KERNEL, "op.cu.jinja": OP}
    family = load_family(write_family(directory, MINI | {"family.toml": toml} | (own if files is None else files)))
    return KernelFamily("mini", FragmentDatabase(build([family], directory / "mini.fragdb", jobs=1).path))


@pytest.mark.slow
def test_sources_interfaces_and_callers_include_them(tmp_path: Path) -> None:
    family = made(tmp_path, "std_headers = true")
    assert family.plan(arch="sm_90", data_type="float", op_name="twice").link().cubin
    assert family.planner(data_type="float").add_source(OWN).plan(arch="sm_90").link().cubin


@pytest.mark.slow
def test_every_one_compiles_beside_the_others(tmp_path: Path) -> None:
    there = [each.name for each in STD_HEADERS.iterdir() if each.read_text().startswith("#include <cuda/std/")]
    assert len(there) > 40
    roots = toolkit.header_roots()
    of_toolkit = [name for name in there if any((root / _target(name)).is_file() for root in roots)]
    assert {"cstdint", "stdint.h", "type_traits", "limits", "cmath", "utility", "tuple", "array"} <= {*of_toolkit}
    included = "".join(f"#include <{name}>\n" for name in sorted(of_toolkit))
    made(tmp_path, "std_headers = true", {"kern.cu.jinja": included + MINI["kern.cu.jinja"]})


def _target(name: str) -> str:
    return (STD_HEADERS / name).read_text().split("<")[1].split(">")[0]


def test_without_them_the_error_says_how_to_have_them(tmp_path: Path) -> None:
    with raises(CompileError, "compile-missing-header", "<cmath>", hint="std_headers = true"):
        made(tmp_path, "", {"kern.cu.jinja": "#include <cmath>\n" + MINI["kern.cu.jinja"]})


def test_nvcc_reads_those_of_the_host(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('"mini"\n', '"mini"\nstd_headers = true\ntoolchain = "nvcc"\n', 1)
    assert STD_HEADERS not in load_family(write_family(tmp_path, MINI | {"family.toml": toml})).include
