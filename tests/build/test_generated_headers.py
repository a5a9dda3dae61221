"""Headers that are rendered for each combination: what sources read, interfaces may depend on, and callers get."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from jitlto.base import config
from jitlto.base.errors import (
    AmbiguousConfigurationError,
    BuildError,
    CompileError,
    FamilyError,
    InterfaceMismatchError,
    ProjectError,
    RenderError,
)
from jitlto.build.cache.cache import open_cache
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import BuildReport, build
from jitlto.build.rendered_families import RenderedFamilies, family_files, render
from jitlto.build.shards import Shard
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import FamilyDeclaration, load_family
from jitlto.families.templates import RenderedSource
from jitlto.packaging import project
from jitlto.runtime.family import KernelFamily
from tests.support.commands import succeeds
from tests.support.compiled import BASE, compiled
from tests.support.errors import raises
from tests.support.families import SHARED, compiler, write_family

needs_nvcc = pytest.mark.skipif(toolkit.find_binary("nvcc") is None, reason="needs nvcc")
both_compilers = pytest.mark.parametrize("toolchain", ["nvrtc", pytest.param("nvcc", marks=needs_nvcc)])

#: A kernel whose header is rendered for each type and length, and another that has no length and reads no header.
CONFIGURED = {
    "family.toml": """
[family]
name = "conf"
toolchain = "nvrtc"
templates = ["parts"]
headers = {"config.inc" = "config.inc.jinja"}

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type", "length"]

[entrypoint.plain]
matrix = "plain.json"
template = "plain.cu.jinja"
key = ["data_type"]
""",
    "kern.json": '{"data_type": ["float", "double"], "length": ["2", "4"]}',
    "plain.json": '{"data_type": ["float", "double"]}',
    "parts/guard.jinja": "#pragma once\n",
    "config.inc.jinja": "{% include 'guard.jinja' %}\nusing number = {{data_type}};\n"
    "constexpr int length = {{length}};\n",
    "body.cuh": '#pragma once\n#include "config.inc"\nstruct body { number values[length]; };\n',
    "kern.cu.jinja": '#include "body.cuh"\n__global__ void kern(number* x, body b) { *x = b.values[length - 1]; }\n',
    "plain.cu.jinja": "template <class T> __global__ void plain(T* x) { *x = 1; }\n"
    "template __global__ void plain<{{data_type}}>({{data_type}}*);\n",
}

#: A group and a function of callers whose types, as C knows them, are those of the key.
UDF = {
    "family.toml": """
[family]
name = "udf"
toolchain = "nvrtc"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["type"]

[device.scale]
matrix = "scale.json"
template = "scale.cu.jinja"
key = ["type", "factor"]
interface = "scale.cuh.jinja"

