"""Groups with a binary: files of every kind become fragments, and what is wrong with one is said with its place."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jitlto.base.errors import ArchitectureError, BuildError, FamilyError, RenderError, VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import family_files
from jitlto.build.shards import Shard
from jitlto.check.check import check
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.plan.images import select_image
from jitlto.record.fragment import Fragment, ImageKind
from jitlto.runtime.family import KernelFamily
from tests.support.commands import succeeds
from tests.support.compiled import BASE, archive, compiled, relocatable_cubin
from tests.support.errors import raises
from tests.support.families import compiler, tiered, write_family

#: What the file defines, which calls a fragment.
LIBRARY = """extern "C" __device__ float helper(float);
template <class T> __device__ T op(T a) { return a + 1; }
template __device__ float op<float>(float);
template __device__ double op<double>(double);
extern "C" __device__ float twice(float a) { return helper(a) + a; }
"""
FAMILY = {
    "family.toml": """[family]
name = "made"
[entrypoint.kern]
matrix = "one.json"
template = "kern.cu.jinja"
[device.library]
binary = "lib.bin"
interface = "library.cuh"
[device.helper]
matrix = "one.json"
template = "helper.cu.jinja"
interface = "helper.cuh"
""",
    "one.json": "{}",
    "library.cuh": 'template <class T> __device__ T op(T a);\nextern "C" __device__ float twice(float a);\n',
    "helper.cuh": 'extern "C" __device__ float helper(float a);\n',
    "kern.cu.jinja": "__global__ void kern(float* x) { *x = op(twice(*x)); }\n",
    "helper.cu.jinja": 'extern "C" __device__ float helper(float a) { return a; }\n',
}


def ltoir(text: str = LIBRARY) -> bytes:
    return compiled(text).ltoir[BASE]


def ptx(text: str = LIBRARY) -> bytes:
    return compiled(text).ptx.encode()


def cubin(text: str = LIBRARY) -> bytes:
    return relocatable_cubin(text, "sm_90")


def linked() -> bytes:
    kernel = compiled("__global__ void k(float* x) { *x = 1; }").ltoir[BASE]
    return link([LinkInput(InputKind.LTOIR, kernel, "k")], Architecture(90), ["-lto"]).data


def joined(*images: tuple[ImageKind, bytes, Architecture]) -> bytes:
    """A fatbin with several images, as nvcc makes it; nvFatbin's own takes one at a time here."""
    whole = [nvfatbin.wrap(*each) for each in images]
    entries = b"".join(each[16:] for each in whole)
    return whole[0][:8] + len(entries).to_bytes(8, "little") + entries


def fatbin(*kinds: ImageKind) -> bytes:
    made = {ImageKind.LTOIR: (ltoir(), BASE), ImageKind.PTX: (ptx(), BASE), ImageKind.SASS: (cubin(), Architecture(90))}
    return joined(*((kind, *made[kind]) for kind in kinds))


def wrapped(text: str = LIBRARY) -> bytes:
    """Machine code in a compressed fatbin."""
    return nvfatbin.wrap(ImageKind.SASS, cubin(text), Architecture(90))


def make(directory: Path, data: bytes, files: dict[str, str] | None = None) -> KernelFamily:
    path = write_family(directory / "family", FAMILY | (files or {}))
    (path.parent / "lib.bin").write_bytes(data)
    report = build([load_family(path)], directory / "made.fragdb", executor=compiler())
    return KernelFamily("made", FragmentDatabase(report.path))


def library(family: KernelFamily) -> Fragment:
    (found,) = (each for each in family.database.fragments() if each.key.group == "library")
    return found


_FILES: dict[str, tuple[Callable[[], bytes], set[str]]] = {
    "LTO-IR": (ltoir, {"ltoir"}),
    "PTX": (ptx, {"ptx"}),
    "PTX without comments": (lambda: ptx()[ptx().index(b".version") :], {"ptx"}),
    "cubin": (cubin, {"sass"}),
    "fatbin": (lambda: fatbin(*ImageKind), {"ltoir", "ptx"}),
    "fatbin without LTO-IR": (lambda: fatbin(ImageKind.PTX, ImageKind.SASS), {"ptx"}),
}


