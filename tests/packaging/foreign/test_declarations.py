"""Families from calls: names, groups, keys, headers and options, as their declarations have them."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.errors import ForeignBuildError, MatrixError
from jitlto.families.declaration import FamilyDeclaration, load_family
from jitlto.families.templates import render_family
from jitlto.packaging.foreign.cmake import read_project
from jitlto.packaging.foreign.declarations import Flags, choose_key, make_families
from jitlto.record.fragment import Role
from jitlto.record.headers import STD_HEADERS
from tests.support.errors import raises
from tests.support.families import write_family
from tests.support.foreign import TREE

KERNEL = "__global__ void k@x@() {}\n"
CALL = "generate_jit_lto_kernels(f NAME_FORMAT k_@x@ MATRIX_JSON_FILE m.json KERNEL_INPUT_FILE k.cu.in {})\n"


def imported(source: Path, output: Path, toolchain: str = "nvcc") -> list[str]:
    """Write the families of a project; return what could not be taken over."""
    project = read_project(source / "CMakeLists.txt", {}, output, toolchain)
    families = make_families(project)
    for family in families:
        write_family(output, {str(path.relative_to(output)): text for path, text in family.files.items()})
    return project.left_out


def families(directory: Path, lists: str, **files: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the declarations of the families of a project below ``directory``, and the notes."""
    sources = {"k.cu.in": KERNEL, "m.json": '{"x": ["1", "2"]}', "CMakeLists.txt": lists} | files
    write_family(directory / "lib", sources)
    notes = imported(directory / "lib", directory / "out")
    made = {path.parent.name: tomllib.loads(path.read_text()) for path in (directory / "out").glob("*/family.toml")}
    return made, notes


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FamilyDeclaration]:
    output = tmp_path_factory.mktemp("imported")
    imported(TREE, output)
    return {path.parent.name: load_family(path) for path in output.glob("*/family.toml")}


@pytest.mark.slow
def test_families_are_named_after_directories_and_share_those_without_kernels(
    tree: dict[str, FamilyDeclaration],
) -> None:
    groups = {name: {group.name: group.role for group in family.groups} for name, family in tree.items()}
    assert groups == {
        "brute_force": {"brute_force": Role.ENTRYPOINT, "metric": Role.DEVICE},
        "cluster": {"assign": Role.ENTRYPOINT, "reduce": Role.DEVICE, "update": Role.ENTRYPOINT},
        "common": {"filter": Role.DEVICE, "load": Role.DEVICE},
        "ivf": {"ivf_distance": Role.DEVICE, "ivf_scan": Role.ENTRYPOINT, "post_lambda": Role.DEVICE},
    }
    assert {name: [used.name for used in family.uses] for name, family in tree.items()} == {
        "brute_force": ["common"], "cluster": ["common"], "common": [], "ivf": ["common"],
    }  # fmt: skip


@pytest.mark.slow
def test_keys_name_what_callers_know(tree: dict[str, FamilyDeclaration]) -> None:
    keys = {group.name: {*group.key} for family in tree.values() for group in family.groups}
    assert keys["brute_force"] == {"data_type", "veclen", "idx_type"}
    assert keys["metric"] == {"metric_name", "data_type", "metric_squared"}
    assert keys["ivf_scan"] == {"capacity", "ascending", "data_type"}
    assert keys["post_lambda"] == {"post_name"}


def test_every_combination_of_every_call_is_a_fragment(tree: dict[str, FamilyDeclaration]) -> None:
    rendered = [source for family in tree.values() for source in render_family(family)]
    assert len(rendered) == len({source.key for source in rendered}) == 119
    metric = next(s for s in rendered if s.key.group == "metric" and s.combination["metric_name"] == "l1")
    assert "sum += l1(" in metric.text
    assert "@" not in metric.text