[device.user]
supplied = true
key = ["type"]
interface = "user.cuh.jinja"
""",
    "kern.json": '{"type": ["float", "double"]}',
    "scale.json": '{"type": ["float", "double"], "factor": ["2", "3"]}',
    "scale.cuh.jinja": '#pragma once\n{# of C #}\nextern "C" __device__ int scale({{type}}*, {{type}});\n',
    "user.cuh.jinja": '#pragma once\nextern "C" __device__ {{type}} user({{type}});\n',
    "kern.cu.jinja": "template <class T> __global__ void kern(T* x) { *x = scale(x, *x) + user(*x); }\n"
    "template __global__ void kern<{{type}}>({{type}}*);\n",
    "scale.cu.jinja": 'extern "C" __device__ int scale({{type}}* x, {{type}} y) { return *x + y * {{factor}}; }\n',
}


PYPROJECT = """
[project]
name = "package"
[project.entry-points."jitlto.fragments"]
udf = "package.fragments"
[tool.jitlto]
database = "package/fragments.fragdb"
families = ["."]
"""


def declared(directory: Path, files: dict[str, str], **changes: str) -> FamilyDeclaration:
    changed = {name.replace("__", "."): text for name, text in changes.items()}
    return load_family(write_family(directory, files | changed))


def made(directory: Path, files: dict[str, str], **changes: str) -> BuildReport:
    return build([declared(directory, files, **changes)], directory / "made.fragdb", executor=compiler())


def opened(directory: Path, files: dict[str, str], **changes: str) -> KernelFamily:
    report = made(directory, files, **changes)
    return KernelFamily(report.fragments[0].key.family, FragmentDatabase(report.path))


def rendered(family: FamilyDeclaration) -> list[RenderedSource]:
    return list(render(family))


def by(toolchain: str, files: dict[str, str]) -> dict[str, str]:
    return files | {"family.toml": files["family.toml"].replace('"nvrtc"', f'"{toolchain}"')}


def user(type_: str) -> str:
    return f'extern "C" __device__ {type_} user({type_} x) {{ return x + 1; }}'


# --- of sources ---


@pytest.mark.slow
@both_compilers
def test_each_source_reads_the_header_of_its_combination(tmp_path: Path, toolchain: str) -> None:
    report = made(tmp_path, by(toolchain, CONFIGURED))
    sizes = {f.key.parameters: f.signature[1].size for f in report.fragments if f.key.group == "kern"}
    assert {tuple(dict(values).values()): size for values, size in sizes.items()} == {
        ("float", "2"): 8, ("float", "4"): 16, ("double", "2"): 16, ("double", "4"): 32,
    }  # fmt: skip
    assert len(report.fragments) == 6


@pytest.mark.slow
@both_compilers
def test_a_change_of_a_header_compiles_what_reads_it(tmp_path: Path, toolchain: str) -> None:
    files, cache = by(toolchain, CONFIGURED), open_cache(tmp_path / "cache")

    def count(**changes: str) -> int:
        family = declared(tmp_path, files | {"parts/guard.jinja": changes.pop("guard", "#pragma once\n")}, **changes)
        return build([family], tmp_path / "made.fragdb", executor=compiler(), cache=cache).compiled

    assert [count(), count()] == [6, 0]
    assert count(config__inc__jinja=CONFIGURED["config.inc.jinja"].replace("= {{l", "= 0 + {{l")) == 4
    assert count(guard="#pragma once\n#define GUARDED\n") == 4
    only_doubles = CONFIGURED["config.inc.jinja"] + "{% if data_type == 'double' %}struct more;{% endif %}"
    assert count(config__inc__jinja=only_doubles) == 2


@pytest.mark.slow
@both_compilers
def test_a_generated_header_is_a_file_of_the_first_include_directory(tmp_path: Path, toolchain: str) -> None:
    """Beside others there, and they beside it: with both compilers the same ones are read."""
    toml = CONFIGURED["family.toml"].replace('"config.inc" =', '"in/config.inc" =')
    files = by(toolchain, CONFIGURED | {"family.toml": toml}) | {
        "body.cuh": '#include "in/body.cuh"\n',
        "in/body.cuh": CONFIGURED["body.cuh"],
        "in/more.cuh": "#pragma once\nconstexpr int more = 1;\n",
        "more.cuh": "#error another\n",
        "kern.json": '{"data_type": "float", "length": "2"}',
        "plain.json": '{"data_type": "float"}',
        "config.inc.jinja": CONFIGURED["config.inc.jinja"] + '#include "more.cuh"\nstatic_assert(more == 1);\n',
    }
    assert made(tmp_path, files).fragments[0].signature[1].size == 8


def test_sources_that_differ_by_a_generated_header_alone_are_not_the_same(tmp_path: Path) -> None:
    assert len(RenderedFamilies([declared(tmp_path, CONFIGURED)]).requests) == 6
    names = ["length=2", "length=4", "config.inc", "depends on length"]
    constant = CONFIGURED["config.inc.jinja"].replace("{{length}}", "3 /* {{length}} */")
    with raises(FamilyError, "family-same-source", *names, where="family.toml in [entrypoint.kern]"):
        RenderedFamilies([declared(tmp_path, CONFIGURED, config__inc__jinja=constant)]).requests  # noqa: B018
    # A header that a source does not read makes no difference to it.
    kernel = "template __global__ void kern<{{data_type}}>();"
    with raises(FamilyError, "family-same-source", "depends on length"):
        RenderedFamilies([declared(tmp_path, CONFIGURED, kern__cu__jinja=kernel)]).requests  # noqa: B018


def test_errors_name_the_template_of_a_header_and_its_line(tmp_path: Path) -> None:
    undefined = CONFIGURED["config.inc.jinja"] + "\n{{ lenght }}"
    with raises(
        RenderError, "render-undefined", "lenght", "group kern", "length=2", where="config.inc.jinja:5"
    ) as told:
        made(tmp_path, CONFIGURED, config__inc__jinja=undefined)
    assert "interface" not in str(told.value.hint), "no interface includes it"
    with raises(RenderError, "render-undefined", "'length'", "group plain", where="config.inc.jinja:3"):
        made(tmp_path, CONFIGURED, plain__cu__jinja='#include "config.inc"\n')
    loop = CONFIGURED["config.inc.jinja"] + "{% for n in range(3) %}\n\n{% endfor %}{# #}\nno_type {{length}};\n"
    with raises(CompileError, "compile", f"{tmp_path}/config.inc.jinja:7: ", "no_type"):
        made(tmp_path, CONFIGURED, config__inc__jinja=loop)


def test_an_error_in_a_header_whose_text_is_a_number_has_the_compilers_line(tmp_path: Path) -> None:
    counted = CONFIGURED["config.inc.jinja"] + "{% set n %}4\n{% endset %}constexpr int more = {{n|int}} + no_name;\n"
    with raises(CompileError, "compile", "config.inc.jinja: ", "config.inc(5)", "no_name"):
        made(tmp_path, CONFIGURED, config__inc__jinja=counted)


@pytest.mark.parametrize(
    ("headers", "code", "name"),
    [
        ('"config.inc" = "none.jinja"', "family-missing-file", "none.jinja"),
        ('"../config.inc" = "config.inc.jinja"', "family-header", "../config.inc"),
        ('"sub/../config.inc" = "config.inc.jinja"', "family-header", "'config.inc'"),
        ('"body.cuh" = "config.inc.jinja"', "family-header", "body.cuh"),
        ('"config.inc" = 3', "family-invalid-value", "headers"),
    ],
)
def test_what_is_declared_is_checked(tmp_path: Path, headers: str, code: str, name: str) -> None:
    toml = CONFIGURED["family.toml"].replace('"config.inc" = "config.inc.jinja"', headers)
    with raises(FamilyError, code, name, where="family.toml in [family]"):
        declared(tmp_path, CONFIGURED, family__toml=toml)


def test_templates_of_headers_are_sources_of_the_family(tmp_path: Path) -> None:
    toml = CONFIGURED["family.toml"].replace('"config.inc.jinja"', '"../far/config.inc.jinja"')
    files = {f"family/{name}": text for name, text in CONFIGURED.items()} | {"family/family.toml": toml}
    write_family(tmp_path, files | {"far/config.inc.jinja": CONFIGURED["config.inc.jinja"]})
    names = {path.resolve() for path in family_files([load_family(tmp_path / "family" / "family.toml")])}
    assert {tmp_path / "far" / "config.inc.jinja", tmp_path / "family" / "parts" / "guard.jinja"} <= names


def test_render_writes_the_headers_of_each_source_beside_it(tmp_path: Path) -> None:
    write_family(tmp_path / "conf", CONFIGURED)
    succeeds("render", tmp_path / "conf", "-o", tmp_path / "out")
    written = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.inc"))
    assert len(written) == 4
    assert written[0] == "kern/data_type-double+length-2/config.inc"
    assert "number = double" in (tmp_path / "out" / written[0]).read_text()


@pytest.mark.slow
def test_placeholders_of_cmake_and_line_information(tmp_path: Path) -> None:
    toml = CONFIGURED["family.toml"].replace('name = "conf"', 'name = "conf"\nsyntax = "cmake"').replace(
        '"config.inc.jinja"', '"config.inc.in"'
    )  # fmt: skip
    files = {name: text.replace("{{", "@").replace("}}", "@") for name, text in CONFIGURED.items()}
    header = "#pragma once\nusing number = @data_type@;\nconstexpr int length = @length@;\n"
    write_family(tmp_path, files | {"family.toml": toml, "config.inc.in": header})
    succeeds("build", tmp_path, "-o", tmp_path / "made.fragdb", "--lineinfo", "--quiet", "--jobs", "1")
    assert len([*tmp_path.rglob("config.inc")]) == 1


@pytest.mark.slow
def test_a_package_takes_what_ci_has_built_of_sources_that_differ_by_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = made(tmp_path, CONFIGURED)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace("udf", "conf"))
    monkeypatch.setenv("JITLTO_PREBUILT", str(built.path))
    config.current.cache_clear()
    try:
        assert project.build_package(tmp_path, tmp_path / "taken.fragdb").digest == built.digest
    finally:
        config.current.cache_clear()


# --- of interfaces ---


@pytest.mark.slow
@both_compilers
def test_an_interface_that_is_a_template_is_checked_for_each_value(tmp_path: Path, toolchain: str) -> None:
    files = by(toolchain, UDF)
    family = opened(tmp_path, files)
    for type_ in ("float", "double"):
        plan = family.planner(type=type_, factor="3").add_source(user(type_)).plan(arch="sm_90")
        assert toolchain == "nvcc" or plan.link().cubin  # nvJitLink may be older than nvcc
    wrong = UDF["scale.cu.jinja"].replace("{{type}} y", "{{'float' if factor == '3' else type}} y")
    with raises(CompileError, "compile", "factor=3, type=double", "scale.cuh.jinja:3: declares"):
        made(tmp_path, files, scale__cu__jinja=wrong)


@pytest.fixture(scope="module")
def udf(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return opened(tmp_path_factory.mktemp("udf"), UDF)


def test_callers_get_the_interface_of_their_configuration(udf: KernelFamily) -> None:
    planner = udf.planner(type="double", factor="2").add_source(user("float"))
    with raises(CompileError, "compile", 'user.cuh:2: declares `extern "C" __device__ double user(double);`'):
        planner.plan(arch="sm_90")
    with raises(AmbiguousConfigurationError, "plan-ambiguous", "type"):
        udf.planner(factor="2").add_source(user("float")).plan(arch="sm_90")
    pinned = udf.planner(factor="2").add("udf/kern[type=double]").add_source(user("double"))
    assert pinned.plan(arch="sm_90").link().cubin


@pytest.mark.slow
@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_so_do_python_functions(udf: KernelFamily) -> None:
    for type_ in ("float", "double"):
        planner = udf.planner(type=type_, factor="2").add_function(lambda x: x + 1, "user")
        assert planner.plan(arch="sm_90").link().cubin


def test_binaries_are_read_for_the_configuration_too(udf: KernelFamily) -> None:
    for type_ in ("float", "double"):
        planner = udf.planner(type=type_, factor="2").add_ltoir(compiled(user(type_)).ltoir[BASE])
        assert planner.plan(arch="sm_90").link().cubin


def test_the_fragments_of_a_plan_have_the_values_of_its_interfaces(udf: KernelFamily) -> None:
    plan = udf.planner(type="float", factor="2").add_source(user("float")).plan(arch="sm_90")
    assert {dict(fragment.key.parameters)["type"] for fragment in plan.fragments} == {"float"}
    planner = udf.planner(type="float").add("udf/scale[factor=2,type=double]").add_source(user("float"))
    with raises(InterfaceMismatchError, "plan-interface-mismatch-values", "type=double", hint="type=float"):
        planner.plan(arch="sm_90")


def test_a_provider_with_another_value_is_none(tmp_path: Path) -> None:
    """The symbol has one provider, whose values its key tells: C's names tell none."""
    with raises(BuildError, "build-unplanned-kernels", "udf/kern: type=double", "no provider of scale"):
        made(tmp_path, UDF, scale__json='{"type": "float", "factor": ["2", "3"]}')