@pytest.mark.parametrize("kind", _FILES)
def test_a_file_becomes_a_fragment_whose_symbols_are_planned_and_linked(tmp_path: Path, kind: str) -> None:
    data, kinds = _FILES[kind]
    family = make(tmp_path, data())
    made = library(family)
    assert {image.kind for image in made.images} == kinds
    assert {"twice", "_Z2opIfET_S0_"} <= {symbol.name for symbol in made.provides}
    assert [symbol.name for symbol in made.requires] == ["helper"]
    family.database.verify()
    plan = family.plan(arch="sm_90")
    assert [fragment.key.group for fragment in plan.fragments] == ["kern", "helper", "library"]
    assert plan.link().cubin
    (found,) = check(family.database, targets=[Architecture(90)]).families
    assert (found.holds, found.linked) == (True, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "kind"), [("lto_75", "ltoir"), ("lto_90a", "ltoir"), ("sm_90", "sass"), ("compute_75", "ptx")]
)
def test_an_archive_of_objects_is_linked_as_a_whole(tmp_path: Path, code: str, kind: str) -> None:
    one, other = LIBRARY.rpartition('extern "C" __device__ float twice')[::2]
    second = f'extern "C" __device__ float helper(float);\nextern "C" __device__ float twice{other}'
    family = make(tmp_path, archive(tmp_path, one, code, second))
    assert [image.kind for image in library(family).images] == [kind]
    assert {"twice", "_Z2opIfET_S0_"} <= {symbol.name for symbol in library(family).provides}
    assert [symbol.name for symbol in library(family).requires] == ["helper"]
    (found,) = check(family.database, targets=[Architecture(90, "a")]).families
    assert (found.holds, found.linked) == (True, 1)


def test_a_file_of_which_nobody_requires_anything_is_a_fragment_too(tmp_path: Path) -> None:
    """Of a family for others, for example; a check says it of one with kernels."""
    family = make(tmp_path, ltoir(), {"kern.cu.jinja": "__global__ void kern(float* x) { *x = helper(*x); }\n"})
    (found,) = check(family.database).families
    assert [cause.code for cause in found.failures] == ["build-unused-fragment"]
    assert "made/library[]" in found.failures[0].message


def test_a_file_may_call_another(tmp_path: Path) -> None:
    helper = '[device.helper]\nbinary = "helper.bin"\ninterface = "helper.cuh"\n'
    toml = {"family.toml": FAMILY["family.toml"].partition("[device.helper]")[0] + helper}
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "helper.bin").write_bytes(ltoir(FAMILY["helper.cu.jinja"]))
    plan = make(tmp_path, ltoir(), toml).plan(arch="sm_90")
    assert [fragment.key.group for fragment in plan.fragments] == ["kern", "helper", "library"]
    assert plan.calls_left() == []
    (tmp_path / "family" / "helper.bin").write_bytes(ltoir("__device__ int other;"))
    with raises(BuildError, "build-binary-missing", "helper.bin", "made/library[] requires"):
        make(tmp_path, ltoir(), toml)


def test_each_image_of_a_fatbin_is_stored_alone(tmp_path: Path) -> None:
    toml = FAMILY["family.toml"].replace('"made"\n', '"made"\nsass = ["90"]\n', 1)
    family = make(tmp_path, fatbin(*ImageKind), {"family.toml": toml})
    assert [image.kind for image in library(family).images] == ["ltoir", "ptx", "sass"]
    for image in library(family).images:
        (((_, held),),) = nvfatbin.find_fatbins(family.database.read(image))
        assert held == image.architecture
    assert [i.ptx_isa for i in library(family).images_of(ImageKind.PTX)] == [compiled(LIBRARY).module.isa]


def test_render_writes_sources_alone(tmp_path: Path) -> None:
    path = write_family(tmp_path / "family", FAMILY)
    (path.parent / "lib.bin").write_bytes(ptx())
    assert "2 sources" in succeeds("render", path, "-o", tmp_path / "out")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"helper", "kern"}