def test_headers_options_and_standard_are_those_of_the_libraries(tree: dict[str, FamilyDeclaration]) -> None:
    cluster = tree["cluster"]
    assert [path.resolve().relative_to(TREE).as_posix() for path in cluster.include] == [
        "include", "src", "third_party/minilib/include",
    ]  # fmt: skip
    assert set(cluster.options) == {
        "-DCLUSTER_WIDTH=4", "-DCLUSTER_FAST", "-DMINILIB_BUNDLED=1", "--expt-extended-lambda",
        "--expt-relaxed-constexpr", "--diag-suppress=177", "--extra-device-vectorization",
    }  # fmt: skip
    assert (cluster.std, cluster.toolchain) == ("c++17", "nvcc")
    assign = next(group for group in cluster.groups if group.name == "assign")
    assert assign.options == ("-DASSIGN_UNROLL=2",)


def test_an_option_and_its_value_stay_together() -> None:
    flags = Flags("nvcc")
    flags.add(
        ["-D", "A=1", "-U", "B", "-I", "inc", "--diag-error", "177", "-maxrregcount", "32", "-Xcompiler", "-fPIC"]
    )
    flags.add(["SHELL:-Xcompiler '-Wall -Wextra' -DONE", "-Xptxas=-v,", "--threads=4", "-lineinfo", "-std=c++20"])
    assert flags.options == [
        "-DA=1", "-UB", "--diag-error=177", "-Xcompiler=-fPIC", "-Xcompiler=-Wall -Wextra", "-DONE", "--threads=4",
    ]  # fmt: skip
    assert [path.name for path in flags.include] == ["inc"]
    assert flags.link == {"max_registers": 32, "ptxas": ["-v"], "lineinfo": True}
    assert (flags.standards, flags.left_out) == ([20], [])


#: Options of nvcc, with NVRTC's form of those that it has.
OPTIONS = {
    "-w": "-w", "--diag-suppress=177": "--diag-suppress=177", "-Xcudafe=--diag_suppress=177":
    "-Xcudafe=--diag_suppress=177", "--extra-device-vectorization": "--extra-device-vectorization",
    "--restrict": "--restrict", "-DA=1": "-DA=1", "--expt-relaxed-constexpr": "--device-as-default-execution-space",
    "-expt-relaxed-constexpr": "--device-as-default-execution-space", "-Xcompiler=-DB,-Wall": "-DB",
    "--extended-lambda": None, "-expt-extended-lambda": None, "-Xfatbin=-compress-all": None, "-t=0": None,
    "-t4": None, "--threads=4": None, "--compress-mode=size": None, "-Wno-deprecated-gpu-targets": None,
    "--default-stream=per-thread": None, "-src-in-ptx": None,
}  # fmt: skip
REFUSED = ["-O3", "-gencode=arch=compute_80,code=sm_80", "--keep", "-G"]


def test_options_that_the_compiler_does_not_have_are_translated_or_left_out() -> None:
    flags = Flags("nvrtc")
    flags.add([*OPTIONS, *REFUSED, "-rdc=true", "--dlto"])
    assert flags.options == [*dict.fromkeys(filter(None, OPTIONS.values()))]
    without = [option for option, form in OPTIONS.items() if form is None]
    assert {*flags.left_out} == {*without, *REFUSED, "-Xcompiler=-Wall"}
    flags = Flags("nvcc")
    flags.add([*OPTIONS, *REFUSED])
    assert {*flags.options} == {*OPTIONS} - {"-Xcompiler=-DB,-Wall"} | {"-DB", "-Xcompiler=-Wall"}
    assert flags.left_out == REFUSED


@pytest.mark.slow
def test_options_left_out_are_listed_once_where_they_stand(tmp_path: Path) -> None:
    lists = (
        """add_library(lib INTERFACE)
        list(APPEND flags --extended-lambda
          -t 4)
        target_compile_options(lib INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:${flags}> "SHELL:-Xfatbin -compress-all")
        set(CMAKE_CUDA_FLAGS "-DA --default-stream per-thread")
        set_property(TARGET lib APPEND PROPERTY INTERFACE_COMPILE_OPTIONS --source-in-ptx)
    """
        + CALL.format("KERNEL_LINK_LIBRARIES lib KERNEL_EXTRA_COMPILE_OPTIONS --extended-lambda --resource-usage") * 2
    )
    write_family(tmp_path, {"k.cu.in": KERNEL, "m.json": '{"x": ["1", "2"]}', "CMakeLists.txt": lists})
    notes = imported(tmp_path, tmp_path / "out", "nvrtc")
    assert {tuple(note.removeprefix(f"{tmp_path}/CMakeLists.txt:").split(": ")[:2]) for note in notes} == {
        ("2", "option --extended-lambda"), ("2", "option -t=4"), ("4", "option -Xfatbin=-compress-all"),
        ("5", "option --default-stream=per-thread"), ("6", "option --source-in-ptx"), ("7", "option --resource-usage"),
    }  # fmt: skip
    assert len(notes) == 6
    family = load_family(next((tmp_path / "out").glob("*/family.toml")))
    assert (family.options, family.toolchain, STD_HEADERS in family.include) == (("-DA",), "nvrtc", True)


