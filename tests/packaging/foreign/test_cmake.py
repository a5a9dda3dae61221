"""Reading of CMake projects: every form of call, without a compiler or dependencies; no program is run."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jitlto.base.errors import ForeignBuildError, ToolchainError
from jitlto.cuda import toolkit
from jitlto.packaging.foreign import cmake
from jitlto.packaging.foreign.cmake import RecordedCall, find_cmake, read_project
from tests.support.errors import raises


def read(directory: Path, text: str, **definitions: str) -> list[RecordedCall]:
    (directory / "CMakeLists.txt").write_text(text, "utf-8")
    return list(read_project(directory / "CMakeLists.txt", definitions, directory).calls)


def calls(directory: Path, text: str, **definitions: str) -> list[Mapping[str, str]]:
    return [each.arguments for each in read(directory, text, **definitions)]


def formats(directory: Path, text: str, **definitions: str) -> list[str]:
    return [call["NAME_FORMAT"] for call in calls(directory, text, **definitions)]


@pytest.mark.slow
def test_arguments_are_expanded_except_generator_expressions(tmp_path: Path) -> None:
    text = """
        set(dir "${CMAKE_CURRENT_SOURCE_DIR}/src")
        list(APPEND libraries a $<BUILD_INTERFACE:b> c)
        generate_jit_lto_kernels(files NAME_FORMAT "k_@x@" MATRIX_JSON_FILE "${dir}/m.json"
          KERNEL_INPUT_FILE ${dir}/k.cu.in EMBEDDED_INPUT_FILE e.cpp.in OUTPUT_DIRECTORY out
          KERNEL_LINK_LIBRARIES ${libraries})
        generate_jit_lto_kernels(files FRAGMENT_TAG_FORMAT "tag<@x@>" FRAGMENT_TAG_HEADER_FILES "<a.hpp>" "<b.hpp>"
          MATRIX_JSON_STRING [==[{"x": ["1;2", "]"]}]==] NAME_FORMAT j KERNEL_INPUT_FILE k.cu.in)
    """
    one, two = calls(tmp_path, text)
    assert one["MATRIX_JSON_FILE"] == f"{tmp_path}/src/m.json"
    assert one["KERNEL_INPUT_FILE"] == f"{tmp_path}/src/k.cu.in"
    assert two["MATRIX_JSON_STRING"] == '{"x": ["1;2", "]"]}'
    assert "EMBEDDED_INPUT_FILE" not in one


@pytest.mark.slow
def test_loops_functions_and_conditions_are_followed(tmp_path: Path) -> None:
    text = """
        option(MORE "" OFF)
        macro(add name)
          generate_jit_lto_kernels(files NAME_FORMAT "${name}" KERNEL_INPUT_FILE k.cu.in)
        endmacro()
        foreach(type IN ITEMS f h)
          foreach(width RANGE 1 2)
            add("${type}${width}")
          endforeach()
        endforeach()
        if(MORE)
          add(more)
        endif()
    """
    assert formats(tmp_path, text) == ["f1", "f2", "h1", "h2"]
    assert formats(tmp_path, text, MORE="ON")[-1] == "more"


@pytest.mark.slow
def test_subdirectories_and_included_files_have_their_own_directories(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "CMakeLists.txt").write_text(
        "generate_jit_lto_kernels(f NAME_FORMAT ${up} KERNEL_INPUT_FILE k.cu.in)\nset(down yes PARENT_SCOPE)\n"
    )
    (tmp_path / "more.cmake").write_text("generate_jit_lto_kernels(f NAME_FORMAT ${down} KERNEL_INPUT_FILE k.cu.in)\n")
    found = read(tmp_path, "project(p LANGUAGES CUDA)\nset(up no)\nadd_subdirectory(sub)\ninclude(more.cmake)\n")
    assert [(each.directory, each.arguments["NAME_FORMAT"]) for each in found] == [
        (tmp_path / "sub", "no"),
        (tmp_path, "yes"),
    ]


@pytest.mark.slow
def test_what_fetches_dependencies_and_other_generators_do_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "config.cmake").write_text("""
        include(FetchContent)
        FetchContent_Declare(rapids-cmake GIT_REPOSITORY https://example.invalid/x.git)
        FetchContent_MakeAvailable(rapids-cmake)
        set_property(CACHE LEVEL PROPERTY STRINGS A B)
    """)
    (tmp_path / "lib" / "cmake").mkdir(parents=True)
    (tmp_path / "lib" / "cmake" / "other.cmake").write_text("""
        function(compute_matrix_product output)
          execute_process(COMMAND python OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
          set(${output} "${text}" PARENT_SCOPE)
        endfunction()
        function(generate_other_kernels)
          compute_matrix_product(product MATRIX_JSON_FILE ${ARGV0})
          string(JSON length LENGTH "${product}")
          math(EXPR last "${length} - 1")
          foreach(i RANGE ${last})
            add_custom_command(OUTPUT ${i})
          endforeach()
        endfunction()
    """)
    text = """
        include(../config.cmake)
        include(CMakeDependentOption)
        option(LIBRARY "" ON)
        cmake_dependent_option(KERNELS "" ON LIBRARY OFF)
        include(cmake/other.cmake)
        generate_other_kernels(x.json)
        if(KERNELS)
          generate_jit_lto_kernels(f NAME_FORMAT k KERNEL_INPUT_FILE k.cu.in)
        endif()
    """
    assert formats(tmp_path / "lib", text) == ["k"]
    assert formats(tmp_path / "lib", text, LIBRARY="OFF") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "elements"),
    [
        ("$<BUILD_INTERFACE:a> $<INSTALL_INTERFACE:b>", ["a"]),
        ('"$<$<COMPILE_LANGUAGE:CUDA>:-a;-b>" $<$<COMPILE_LANGUAGE:CXX>:-c>', ["-a", "-b"]),
        ("$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--x=1,2> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wall>", ["--x=1,2"]),
        ("$<IF:$<STREQUAL:a,b>,one,two>", ["two"]),
        ("$<$<TARGET_EXISTS:lib>:-DLIB> $<TARGET_NAME_IF_EXISTS:other>", ["-DLIB"]),
        ("-D$<UPPER_CASE:name>$<COMMA>x", ["-DNAME,x"]),
    ],
)
def test_generator_expressions_are_those_of_cuda_sources_of_a_release(
    tmp_path: Path, options: str, elements: list[str]
) -> None:
    text = f"add_library(lib STATIC x.cu)\ntarget_compile_options(lib PUBLIC {options} PRIVATE no)\n"
    call = "generate_jit_lto_kernels(f NAME_FORMAT k KERNEL_INPUT_FILE k KERNEL_LINK_LIBRARIES lib)"
    (found,) = read(tmp_path, text + call)
    assert found.options == elements


@pytest.mark.slow
@pytest.mark.parametrize("command", ["execute_process(COMMAND", "__execute_process(COMMAND",
                                     "exec_program(", ])  # fmt: skip
def test_no_way_to_name_the_command_runs_a_program(tmp_path: Path, command: str) -> None:
    run = f'{command} ${{CMAKE_COMMAND}} -E touch "${{CMAKE_CURRENT_SOURCE_DIR}}/run")\n'
    read(tmp_path, f"cmake_policy(VERSION 3.20)\n{run}")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_project_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cmake, "_LONGEST_RUN", 0.05)
    with raises(ForeignBuildError, "import-cmake", "seconds", where="CMakeLists.txt"):
        read(tmp_path, "while(TRUE)\nendwhile()\n")


@pytest.mark.slow
def test_what_cmake_reports_is_the_error(tmp_path: Path) -> None:
    with raises(ForeignBuildError, "import-cmake", "no compiler for you", where="CMakeLists.txt"):
        read(tmp_path, 'message(FATAL_ERROR "no compiler for you")\n')
    with raises(ForeignBuildError, "import-cmake", where="CMakeLists.txt"):
        read(tmp_path, "if(\n")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "content"), [("7", "x"), ("name", ""), ("7", "-41 -4\n")])
def test_a_project_that_writes_to_the_record_is_an_error(tmp_path: Path, name: str, content: str) -> None:
    with raises(ForeignBuildError, "import-cmake", where="CMakeLists.txt"):
        read(tmp_path, f'file(WRITE "${{JITLTO_RECORD}}/{name}" "{content}")\n')


def test_the_wheel_of_cmake_stands_in_for_one_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cmake", reason="cmake is not installed; the extra cmake brings it")
    monkeypatch.setenv("PATH", "")
    assert Path(find_cmake()).parent == Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", "/none/python")
    with raises(ToolchainError, "toolchain-missing", hint="jitlto[cmake]"):
        find_cmake()


def test_a_file_that_does_not_exist_is_named_without_asking_cmake(tmp_path: Path) -> None:
    with raises(ForeignBuildError, "import-missing-file", where="none.txt"):
        read_project(tmp_path / "none.txt", {}, tmp_path)


CONFIG = """
include(CMakeFindDependencyMacro)
find_dependency(Base 1.0)
include("${CMAKE_CURRENT_LIST_DIR}/dep-targets.cmake")
"""
TARGETS = """
get_filename_component(_IMPORT_PREFIX "${CMAKE_CURRENT_LIST_FILE}" PATH)
add_library(dep::dep SHARED IMPORTED)
set_target_properties(dep::dep PROPERTIES
  INTERFACE_COMPILE_DEFINITIONS "DEP=1;$<$<COMPILE_LANGUAGE:CUDA>:DEP_CUDA>"
  INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--extended-lambda>;$<$<COMPILE_LANGUAGE:CXX>:-Wall>"
  INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include"
  INTERFACE_LINK_LIBRARIES "base::base;$<$<CONFIG:Debug>:none::none>;\\$<LINK_ONLY:host::host>")
set_property(TARGET dep::dep APPEND PROPERTY IMPORTED_CONFIGURATIONS RELEASE)
set_target_properties(dep::dep PROPERTIES IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/libdep.so")
get_target_property(found dep::dep INTERFACE_INCLUDE_DIRECTORIES)
if(NOT found)
  message(FATAL_ERROR "a property that was set is not there")
endif()
"""
BASE = """
if(NOT TARGET base::base)
  add_library(base::base INTERFACE IMPORTED)
  target_include_directories(base::base INTERFACE "${CMAKE_CURRENT_LIST_DIR}/include")
  set_property(TARGET base::base PROPERTY INTERFACE_COMPILE_DEFINITIONS BASE=$<BOOL:yes>)
endif()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["prefix", "dir", "wheel", "rapids"])
def test_what_an_installed_package_declares_reaches_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for name, text in {"dep/dep-config.cmake": CONFIG, "dep/dep-targets.cmake": TARGETS, "Base/BaseConfig.cmake": BASE,
                       "Base/BaseConfigVersion.cmake": "set(PACKAGE_VERSION_COMPATIBLE TRUE)"}.items():  # fmt: skip
        path = tmp_path / "installed" / "libdep" / "lib64" / "cmake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    packages = path.parent.parent
    how = {"prefix": {"CMAKE_PREFIX_PATH": f"{packages.parent.parent}"},
           "dir": {"dep_DIR": f"{packages / 'dep'}", "Base_DIR": f"{packages / 'Base'}"}}.get(way, {})  # fmt: skip
    if not how:
        monkeypatch.syspath_prepend(tmp_path / "installed")
    find = "rapids_cpm_find(dep 1.0 GLOBAL_TARGETS dep::dep)" if way == "rapids" else "find_package(dep REQUIRED)"
    text = f"""
        {find}
        add_library(needs INTERFACE)
        target_link_libraries(needs INTERFACE dep::dep)
        generate_jit_lto_kernels(f NAME_FORMAT k KERNEL_INPUT_FILE k.cu.in KERNEL_LINK_LIBRARIES needs)
    """
    (found,) = read(tmp_path, text, **how)
    assert found.include == [f"{packages}/dep/include", f"{packages}/Base/include"]
    assert (found.definitions, found.options) == (["DEP=1", "DEP_CUDA", "BASE=1"], ["--extended-lambda"])


@pytest.mark.slow
def test_the_compiler_is_the_one_that_will_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        project(p LANGUAGES CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(CMAKE_CUDA_ARCHITECTURES 70 80)
        if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
          list(REMOVE_ITEM CMAKE_CUDA_ARCHITECTURES 70)
        endif()
        add_library(lib INTERFACE)
        target_compile_options(lib INTERFACE $<$<CUDA_COMPILER_ID:NVIDIA>:-DV=$<CUDA_COMPILER_VERSION>>)
        generate_jit_lto_kernels(f NAME_FORMAT "${CUDAToolkit_VERSION} ${CUDAToolkit_VERSION_MAJOR}"
          KERNEL_INPUT_FILE k.cu.in KERNEL_LINK_LIBRARIES lib)
    """
    nvcc = tmp_path / "nvcc"
    nvcc.touch(0o755)

    def told(**definitions: str) -> tuple[str, str, list[str]]:
        (found,) = read(tmp_path, text, **definitions)
        return found.arguments["NAME_FORMAT"], found.arguments["CMAKE_CUDA_ARCHITECTURES"], list(found.options)

    monkeypatch.setattr(toolkit, "find_binary", lambda _: str(nvcc))
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    assert told() == ("12.4.131 12", "70;80", ["-DV=12.4.131"])
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    assert told() == ("13.0.88 13", "80", ["-DV=13.0.88"])
    assert told(CMAKE_CUDA_COMPILER_VERSION="12.9")[1] == "70;80"
    monkeypatch.setattr(toolkit, "find_binary", lambda _: None)
    version = toolkit.nvrtc_version()
    assert read_project(tmp_path / "CMakeLists.txt", {}, tmp_path).toolchain == "nvrtc"
    assert told() == (f"{version} {version.major}", "80" if version.major > 12 else "70;80", [f"-DV={version}"])


@pytest.mark.slow
def test_what_is_left_out_is_listed_once_with_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "dep-config.cmake").write_text("include(CMakeFindDependencyMacro)\nfind_dependency(absent)\n")
    (tmp_path / "sub dir").mkdir()
    (tmp_path / "sub dir" / "CMakeLists.txt").write_text("rapids_cuda_patch_toolkit()\nrapids_cuda_patch_toolkit()\n")
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text("""
        include(rapids-cmake)
        include(GNUInstallDirs)
        include(none.cmake OPTIONAL)
        find_package(CUDAToolkit REQUIRED)
        add_subdirectory("sub dir")
        find_package(dep)
        macro(find)
          find_package(missing 1.0 REQUIRED)
        endmacro()
        find()
        rapids_cuda_patch_toolkit()
        add_subdirectory(gone)
        message(WARNING "of the project")
    """)
    project = read_project(lists, {"dep_DIR": str(tmp_path)}, tmp_path)
    assert project.calls == []
    assert [tuple(note.removeprefix(f"{tmp_path}/").split(": ")[:2]) for note in project.left_out] == [
        ("CMakeLists.txt:2", "no file rapids-cmake"),
        ("sub dir/CMakeLists.txt:1", "unknown command rapids_cuda_patch_toolkit"),
        ("dep-config.cmake:2", "package absent is not installed"),
        ("CMakeLists.txt:9", "package missing is not installed"),
        ("CMakeLists.txt:13", "no directory gone"),
    ]


@pytest.mark.slow
def test_a_package_that_cannot_be_read_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "dep-config.cmake").write_text('find_path(header gone.h REQUIRED NO_DEFAULT_PATH PATHS "/none")\n')
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text("find_package(dep REQUIRED)\n")
    definitions = {"dep_DIR": str(tmp_path)}
    with raises(ForeignBuildError, "import-cmake", "dep-config.cmake:1", hint="CMAKE_DISABLE_FIND_PACKAGE_"):
        read_project(lists, definitions, tmp_path)
    (note,) = read_project(lists, definitions | {"CMAKE_DISABLE_FIND_PACKAGE_dep": "ON"}, tmp_path).left_out
    assert note.startswith(f"{lists}:1: package dep")