def test_a_file_changes_the_database_as_a_source_does(tmp_path: Path) -> None:
    one, other = (make(tmp_path, ltoir(LIBRARY.replace("+ 1", f"+ {n}"))).database.digest for n in (1, 2))
    assert one != other


@pytest.mark.slow
def test_two_tiers_take_the_cubin_and_the_ltoir_of_a_file(tmp_path: Path) -> None:
    family = make(tmp_path, fatbin(*ImageKind), tiered(FAMILY, "made"))
    (found,) = check(family.database, targets=[Architecture(90)]).families
    assert (found.holds, found.linked, found.cubins, *found.notes) == (True, 1, 1)


def test_a_file_is_read_by_the_nvjitlink_of_the_build_or_a_newer_one(tmp_path: Path) -> None:
    made, version = library(make(tmp_path, ltoir())), nvjitlink.version()
    assert select_image(made, ImageKind.LTOIR, Architecture(90), version)
    with raises(VersionError, None, "made/library[]"):
        select_image(made, ImageKind.LTOIR, Architecture(90), Version(version.major, version.minor - 1))


def test_a_cubin_links_for_its_architecture_alone(tmp_path: Path) -> None:
    family = make(tmp_path, cubin())
    with raises(ArchitectureError, "link-architecture", "made/library[]", "sm_90", "sm_120", hint="its file"):
        family.plan(arch="sm_120").link()


# --- names by parameters ---

_BY_TYPE = {
    "family.toml": FAMILY["family.toml"].replace('matrix = "one.json"', 'matrix = "types.json"\nkey = ["type"]', 1)
    .replace('binary = "lib.bin"', 'binary = "../{{type}}/lib.{{end}}"\nmatrix = "files.json"\nkey = ["type"]'),
    "types.json": '{"type": ["float", "double"]}',
    "files.json": '[{"type": "float", "end": "a"}, {"type": "double", "end": "b"}]',
    "kern.cu.jinja": "__global__ void kern({{type}}* x) { *x = op(*x) + helper(1); }\n",
}  # fmt: skip


def _write_by_type(directory: Path, changes: dict[str, str]) -> Path:
    path = write_family(directory / "family", FAMILY | _BY_TYPE | changes)
    for name, end in (("float", "a"), ("double", "b")):
        (directory / name).mkdir()
        text = f"template <class T> __device__ T op(T a) {{ return a; }} template __device__ {name} op({name});"
        (directory / name / f"lib.{end}").write_bytes(ltoir(text))
    return path


def test_parameters_of_the_matrix_name_files(tmp_path: Path) -> None:
    family = load_family(_write_by_type(tmp_path, {}))
    whole = build([family], tmp_path / "whole.fragdb", executor=compiler())
    made = KernelFamily("made", FragmentDatabase(whole.path))
    plan = made.plan(type="double", arch="sm_90")
    assert "made/library[type=double]" in [fragment.key.text for fragment in plan.fragments]
    assert plan.calls_left() == []
    files = {tmp_path / "float/lib.a", tmp_path / "double/lib.b"}
    assert files <= {Path(path) for path in family_files([family])}


def test_of_several_files_the_one_that_lacks_a_function_is_named_with_its_value(tmp_path: Path) -> None:
    family = load_family(_write_by_type(tmp_path, {}))
    first, second = tmp_path / "float/lib.a", tmp_path / "double/lib.b"
    data = first.read_bytes(), second.read_bytes()
    second.write_bytes(data[0])
    where = "files.json:1:52 (group library, end=b, type=double)"
    with raises(BuildError, "build-binary-missing", "double/lib.b", "op<double>", where=where):
        build([family], tmp_path / "made.fragdb", executor=compiler())
    first.write_bytes(data[1])
    with raises(BuildError, "build-binary-missing", hint="exchanged"):
        build([family], tmp_path / "made.fragdb", executor=compiler())


