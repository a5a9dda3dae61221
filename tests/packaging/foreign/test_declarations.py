"""Families from calls: names, groups, keys, headers and options, as their declarations have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jitlto.base.errors import ForeignBuildError, MatrixError
from jitlto.families.declaration import FamilyDeclaration, load_family
from jitlto.families.templates import render_family
from jitlto.packaging.foreign.calls import choose_key
from jitlto.packaging.foreign.cmake import read_project
from jitlto.packaging.foreign.declarations import Family, make_families
from jitlto.packaging.foreign.toml_writer import family_files
from jitlto.record.fragment import Role
from tests.support.errors import raises
from tests.support.families import write_family
from tests.support.foreign import TREE

pytestmark = pytest.mark.one_major

KERNEL = "__global__ void k@x@() {}\n"
CALL = "generate_jit_lto_kernels(f NAME_FORMAT k_@x@ MATRIX_JSON_FILE m.json KERNEL_INPUT_FILE k.cu.in {})\n"


def families(directory: Path, lists: str, **files: str) -> tuple[dict[str, Family], list[str]]:
    sources = {"k.cu.in": KERNEL, "m.json": '{"x": ["1", "2"]}', "CMakeLists.txt": lists} | files
    write_family(directory, sources)
    commands, _ = read_project(directory / "CMakeLists.txt", {})
    made, notes = make_families(commands, directory)
    return {family.name: family for family in made}, notes


def one(directory: Path, lists: str, **files: str) -> Family:
    (family,) = families(directory / "lib", lists, **files)[0].values()
    return family


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FamilyDeclaration]:
    output = tmp_path_factory.mktemp("imported")
    commands, _ = read_project(TREE / "CMakeLists.txt", {})
    for family in make_families(commands, TREE)[0]:
        for path, text in family_files(family, output, "CMakeLists.txt").items():
            write_family(output, {str(path.relative_to(output)): text})
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
    keys = {group.name: group.key for family in tree.values() for group in family.groups}
    assert keys["brute_force"] == ("data_type", "veclen", "idx_type")
    assert keys["metric"] == ("metric_name", "data_type", "metric_squared")
    assert keys["ivf_scan"] == ("capacity", "ascending", "data_type", "acc_type")
    assert keys["post_lambda"] == ("post_name",)


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
    assert assign.link == (("max_registers", 64),)


@pytest.mark.slow
def test_options_go_where_they_are_declared(tmp_path: Path) -> None:
    lists = """
        add_library(lib INTERFACE)
        target_include_directories(lib SYSTEM INTERFACE "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/inc>" none)
        target_compile_options(lib INTERFACE -use_fast_math "SHELL:-Xcompiler -fPIC" -Xfatbin=--compress-all -lineinfo
                               "-I${CMAKE_CURRENT_SOURCE_DIR}/more" -Xptxas -v PRIVATE -DHIDDEN)
        add_compile_definitions(EVERYWHERE)
        target_compile_features(lib INTERFACE cuda_std_20)
        set(CMAKE_CUDA_ARCHITECTURES "90-real;75;80-virtual")
        set(CMAKE_CUDA_FLAGS "-DFLAG=1 --extended-lambda")
    """ + CALL.format("KERNEL_LINK_LIBRARIES lib")
    family = one(tmp_path, lists, **{"inc/a.h": "", "more/a.h": ""})
    assert [path.name for path in family.include] == ["inc", "more"]
    assert family.flags.options == ["-DEVERYWHERE", "-DFLAG=1", "--extended-lambda"]
    assert family.flags.link == {"fast_math": True, "lineinfo": True, "ptxas": ["-v"]}
    assert (family.standard, min(family.architectures)) == (20, 75)
    (text,) = family_files(family, tmp_path / "out", "x").values()
    write_family(tmp_path / "out" / family.name, {"family.toml": text})
    assert load_family(tmp_path / "out" / family.name / "family.toml").link.fast_math


@pytest.mark.slow
def test_options_that_no_declaration_may_have_are_said(tmp_path: Path) -> None:
    lists = """
        add_library(lib INTERFACE)
        target_compile_options(lib INTERFACE -maxrregcount=99999999999 -Xptxas=--output-file=x,-v, -Xptxas)
        set(CMAKE_CUDA_ARCHITECTURES "99999;90a;native")
    """ + CALL.format("KERNEL_LINK_LIBRARIES lib")
    found, notes = families(tmp_path / "lib", lists)
    assert found["lib"].flags.link == {"ptxas": ["-v"]}
    assert not found["lib"].architectures
    assert len(notes) == 3


@pytest.mark.slow
def test_options_of_calls_that_groups_may_not_have_are_the_familys_or_said(tmp_path: Path) -> None:
    fast, other = "KERNEL_EXTRA_COMPILE_OPTIONS --use_fast_math", CALL.replace("k_", "o_").replace("k.cu", "o.cu")
    sources = {"o.cu.in": KERNEL}
    for number, (second, link, count) in enumerate(((fast, {"fast_math": True}, 0), ("", {}, 1))):
        found, notes = families(tmp_path / str(number) / "lib", CALL.format(fast) + other.format(second), **sources)
        assert (found["lib"].flags.link, len(notes)) == (link, count)
        for path, text in family_files(found["lib"], tmp_path / "out", "x").items():
            write_family(path.parent, {path.name: text})
        assert load_family(tmp_path / "out" / "lib" / "family.toml").link.fast_math is bool(link)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["add_library()", "add_library(x ALIAS)", "target_link_libraries()", "set_property(TARGET x PROPERTY)",
     "set_target_properties(x PROPERTIES A)", "set_target_properties()", "add_definitions()",
     "target_compile_options(x)"],
)  # fmt: skip
def test_commands_that_lack_arguments_say_nothing(tmp_path: Path, command: str) -> None:
    assert one(tmp_path, f"{command}\n{CALL.format('')}").groups


@pytest.mark.slow
def test_options_are_split_as_by_a_shell(tmp_path: Path) -> None:
    lists = """
        add_library(lib INTERFACE)
        target_compile_options(lib INTERFACE "SHELL:-Xcompiler '-Wall -Wextra' -DONE" "SHELL:-DOPEN='")
        set(CMAKE_CUDA_FLAGS "-DTWO=\\"2")
    """ + CALL.format("KERNEL_LINK_LIBRARIES lib")
    assert one(tmp_path, lists).flags.options == ["-DONE", "-DOPEN='", '-DTWO="2']


@pytest.mark.slow
@pytest.mark.parametrize("name", ["\U0001f680", "a\x7fb", 'quo"te', "semi;colon", "back\\slash", "new\nline"])
def test_every_name_of_a_directory_can_be_declared(tmp_path: Path, name: str) -> None:
    lists = f"add_library(l INTERFACE)\ntarget_include_directories(l INTERFACE [==[{tmp_path}/lib/{name}]==])\n"
    (tmp_path / "lib" / name).mkdir(parents=True)
    family = one(tmp_path, lists + CALL.format("KERNEL_LINK_LIBRARIES l").replace("m.json", f"[==[{name}/m.json]==]"),
                 **{f"{name}/m.json": '{"x": ["1"]}'})  # fmt: skip
    for path, text in family_files(family, tmp_path / "out", "x").items():
        write_family(path.parent, {path.name: text})
    loaded = load_family(tmp_path / "out" / family.name / "family.toml")
    assert loaded.groups[0].matrix is not None
    assert loaded.groups[0].matrix.parent.name == name
    # A semicolon separates two directories for CMake too.
    assert [path.name for path in loaded.include] == ([name] if ";" not in name else [family.name])


@pytest.mark.slow
def test_a_name_that_toml_cannot_hold_is_an_error(tmp_path: Path) -> None:
    family = one(tmp_path, CALL.format(""))
    family.include = [tmp_path / "\udcff"]
    with raises(ForeignBuildError, "import-invalid-call", "UTF-8"):
        family_files(family, tmp_path / "out", "x")


@pytest.mark.slow
def test_a_matrix_as_text_has_the_rules_of_a_file(tmp_path: Path) -> None:
    call = CALL.format("").replace("MATRIX_JSON_FILE m.json", "MATRIX_JSON_STRING [==[{}]==]")
    for text, code in (("[1, 2", "matrix-not-json"), ("[" * 100_000, "matrix-too-large"),
                       ('{"x": "1", "x": "2"}', "matrix-duplicate-member"),
                       ('{\n"x": [1]}', "matrix-not-a-string"), ("[]", "matrix-empty")):  # fmt: skip
        with raises(MatrixError, code, "k.cu.in"):
            one(tmp_path, call.format(text))


@pytest.mark.slow
def test_a_matrix_of_too_many_combinations_and_a_template_of_no_text_are_errors(tmp_path: Path) -> None:
    digits = "0123456789"
    matrix = json.dumps({name: list(digits) for name in "abcdefgh"})
    with raises(ForeignBuildError, "import-invalid-call", "1,000,000"):
        one(tmp_path, CALL.format(""), **{"m.json": matrix})
    (tmp_path / "lib" / "b.cu.in").write_bytes(b"\xff\xfe")
    with raises(ForeignBuildError, "import-invalid-call", "b.cu.in"):
        one(tmp_path, CALL.format("").replace("k.cu.in", "b.cu.in"))


@pytest.mark.slow
def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    lists = "add_library(lib INTERFACE)\ntarget_link_libraries(lib INTERFACE raft::raft)\n"
    lists += "target_include_directories(lib INTERFACE gone)\ntarget_compile_options(lib INTERFACE -G)\n"
    _, notes = families(tmp_path / "lib", lists + CALL.format("KERNEL_LINK_LIBRARIES lib"))
    assert len(notes) == 3
    assert all(any(name in note for note in notes) for name in ("raft::raft", "gone", "-G"))


@pytest.mark.slow
def test_a_matrix_as_text_and_variables_of_the_caller_become_a_matrix(tmp_path: Path) -> None:
    lists = """set(width 4)
        generate_jit_lto_kernels(f NAME_FORMAT k_@x@ MATRIX_JSON_STRING [[{"x": ["1", "2"]}]] KERNEL_INPUT_FILE w.cu.in)
    """
    family = one(tmp_path, lists, **{"w.cu.in": "__global__ void k@x@(int a) { a = @width@; @nothing@ }"})
    (group,) = family.groups
    assert isinstance(group.matrix, str)
    assert json.loads(group.matrix) == {"_matrix": {"x": ["1", "2"]}, "nothing": "", "width": "4"}


@pytest.mark.slow
def test_one_call_in_two_branches_is_one_group(tmp_path: Path) -> None:
    (group,) = one(tmp_path, CALL.format("") * 2).groups
    assert group.matrix == tmp_path / "lib" / "m.json"


@pytest.mark.slow
def test_calls_with_other_options_or_parameters_are_groups_of_their_own(tmp_path: Path) -> None:
    lists = CALL.format("") + CALL.format("KERNEL_EXTRA_COMPILE_OPTIONS -DA").replace("k_@x@", "l_@x@")
    assert [group.name for group in one(tmp_path, lists).groups] == ["k", "l"]


@pytest.mark.slow
def test_directories_of_one_name_give_families_of_two_names(tmp_path: Path) -> None:
    call = "generate_jit_lto_kernels(f NAME_FORMAT k MATRIX_JSON_FILE m.json KERNEL_INPUT_FILE {}/k.cu.in)\n"
    places = ("a/flat/kernels", "b/flat/kernels", "src")
    files = {f"{place}/k.cu.in": KERNEL for place in places}
    found, _ = families(tmp_path / "lib", "".join(map(call.format, places)), **files)
    assert set(found) == {"flat", "b_flat", "lib"}


@pytest.mark.slow
def test_comments_do_not_make_a_kernel(tmp_path: Path) -> None:
    text = "// __global__\n/* __global__ */ __device__ int f@x@() { return 1; }\n"
    (group,) = one(tmp_path, CALL.format(""), **{"k.cu.in": text}).groups
    assert group.role is Role.DEVICE


@pytest.mark.slow
def test_mistakes_name_the_call(tmp_path: Path) -> None:
    with raises(ForeignBuildError, "import-no-call"):
        families(tmp_path / "none", "project(p)\n")
    with raises(ForeignBuildError, "import-invalid-call", "NAME_FORMAT"):
        families(tmp_path / "format", "generate_jit_lto_kernels(f KERNEL_INPUT_FILE k.cu.in)\n")
    with raises(ForeignBuildError, "import-invalid-call", "k.cu.in"):
        families(tmp_path / "matrix", "generate_jit_lto_kernels(f NAME_FORMAT k KERNEL_INPUT_FILE k.cu.in)\n")
    with raises(ForeignBuildError, "import-missing-file", "gone.cu.in"):
        families(tmp_path / "file", CALL.format("").replace("k.cu.in", "gone.cu.in"))
    with raises(MatrixError, "matrix-empty"):
        families(tmp_path / "empty", CALL.format(""), **{"m.json": "[]"})


def test_a_key_keeps_the_name_where_no_type_or_number_stands_for_it() -> None:
    combinations = [{"name": "a", "expr": "f(x)", "n": "1"}, {"name": "b", "expr": "-x", "n": "1"}]
    assert choose_key(["name"], combinations, {"expr"}) == ("name",)
    assert choose_key([], combinations, {"expr"}) == ("expr",)
    loop = [{"T": t, "abbr": t[0], "k": k} for t in ("float", "int") for k in ("8", "16")]
    assert choose_key(["abbr"], loop, {"T", "k"}) == ("T", "k")
    assert choose_key(["t"], [{"t": "f", "type": "float"}, {"t": "d", "type": "double"}], {"type"}) == ("type",)
