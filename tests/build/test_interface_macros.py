"""Macros that are defined before an interface that depends on them are found; builds compare them on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.build.interface_macros import InterfaceMacros, lines_of
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.storage.declaration import load_family
from tests.support.families import MINI, write_family

TYPES = "struct argument {\n#ifdef WIDE  // or TALL\n  double more;\n#endif\n  float x;\n};\n"


def macros(directory: Path, before: str = "", header: str = TYPES, group: str = "", **files: str) -> set[str]:
    """What is found before the interface of a kernel whose template begins with ``before``."""
    toml = MINI["family.toml"].replace("[device.op]", f"{group}\n[device.op]")
    own = {"family.toml": toml, "op.cuh": MINI["op.cuh"] + header, "kern.cu.jinja": before + MINI["kern.cu.jinja"]}
    named = {name.replace("__", "."): text for name, text in files.items()}
    families = RenderedFamilies([load_family(write_family(directory, MINI | own | named))])
    request = next(request for request in families.requests if request.key.group == "kern")
    included = request.config.surely_included(request.rendered.source)
    assert included == {"op.cuh"}
    return set(lines_of("op.cuh", InterfaceMacros().find(request.rendered, request.config, included)))


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("", set()),
        ("#define WIDE\n", {"#define WIDE"}),
        ("#  define   WIDE \\\n  1 // one\n#undef WIDE\n", {"#define WIDE 1", "#undef WIDE"}),
        ("#define OTHER 1\n#define TALL\n// #define WIDE\n", set()),
        ('#include "op.cuh"\n#define WIDE\n', set()),
    ],
)
def test_a_source_defines_macros_before_its_first_include_of_the_interface(
    tmp_path: Path, before: str, found: set[str]
) -> None:
    assert macros(tmp_path, before) == found


def test_so_do_headers_and_the_options_of_a_group(tmp_path: Path) -> None:
    assert macros(tmp_path / "a", '#include "wide.cuh"\n', wide__cuh="#define WIDE 2\n") == {"#define WIDE 2"}
    options = 'options = ["-DWIDE", "-UTALL", "-DOTHER=1"]'
    assert macros(tmp_path / "b", header=TYPES + "TALL", group=options) == {"#define WIDE 1", "#undef TALL"}


def test_architecture_standard_and_compiler_are_macros_too(tmp_path: Path) -> None:
    header = TYPES + "#if __CUDA_ARCH__ >= 900 && __cplusplus > 201703L && defined(__CUDACC_RTC__)\n#endif\n"
    assert macros(tmp_path, header=header) == {'archs = ["75"]', "--std=c++17", 'toolchain = "nvrtc"'}


def test_an_interface_without_types_depends_on_none(tmp_path: Path) -> None:
    assert macros(tmp_path, "#define WIDE\n", "#ifdef WIDE\n#endif\n") == set()