@pytest.mark.slow
def test_parts_of_a_build_are_merged_into_what_a_whole_one_is(tmp_path: Path) -> None:
    family = load_family(_write_by_type(tmp_path, {}))
    whole = build([family], tmp_path / "whole.fragdb", executor=compiler())
    parts = []
    for number in (1, 2, 3):
        parts.append(tmp_path / f"{number}.fragdb")
        build([family], parts[-1], executor=compiler(), shard=Shard(number, 3))
    merged = merge_databases(parts, tmp_path / "merged.fragdb")
    assert merged.digest == whole.digest
    assert merged.path.read_bytes() == whole.path.read_bytes()
    (tmp_path / "float/lib.a").write_bytes(ltoir('extern "C" __device__ float other(float a) { return a; }'))
    build([load_family(family.path)], parts[0], executor=compiler(), shard=Shard(1, 3))
    with raises(BuildError, "build-foreign-part"):
        merge_databases(parts, tmp_path / "merged.fragdb")


@pytest.mark.slow
def test_databases_whose_users_require_different_functions_of_a_file_are_merged(tmp_path: Path) -> None:
    shared = FAMILY["family.toml"].replace("made", "common").replace("[entrypoint.kern]", "[device.other]")
    common = FAMILY | {"family.toml": shared, "kern.cu.jinja": "__device__ float other(float a) { return a; }\n"}
    common["family.toml"] = shared.replace('"kern.cu.jinja"', '"kern.cu.jinja"\ninterface = false')
    path = write_family(tmp_path / "common", common)
    (path.parent / "lib.bin").write_bytes(ltoir())
    built = []
    for name, call in (("one", "op(*x)"), ("two", "twice(*x)")):
        toml = f'[family]\nname = "{name}"\n[entrypoint.{name}]\nmatrix = "one.json"\ntemplate = "kern.cu.jinja"\n'
        files = {"family.toml": f'{toml}[use]\ncommon = "../common"\n', "one.json": "{}"}
        files["kern.cu.jinja"] = f"__global__ void kern(float* x) {{ *x = {call}; }}\n"
        user = load_family(write_family(tmp_path / name, files))
        built.append(build([user], tmp_path / f"{name}.fragdb", executor=compiler()).path)
    merged = FragmentDatabase(merge_databases(built, tmp_path / "merged.fragdb").path)
    assert merge_databases(built[::-1], tmp_path / "other.fragdb").digest == merged.digest
    for name in ("one", "two"):
        assert KernelFamily(name, merged).plan(arch="sm_90").link().cubin


# --- what may be wrong ---

OTHER_TYPES = LIBRARY.replace("float op<float>(float)", "int op<int>(int)")
_WRONG: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "text": (lambda: b"#include <cstdio>", "build-binary-unreadable", "no device code"),
    "nothing": (lambda: b"", "build-binary-unreadable", "no device code"),
    "half": (lambda: ltoir()[:400], "build-binary-unreadable", "nvJitLink"),
    "an archive cut off": (lambda: b"!<arch>\n" + 48 * b" " + b"9000      `\n", "build-binary-unreadable", "cut off"),
    "PTX of later releases": (
        lambda: re.sub(rb"\.version \d+", b".version 99", ptx()), "build-binary-unreadable", "PTX 99."
    ),
    "an empty archive": (lambda: b"!<arch>\n", "build-binary-unreadable", "no device code"),
    "PTX cut off": (lambda: ptx()[:-40], "build-binary-unreadable", "PTX"),
    "a fatbin cut off": (lambda: fatbin(ImageKind.LTOIR)[:900], "build-binary-unreadable", "no device code"),
    "a cubin cut off": (lambda: cubin()[:900], "build-binary-unreadable", "cut off"),
    "a program of the host": (lambda: Path(sys.executable).read_bytes(), "build-binary-unreadable", "no device"),
    "a linked cubin": (linked, "build-binary-unreadable", "linked already"),
    "no function": (lambda: ltoir(LIBRARY.replace("twice", "thrice")), "build-binary-missing", "twice"),
    "other types": (lambda: cubin(OTHER_TYPES), "build-binary-missing", "op<float>"),
}  # fmt: skip


@pytest.mark.parametrize("what", _WRONG)
def test_what_is_wrong_with_a_file_is_one_error_with_its_place(tmp_path: Path, what: str) -> None:
    data, code, name = _WRONG[what]
    with raises(BuildError, code, "family/lib.bin", name, where="(group library, the empty combination)"):
        make(tmp_path, data())