@pytest.mark.slow
def test_options_go_where_they_are_declared(tmp_path: Path) -> None:
    lists = """
        add_library(lib INTERFACE)
        target_include_directories(lib SYSTEM INTERFACE "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/inc>" gone
          /usr/lib/../include)
        target_compile_options(lib INTERFACE -use_fast_math "-I${CMAKE_CURRENT_SOURCE_DIR}/more" PRIVATE -DHIDDEN)
        target_link_libraries(lib INTERFACE raft::raft)
        add_compile_definitions(EVERYWHERE)
        target_compile_features(lib INTERFACE cuda_std_20)
        set(CMAKE_CUDA_ARCHITECTURES "90-real;75;80-virtual;native")
        set(CMAKE_CUDA_FLAGS "-DFLAG=1 --extended-lambda")
    """ + CALL.format("KERNEL_LINK_LIBRARIES lib")
    found, notes = families(tmp_path, lists, **{"inc/a.h": "", "more/a.h": ""})
    family = found["lib"]["family"]
    assert family["include"] == ["../../lib/inc", "../../lib/more"]
    assert family["options"] == ["-DEVERYWHERE", "-DFLAG=1", "--extended-lambda"]
    assert (family["std"], family["archs"], found["lib"]["link"]) == ("c++20", ["75"], {"fast_math": True})
    assert load_family(tmp_path / "out" / "lib" / "family.toml").link.fast_math
    (note,) = notes
    assert "gone" in note


@pytest.mark.slow
def test_a_matrix_as_text_and_variables_of_the_caller_become_a_matrix(tmp_path: Path) -> None:
    lists = """set(width 4)
        generate_jit_lto_kernels(f NAME_FORMAT k_@x@ MATRIX_JSON_STRING [[{"x": ["1", "2"]}]] KERNEL_INPUT_FILE w.cu.in)
    """
    families(tmp_path, lists, **{"w.cu.in": "__global__ void k@x@(int a) { a = @width@; @nothing@ }"})
    (matrix,) = (tmp_path / "out").rglob("*.json")
    rendered = list(render_family(load_family(matrix.with_name("family.toml"))))
    assert [source.combination for source in rendered] == [{"nothing": "", "width": "4", "x": x} for x in "12"]


@pytest.mark.slow
def test_calls_of_one_template_are_one_group_unless_their_options_differ(tmp_path: Path) -> None:
    other = CALL.format("KERNEL_EXTRA_COMPILE_OPTIONS -DA").replace("k_@x@", "l_@x@")
    found, _ = families(tmp_path, CALL.format("") * 2 + other)
    groups = found["lib"]["entrypoint"]
    assert {name: group.get("options") for name, group in groups.items()} == {"k": None, "l": ["-DA"]}
    assert {group["matrix"] for group in groups.values()} == {"../../lib/m.json"}


@pytest.mark.slow
def test_a_group_is_named_after_all_literal_parts_of_the_format(tmp_path: Path) -> None:
    calls = [CALL.format(f"KERNEL_EXTRA_COMPILE_OPTIONS -D{n}").replace("k_@x@", form) for n, form in
             enumerate(("ivf_@x@_scan_@x@_interleaved", "@x@_pq@x@_scan", "ivf_flat_@x@", "@x@"))]  # fmt: skip
    found, _ = families(tmp_path, "".join(calls))
    assert {*found["lib"]["entrypoint"]} == {"ivf_scan_interleaved", "pq_scan", "ivf_flat", "k"}