def test_the_database_says_which_headers_are_whose(udf: KernelFamily) -> None:
    record = udf.record
    assert record.common == ("type",)
    assert dict(record.choose({"type": "float"}).headers)["user.cuh"].endswith("float user(float);\n")
    for command in (["ls"], ["show", "udf/kern[type=float]"], ["verify"]):
        assert succeeds(command[0], udf.database.path, *command[1:])
    checked = succeeds("check", "--link", "sm_90", udf.database.path)
    assert "udf: linked 4 kernels, for sm_90, with stubs of what callers supply: all link" in checked


@pytest.mark.slow
def test_each_rendering_compiles_alone(tmp_path: Path) -> None:
    needs = UDF["scale.cuh.jinja"].replace("{# of C #}", "{{ 'missing_t x();' if type == 'double' else '' }}")
    with raises(BuildError, "build-interface-alone", "scale.cuh", "missing_t", where="scale.cuh.jinja:2 (type=double)"):
        made(tmp_path, UDF, scale__cuh__jinja=needs)
    packed = UDF["scale.cuh.jinja"] + "{% for n in range(2) %}\n{% endfor %}#pragma pack({{'1' if type == 'double'}})\n"
    with raises(BuildError, "build-interface-pack", "scale.cuh", where="scale.cuh.jinja:5 (type=double)"):
        made(tmp_path, UDF, scale__cuh__jinja=packed)