def test_a_file_that_is_missing_or_a_directory_is_one_error(tmp_path: Path) -> None:
    path = write_family(tmp_path / "family", FAMILY)
    for reason in ("No such file", "directory"):
        with raises(BuildError, "build-binary-unreadable", "lib.bin", reason, hint="relative to family.toml"):
            build([load_family(path)], tmp_path / "made.fragdb", executor=compiler())
        (path.parent / "lib.bin").mkdir(exist_ok=True)
    (path.parent / "lib.bin").rename(path.parent / "libs.bin")
    with raises(BuildError, "build-binary-unreadable", hint="did you mean 'libs.bin'?"):
        build([load_family(path)], tmp_path / "made.fragdb", executor=compiler())


@pytest.mark.parametrize("form", [ltoir, ptx, cubin, wrapped])
def test_a_function_with_another_layout_is_refused(tmp_path: Path, form: Callable[[str], bytes]) -> None:
    text = LIBRARY.replace("twice(float a) { return", "twice(double a) { return")
    with raises(BuildError, "build-unplanned-kernels", "made/library[]", "(4)(8)", "(4)(4)"):
        make(tmp_path, form(text))


def test_a_fatbin_defines_a_function_alike_for_every_architecture(tmp_path: Path) -> None:
    other = LIBRARY.replace("twice(float a) { return", "twice(double a) { return")
    with raises(BuildError, "build-binary-differs", "twice", "(4)(4) for lto_75", "(4)(8) for lto_80"):
        make(tmp_path, joined((ImageKind.LTOIR, ltoir(), BASE), (ImageKind.LTOIR, ltoir(other), Architecture(80))))
    more = 'extern "C" __device__ float more({} a) {{ return a; }}\n'
    one, two = (ltoir(LIBRARY + more.format(each)) for each in ("float", "double"))
    declared = {"library.cuh": FAMILY["library.cuh"] + 'extern "C" __device__ float more(float a);\n'}
    with raises(BuildError, "build-binary-differs", "more", "(4)(8) for lto_80"):  # which no fragment requires
        make(tmp_path, joined((ImageKind.LTOIR, one, BASE), (ImageKind.LTOIR, two, Architecture(80))), declared)
    lacking = LIBRARY.replace("twice(float", "thrice(float")
    with raises(BuildError, "build-binary-missing", "twice", "for lto_80"):
        make(tmp_path, joined((ImageKind.LTOIR, ltoir(), BASE), (ImageKind.LTOIR, ltoir(lacking), Architecture(80))))


def test_a_file_that_was_not_compiled_to_be_linked_is_told_how(tmp_path: Path) -> None:
    text = ptx("__global__ void other(float* x) { *x = 1; }")
    with raises(BuildError, "build-binary-missing", "op<float>", hint="nvcc -rdc=true"):
        make(tmp_path, text)


def test_names_are_rendered_as_templates_are(tmp_path: Path) -> None:
    toml = _BY_TYPE["family.toml"]
    with raises(FamilyError, "family-same-source", "type=float", "type=double", where="[device.library]"):
        make(tmp_path, b"", _BY_TYPE | {"family.toml": toml.replace("../{{type}}/lib.{{end}}", "lib.bin")})
    with raises(RenderError, "render-undefined", "'typ'", "group library", where="family.toml in [device.library]"):
        make(tmp_path, b"", _BY_TYPE | {"family.toml": toml.replace("{{type}}", "{{typ}}")})


@pytest.mark.parametrize("form", [ltoir, ptx, cubin, wrapped])
@pytest.mark.parametrize(
    "own",
    [
        "__global__ void kern(float* x) { *x = 7; }",
        "__device__ int counter = 9;",
        'extern "C" __device__ __noinline__ float inner(float a) { return a; }',
    ],
)
def test_a_file_that_defines_what_another_fragment_defines_is_refused(
    tmp_path: Path, form: Callable[[str], bytes], own: str
) -> None:
    """NvJitLink takes one of them, and says so on the standard error output alone."""
    kern = """__device__ int counter = 5;
extern "C" __device__ __noinline__ float inner(float a) { return a + counter; }
__global__ void kern(float* x) { *x = op(twice(inner(*x))); }
"""
    with raises(
        BuildError, "build-unplanned-kernels", "made/kern[] and by made/library[]", "plan-duplicate-definition"
    ):
        make(tmp_path, form(LIBRARY + own), {"kern.cu.jinja": kern})