@pytest.mark.slow
def test_embedded_object_libraries_are_groups_with_options_of_their_own(tmp_path: Path) -> None:
    lists = """
        find_package(rtcx CONFIG)
        macro(add_fragment name)
          add_library(${name}_objects OBJECT src/jit/${name}.cu)
          target_compile_options(${name}_objects PRIVATE --compress-mode=size -Xnvlink=--kernels-used=entry)
          target_compile_definitions(${name}_objects PRIVATE ${ARGN})
          target_include_directories(${name}_objects PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/inc")
          target_link_libraries(${name}_objects PUBLIC common PRIVATE $<BUILD_LOCAL_INTERFACE:fast>)
          set_target_properties(${name}_objects PROPERTIES CUDA_STANDARD 20 CUDA_FATBIN_COMPILATION ON)
          rtcx_embed_blob(embed FILE $<TARGET_OBJECTS:${name}_objects> DEST f/${name}.fatbin ID ${name}
            ARRAY_IDS a b ARRAY_VALUES 1 2)
        endmacro()
        add_library(common INTERFACE)
        target_compile_definitions(common INTERFACE ALL)
        add_library(fast INTERFACE)
        target_compile_options(fast INTERFACE --extended-lambda)
        rtcx_add_embed(embed)
        add_fragment(entry "KIND=1" NARROW)
        add_fragment(op)
        rtcx_embed_blob(embed FILE made.fatbin DEST made ID made)
        rtcx_embed(embed COMPRESSION none OUTPUT_DIRECTORY out)
    """
    code = {"src/jit/entry.cu": "__global__ void entry() {}", "src/jit/op.cu": "__device__ void op() {}", "inc/a.h": ""}
    (family,) = families(tmp_path, lists, **code)[0].values()
    assert family["family"]["options"] == ["-DALL"]
    assert (family["family"]["std"], family["family"]["include"]) == ("c++20", ["../../lib/inc"])
    assert family["entrypoint"]["entry"]["template"] == "../../lib/src/jit/entry.cu"
    own = ["--compress-mode=size", "-Xnvlink=--kernels-used=entry", "--extended-lambda"]
    assert family["entrypoint"]["entry"]["options"] == ["-DKIND=1", "-DNARROW", *own]
    assert family["device"]["op"]["options"] == own
    left_out = read_project(tmp_path / "lib" / "CMakeLists.txt", {}, tmp_path).left_out
    assert [note.partition(": ")[2].partition(",")[0] for note in left_out] == [
        "package rtcx is not installed: left out", "made.fatbin",
    ]  # fmt: skip


@pytest.mark.slow
def test_sources_may_be_given_to_an_object_library_later(tmp_path: Path) -> None:
    lists = """
        add_library(objects OBJECT)
        target_sources(objects PRIVATE a.cu "${CMAKE_CURRENT_SOURCE_DIR}/b.cu" host.cpp)
        add_library(more OBJECT a.cu)
        target_sources(more PRIVATE b.cu)
        target_sources(none PRIVATE c.cu)
        rtcx_embed_blob(embed FILE $<TARGET_OBJECTS:objects> ID one)
        rtcx_embed_blob(embed FILE $<TARGET_OBJECTS:more> ID two)
    """
    code = {f"{name}.cu": f"__global__ void {name}() {{}}" for name in "ab"}
    calls = (families(tmp_path, lists, **code), read_project(tmp_path / "lib" / "CMakeLists.txt", {}, tmp_path))[
        1
    ].calls
    assert [(each.arguments["NAME_FORMAT"], Path(each.arguments["KERNEL_INPUT_FILE"]).name) for each in calls] == [
        (name, source) for name in ("one", "two") for source in ("a.cu", "b.cu")
    ]