def test_opaque_types_may_depend_on_the_key(tmp_path: Path) -> None:
    toml = UDF["family.toml"].replace('name = "udf"', 'name = "udf"\nopaque = ["state_float", "state_double"]')
    header = UDF["scale.cuh.jinja"].replace("({{type}}*", "(struct state_{{type}}*, {{type}}*")
    kernel = UDF["kern.cu.jinja"].replace("scale(x", "scale(nullptr, x")
    source = UDF["scale.cu.jinja"].replace("({{type}}*", "(struct state_{{type}}*, {{type}}*")
    files = {"family.toml": toml, "scale.cuh.jinja": header, "kern.cu.jinja": kernel, "scale.cu.jinja": source}
    assert len(made(tmp_path, UDF | files).fragments) == 6


def test_what_is_refused_of_an_interface_is_said_of_its_template(tmp_path: Path) -> None:
    rows = UDF["scale.cuh.jinja"] + "{% for n in range(2) %}\n{% endfor %}"
    with raises(BuildError, "build-interface-incomplete", "declares state", where="scale.cuh.jinja:5 (type=float)"):
        made(tmp_path, UDF, scale__cuh__jinja=f"{rows}struct state;\n")
    macro = UDF["scale.cu.jinja"] + "#define LIMIT 2\n"
    with raises(BuildError, "build-interface-macro", "LIMIT", "scale.cuh.jinja:5"):
        made(tmp_path, UDF, scale__cuh__jinja=f"{rows}constexpr int limit = LIMIT;\n", scale__cu__jinja=macro)