_TWO = {
    "family.toml": FAMILY["family.toml"].replace(
        'matrix = "one.json"\ntemplate = "helper.cu.jinja"', 'binary = "helper.bin"'
    )
}
_INNER = "inline __device__ __noinline__ float inner(float a) { return a * 2; }\n"


def make_two(directory: Path, form: Callable[[str], bytes], own: str, others: str) -> KernelFamily:
    """A family with two files, with some text of their own."""
    if form is wrapped and nvjitlink.version().major < 13:
        pytest.skip("nvJitLink 12 does not tell the symbols of machine code in a fatbin that refers to another file")
    (directory / "family").mkdir()
    helper = others + FAMILY["helper.cu.jinja"].replace("return a", "return inner(a)")
    (directory / "family" / "helper.bin").write_bytes(form(helper))
    return make(directory, form(own + LIBRARY.replace("helper(a) +", "inner(helper(a)) +")), _TWO)


@pytest.mark.parametrize("form", [ltoir, ptx, cubin, wrapped])
def test_two_files_that_define_one_function_are_refused(tmp_path: Path, form: Callable[[str], bytes]) -> None:
    strong = _INNER.replace("inline ", "")
    with raises(BuildError, "build-unplanned-kernels", "made/helper[]", "made/library[]", "plan-duplicate-definition"):
        make_two(tmp_path, form, strong, strong)


@pytest.mark.parametrize("form", [ltoir, ptx])
def test_inline_functions_of_files_are_compared(tmp_path: Path, form: Callable[[str], bytes]) -> None:
    (found,) = check(make_two(tmp_path, form, _INNER, _INNER.replace("* 2", "* 3")).database).families
    assert [cause.code for cause in found.failures] == ["link-conflicting-definitions"]
    shutil.rmtree(tmp_path / "family")
    (found,) = check(make_two(tmp_path, form, _INNER, _INNER).database).families
    assert found.holds


@pytest.mark.parametrize("form", [cubin, wrapped])
def test_inline_functions_of_machine_code_are_said_not_to_be_compared(
    tmp_path: Path, form: Callable[[str], bytes]
) -> None:
    family = make_two(tmp_path, form, _INNER, _INNER.replace("* 2", "* 3"))
    (found,) = check(family.database).families
    assert found.holds
    assert [note.code for note in found.notes] == ["build-uncompared"]
    assert "agree" not in succeeds("check", family.database.path)


# --- for callers ---


@pytest.mark.parametrize("form", [ltoir, ptx, cubin, wrapped])
def test_callers_may_use_what_no_fragment_requires_of_a_file(tmp_path: Path, form: Callable[[str], bytes]) -> None:
    toml = (
        FAMILY["family.toml"].partition("[device.helper]")[0]
        + '[device.helper]\nsupplied = true\ninterface = "helper.cuh"\n'
    )
    kern = {"kern.cu.jinja": "__global__ void kern(float* x) { *x = helper(*x); }\n", "family.toml": toml}
    text = LIBRARY.replace("helper(a)", "a").replace('extern "C" __device__ float helper(float);', "")
    family = make(tmp_path, form(text), kern)
    source = 'extern "C" __device__ float helper(float a) { return twice(a); }'
    plan = family.planner().add_source(source).plan(arch="sm_90")
    assert "made/library[]" in [str(fragment.key) for fragment in plan.fragments]
    assert plan.link().cubin


def test_a_file_with_one_function_is_a_callback(tmp_path: Path) -> None:
    family = make(tmp_path, ltoir("__device__ float helper(float a) { return a; }"), _CALLBACK)
    name, data = family.callback("library", arch="sm_90")
    assert name == "helper"
    assert nvfatbin.is_whole(data)


_CALLBACK = {
    "family.toml": """[family]
name = "made"
[device.library]
binary = "lib.bin"
interface = "helper.cuh"
"""
}