@pytest.mark.slow
def test_headers_that_cmake_writes_in_its_build_tree_come_along(tmp_path: Path) -> None:
    lists = """
        project(lib VERSION 26.04.1 LANGUAGES CXX CUDA)
        configure_file(version.h.in "${CMAKE_CURRENT_BINARY_DIR}/include/lib/version.h" @ONLY)
        file(GENERATE OUTPUT $<1:more>/more.cuh CONTENT "MORE $<BOOL:yes>")
        file(WRITE "${PROJECT_BINARY_DIR}/elsewhere/a.h" "")
        add_subdirectory(src/sub)
    """
    sub = """add_library(own INTERFACE)
        target_include_directories(own INTERFACE "${lib_BINARY_DIR}/include" "${CMAKE_CURRENT_BINARY_DIR}/gone"
          "${PROJECT_BINARY_DIR}/more" "${CMAKE_CURRENT_BINARY_DIR}")
        file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/own.h" "OWN")
    """ + CALL.format("KERNEL_LINK_LIBRARIES own").replace("m.json", "../../m.json").replace("k.cu", "../../k.cu")
    files = {"src/sub/CMakeLists.txt": sub, "version.h.in": "@lib_VERSION_MAJOR@ @PROJECT_VERSION_PATCH@\n"}
    found, notes = families(tmp_path, lists, **files)
    place = tmp_path / "out" / "generated"
    assert {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*.*h")} == {
        "project/include/lib/version.h": "26 1\n", "project/more/more.cuh": "MORE 1", "project/src/sub/own.h": "OWN",
    }  # fmt: skip
    assert found["lib"]["family"]["include"] == [
        f"../generated/project/{name}" for name in ("include", "more", "src/sub")
    ]
    (note,) = notes
    assert note.endswith(f"no directory {place}/project/src/sub/gone: left out")


@pytest.mark.slow
def test_an_architecture_that_the_compiler_refuses_is_an_error_with_the_file(tmp_path: Path) -> None:
    lists = "set(CMAKE_CUDA_COMPILER_VERSION {})\nset(CMAKE_CUDA_ARCHITECTURES {})\n" + CALL.replace("{}", "")
    with raises(ForeignBuildError, "import-architecture", "70", "13.0.88", where="lib/CMakeLists.txt", hint="-D"):
        families(tmp_path / "old", lists.format("13.0.88", "80-real 70-virtual"))
    with raises(ForeignBuildError, "import-architecture", "120a", "12.4", where="lib/CMakeLists.txt"):
        families(tmp_path / "new", lists.format("12.4", "120a"))
    found, _ = families(tmp_path / "known", lists.format("12.9", "70-virtual 90a native"))
    assert found["lib"]["family"]["archs"] == ["70"]
    found, _ = families(tmp_path / "suffix", lists.format("12.9", "90a-real"))
    assert found["lib"]["family"]["archs"] == ["90a"]


@pytest.mark.slow
def test_mistakes_name_the_call(tmp_path: Path) -> None:
    with raises(ForeignBuildError, "import-no-call"):
        families(tmp_path / "none", "project(p)\n")
    with raises(ForeignBuildError, "import-invalid-call", "NAME_FORMAT", where="k.cu.in"):
        families(tmp_path / "format", "generate_jit_lto_kernels(f KERNEL_INPUT_FILE k.cu.in)\n")
    with raises(ForeignBuildError, "import-missing-file", "gone.cu.in"):
        families(tmp_path / "file", CALL.format("").replace("k.cu.in", "gone.cu.in"))
    with raises(MatrixError, "matrix-empty"):
        families(tmp_path / "empty", CALL.format(""), **{"m.json": "[]"})
    text = CALL.format("").replace("MATRIX_JSON_FILE m.json", 'MATRIX_JSON_STRING [==[{"x": "1", "x": "2"}]==]')
    with raises(MatrixError, "matrix-duplicate-member", "k.cu.in"):
        families(tmp_path / "text", text)


def test_a_key_keeps_the_name_where_no_type_or_number_stands_for_it() -> None:
    combinations = [{"name": "a", "expr": "f(x)", "n": "1"}, {"name": "b", "expr": "-x", "n": "1"}]
    assert choose_key({"name"}, combinations, ["expr"]) == ("name",)
    assert choose_key(set(), combinations, ["expr"]) == ("expr",)
    loop = [{"T": t, "abbr": t[0], "k": k} for t in ("float", "int") for k in ("8", "16")]
    assert choose_key({"abbr"}, loop, ["T", "k", "T"]) == ("T", "k")
    assert choose_key({"t"}, [{"t": "f", "type": "float"}, {"t": "d", "type": "double"}], ["type"]) == ("type",)