def test_an_interface_may_use_only_what_is_in_every_key(tmp_path: Path) -> None:
    names, where = ["scale.cuh", "factor", "kern"], "scale.cuh.jinja:1"
    using = "{{ factor if factor is defined }}\n" + UDF["scale.cuh.jinja"]
    with raises(FamilyError, "family-interface-parameter", *names, where=where, hint="add factor to the key"):
        made(tmp_path, UDF, scale__cuh__jinja=using)
    with raises(RenderError, "render-undefined", "factor", "group kern", where="scale.cuh.jinja:1"):
        made(tmp_path, UDF, scale__cuh__jinja="{{ factor }}\n")
    toml = UDF["family.toml"].replace('supplied = true\nkey = ["type"]', "supplied = true")
    with raises(FamilyError, "family-interface-parameter", "type", "user", where="scale.cuh.jinja:3"):
        made(tmp_path, UDF, family__toml=toml)
    toml = UDF["family.toml"].replace('interface = "scale.cuh.jinja"', 'interface = "none.cuh.jinja"')
    with raises(FamilyError, "family-missing-file", "none.cuh.jinja", where="[device.scale]"):
        made(tmp_path, UDF, family__toml=toml)


def test_a_file_compiled_elsewhere_does_not_differ_by_an_interface(tmp_path: Path) -> None:
    toml = UDF["family.toml"].replace('template = "scale.cu.jinja"', 'binary = "scale-{{factor}}.bin"')
    with raises(FamilyError, "family-same-source", "depends on type", where="[device.scale]"):
        rendered(declared(tmp_path, UDF, family__toml=toml))
    toml = toml.replace("{{factor}}", "{{factor}}-{{type}}")
    assert len(rendered(declared(tmp_path, UDF, family__toml=toml))) == 6


def test_an_interface_that_depends_on_values_has_some(tmp_path: Path) -> None:
    tables = UDF["family.toml"].split("\n\n")
    with raises(FamilyError, "family-interface-parameter", where="family.toml", hint="matrix"):
        made(tmp_path, UDF, family__toml="\n\n".join((tables[0], tables[-1])))


def test_a_plain_interface_may_include_a_generated_header(tmp_path: Path) -> None:
    toml = UDF["family.toml"].replace("scale.cuh.jinja", "scale.cuh").replace(
        'name = "udf"', 'name = "udf"\nheaders = {"types.inc" = "types.inc.jinja"}'
    )  # fmt: skip
    files = {
        "types.inc.jinja": "#pragma once\nusing number = {{type}};\n",
        "scale.cuh": '#pragma once\n#include "deep/inner.cuh"\nextern "C" __device__ int scale(number*, number);\n',
        "deep/inner.cuh": '#pragma once\n#include "types.inc"\n',
    }
    record = opened(tmp_path, UDF | files, family__toml=toml).record
    assert {name for name, _ in record.headers} == {"scale.cuh", "deep/inner.cuh"}
    assert {name for name, _ in record.choices[0].headers} == {"types.inc", "user.cuh"}


@pytest.mark.slow
def test_shards_merge_to_the_bytes_of_one_build_and_ci_may_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, family = made(tmp_path, UDF), load_family(tmp_path / "family.toml")
    parts = [tmp_path / f"{n}.fragdb" for n in (1, 2)]
    for number, part in enumerate(parts, 1):
        build([family], part, executor=compiler(), shard=Shard(number, 2))
    merged = merge_databases(parts, tmp_path / "merged.fragdb")
    assert merged.path.read_bytes() == whole.path.read_bytes()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.setenv("JITLTO_PREBUILT", str(whole.path))
    config.current.cache_clear()
    try:
        taken = project.build_package(tmp_path, tmp_path / "taken.fragdb")
        assert taken.path.read_bytes() == whole.path.read_bytes()
        write_family(tmp_path, {"scale.cuh.jinja": UDF["scale.cuh.jinja"] + "// {{type}}\n"})
        with raises(ProjectError, "project-prebuilt-differs", "udf", "choices"):
            project.build_package(tmp_path, tmp_path / "taken.fragdb")
    finally:
        config.current.cache_clear()


KEYED = SHARED | {
    "common/family.toml": SHARED["common/family.toml"].replace('"scale.cuh"', '"scale.cuh.jinja"'),
    "common/scale.cuh.jinja": '#pragma once\nextern "C" __device__ {{data_type}} scale({{data_type}});\n',
    "common/scale.cu.jinja": 'extern "C" __device__ {{data_type}} scale({{data_type}} a) { return {{expr}}; }\n',
}
del KEYED["common/scale.cuh"]


def test_families_share_an_interface_that_depends_on_a_parameter_of_both(tmp_path: Path) -> None:
    def together(files: dict[str, str]) -> BuildReport:
        write_family(tmp_path, files)
        return build([load_family(tmp_path / "search/family.toml")], tmp_path / "made.fragdb", executor=compiler())

    family = KernelFamily("search", FragmentDatabase(together(KEYED).path))
    for type_ in ("float", "double"):
        assert family.plan(arch="sm_90", data_type=type_, scale_name="half").link().cubin
    assert "search: linked 4 kernels" in succeeds("check", "--link", "sm_90", family.database.path)
    renamed = {
        f"search/{name}": KEYED[f"search/{name}"].replace("data_type", "kind")
        for name in ("family.toml", "kernel.json", "kernel.cu.jinja")
    }
    with raises(
        RenderError, "render-undefined", "'data_type'", "search_kernel", where="scale.cuh.jinja:2", hint="every"
    ):
        together(KEYED | renamed)
    # Values that a used family does not have matter to none of its fragments.
    aliased = {
        "common/family.toml": SHARED["common/family.toml"].replace(
            '"common"', '"common"\nheaders = {"number.inc" = "number.inc.jinja"}'
        ),
        "common/number.inc.jinja": "#pragma once\nusing number = {{data_type}};\n",
        "common/scale.cuh": '#pragma once\n#include "number.inc"\n__device__ number scale(number);\n',
        "common/scale.cu.jinja": "__device__ number scale(number a) { return {{expr}}; }\n",
        "common/scale.json": SHARED["common/scale.json"].replace('"float", "double"', '"float"'),
        "search/kernel.cu.jinja": SHARED["search/kernel.cu.jinja"].replace(
            "scale(x", "{{'scale' if data_type == 'float'}}(x"
        ),
    }
    assert len(together(SHARED | aliased).fragments) == 4
    (tmp_path / "common" / "scale.cuh").unlink()
    asking = KEYED["common/scale.cuh.jinja"] + "{{ '// one' if scale_name is defined }}\n"
    with raises(FamilyError, "family-use", "common", "scale_name", hint="group of search"):
        together(KEYED | {"common/scale.cuh.jinja": asking})


def test_headers_of_sources_tell_keys_apart_where_interfaces_depend_on_values_too(tmp_path: Path) -> None:
    files = {
        "family.toml": '[family]\nname = "both"\nheaders = {"config.inc" = "config.inc.jinja"}\n'
        '[entrypoint.kern]\nmatrix = "kern.json"\ntemplate = "kern.cu.jinja"\nkey = ["type", "length"]\n'
        '[device.op]\nsupplied = true\nkey = ["type"]\ninterface = "op.cuh.jinja"\n',
        "kern.json": '{"type": ["float"], "length": ["2", "4"]}',
        "config.inc.jinja": "#define LENGTH {{length}}\n",
        "op.cuh.jinja": "__device__ {{type}} op({{type}});\n",
        "kern.cu.jinja": '#include "config.inc"\n__global__ void kern({{type}}* x) { *x = op(*x) + LENGTH; }\n',
    }
    record = RenderedFamilies([load_family(write_family(tmp_path, files))]).records["both"]
    assert [choice.values for choice in record.choices] == [(("type", "float"),)]


def test_a_header_of_a_users_own_in_place_of_one_that_depends_on_a_parameter_is_named(tmp_path: Path) -> None:
    """Both families have the parameter in every key."""
    toml = SHARED["common/family.toml"].replace('"common"', '"common"\nheaders = {"n.inc" = "n.inc.jinja"}')
    files = SHARED | {
        "common/family.toml": toml,
        "common/n.inc.jinja": "#pragma once\nusing number = {{data_type}};\n",
        "common/scale.cuh": '#pragma once\n#include "n.inc"\n__device__ number scale(number);\n',
        "common/scale.cu.jinja": "__device__ number scale(number a) { return {{expr}}; }\n",
        "search/scale.cuh": "#pragma once\n__device__ float scale(float);\n",
    }
    write_family(tmp_path, files)
    with raises(FamilyError, "family-use", "another header 'scale.cuh'", where="[use]", hint="another name"):
        RenderedFamilies([load_family(tmp_path / "search/family.toml")])
