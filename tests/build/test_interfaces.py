"""Interfaces: types that differ between two fragments are found by the build, and both declarations are named."""

from collections import defaultdict
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError, CompileError, FamilyError
from jitlto.build.cache.cache import Cache
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import Shard
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.record.headers import digest_headers
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import SHARED, calling_op, write_family

TOML = """[family]
name = "act"
[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
[device.activation]
matrix = "activation.json"
template = "activation.cu.jinja"
key = ["name"]
"""
DECLARED, NONE = 'interface = "activation.cuh"\n', "interface = false\n"
INCLUDE = '#include "activation.cuh"\n'
TEMPLATE = "template <class T> __device__ T activation(T x);"


def family(
    interface: str, definition: str, *, call: str = "*x = activation(*x);", instance: str = ""
) -> dict[str, str]:
    """A kernel that calls ``activation`` as ``interface`` declares it, and one definition, in relu.cuh."""
    return {
        "family.toml": TOML + DECLARED,
        "kern.json": "{}",
        "activation.json": '{"name": ["relu"]}',
        "activation.cuh": f"#pragma once\n// The activation(s).\n{interface}\n",
        "relu.cuh": f"{definition}\n",
        "kern.cu.jinja": f'#include "activation.cuh"\n__global__ void kern(float* x) {{ {call} }}\n',
        "activation.cu.jinja": f'#include "{{{{name}}}}.cuh"\n{instance}\n',
    }


FLOAT = "__device__ float activation(float x);"
FINE = "__device__ float activation(float x) { return x > 0 ? x : 0; }"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "definition", "options"),
    [
        (FLOAT, "__device__ int activation(float x) { return x > 0; }", {}),
        (TEMPLATE, f"{INCLUDE}template <class T> __device__ float activation(T x) {{ return x; }}",
         {"instance": "template __device__ float activation<float>(float);"}),
        ('extern "C" ' + FLOAT, 'extern "C" __device__ int activation(float x) { return x > 0; }', {}),
        ("extern __constant__ float activation[4];", "__constant__ float activation[5] = {};",
         {"call": "*x = activation[1];"}),
    ],
)  # fmt: skip
def test_a_definition_that_contradicts_its_interface_does_not_compile(
    build_family: BuildFamily, interface: str, definition: str, options: dict[str, str]
) -> None:
    both = "activation.cuh", interface, definition.removeprefix(INCLUDE).partition("{")[0].split("=")[0].strip()
    with raises(CompileError, "compile", *both, "group activation", interface):
        build_family(family(interface, definition, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "definition"),
    [
        (TEMPLATE, "template <> __device__ float activation<float>(float x) { return x; }"),
        ("struct Point { float x; };\n" + FLOAT, "__device__ float activation(float x) { return Point{x}.x; }"),
    ],
)
def test_a_source_that_does_not_include_its_interface_sees_it(
    build_family: BuildFamily, interface: str, definition: str
) -> None:
    kernel = "__global__ void kern(float* x) { *x = activation(*x); }\n"
    build_family(family(interface, definition) | {"kern.cu.jinja": kernel})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "definition", "options", "names"),
    [
        (FLOAT, "__device__ float activation(float& x) { return x; }", {}, ("activation(float&)", "activation(float)")),
        ("__device__ float activation(const float* x);", "__device__ float activation(float* x) { return *x; }",
         {"call": "*x = activation(x);"}, ("activation(float*)", "activation(float const*)")),
        (f"namespace n {{ {FLOAT} }}", FINE, {"call": "*x = n::activation(*x);"}, ("n::activation(float)",)),
    ],
)  # fmt: skip
def test_a_definition_of_another_overload_is_refused(
    build_family: BuildFamily, interface: str, definition: str, options: dict[str, str], names: tuple[str, ...]
) -> None:
    keys = ("act/activation[name=relu]", "act/kern", "activation.cuh:3: declares `")
    if "\n" not in definition:
        keys += (f"relu.cuh:1: has `{definition.partition('{')[0].strip()}`",)
    with raises(BuildError, "build-unplanned-kernels", *keys, *names):
        build_family(family(interface, definition, **options))


@pytest.mark.slow
def test_beside_a_definition_of_the_right_one_there_is_advice(build_family: BuildFamily) -> None:
    """No kernel contains it."""
    files = family(FLOAT, FINE) | {"activation.json": '{"name": ["relu", "zero"]}'}
    files["zero.cuh"] = "__device__ float activation(double x) { return 0; }\n"
    (advice,) = build_family(files).advice
    assert "no kernel contains act/activation[name=zero]: no fragment requires activation(double)" in advice.message


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["#if 0", "#ifdef NEVER", "/*", 'constexpr const char* text = R"('])
def test_a_kernel_that_declares_it_otherwise_does_not_compile(build_family: BuildFamily, condition: str) -> None:
    """Whether it includes the interface or not."""
    end = {"/": "*/", "c": ')";'}.get(condition[0], "#endif")
    kernel = f'{condition}\n#include "activation.cuh"\n{end}\n__device__ int activation(float x);\n'
    kernel += "__global__ void kern(float* x) { *x = activation(*x); }\n"
    with raises(CompileError, "compile", "int activation(float x)"):
        build_family(family(FLOAT, FINE) | {"kern.cu.jinja": kernel})


@pytest.mark.slow
def test_what_callers_supply_is_declared_as_kernels_require_it(build_family: BuildFamily) -> None:
    kernel = "__device__ float op(int);\n__global__ void kern(float* x) { *x = op(1); }"
    files = calling_op("call", "__device__ float op(float);", kernel)
    with raises(BuildError, "build-interface-undeclared", "call/kern[]", "op(int)", "op.cuh of op"):
        build_family(files)


#: The kernel calls a function of the same size and another meaning: nothing but an interface shows it.
SLIP = family("", "__device__ int activation(float x) { return x > 0; }") | {
    "kern.cu.jinja": "__device__ float activation(float x);\n__global__ void kern(float* x) { *x = activation(*x); }\n"
}
#: The same without a header that has the group's name.
BARE = {name: text for name, text in SLIP.items() if name != "activation.cuh"} | {"family.toml": TOML}


@pytest.mark.slow
def test_a_group_that_others_require_has_an_interface(build_family: BuildFamily) -> None:
    names = ["act/kern[]", "activation(float)", "act/activation[name=relu]", 'interface = "activation.cuh"']
    with raises(BuildError, "build-no-interface", *names, hint="interface = false"):
        build_family(BARE)


@pytest.mark.slow
def test_parts_are_checked_when_they_are_merged(tmp_path: Path) -> None:
    loaded = load_family(write_family(tmp_path, BARE))
    parts = [tmp_path / f"{number}.fragdb" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        build([loaded], part, jobs=1, shard=Shard(number, 2))
    with raises(BuildError, "build-no-interface", "act/activation[name=relu]"):
        merge_databases(parts, tmp_path / "whole.fragdb")


@pytest.mark.slow
def test_and_then_layouts_are_compared(build_family: BuildFamily) -> None:
    source = SLIP | {"relu.cuh": "__device__ double activation(float x) { return x > 0; }", "family.toml": TOML + NONE}
    with raises(BuildError, "build-unplanned-kernels", "act/kern[]", "act/activation[name=relu]", "layout"):
        build_family(source)


@pytest.mark.slow
def test_a_variable_of_a_kernel_that_a_device_function_uses_needs_one_too(build_family: BuildFamily) -> None:
    files = SLIP | {
        "family.toml": TOML + NONE,
        "relu.cuh": "extern __device__ int scale;\n__device__ int activation(float x) { return x * scale; }",
        "kern.cu.jinja": "__device__ float scale = 2;\n" + SLIP["kern.cu.jinja"],
    }
    with raises(BuildError, "build-no-interface", "scale", "act/kern[]"):
        build_family(files)
    files["family.toml"] = files["family.toml"].replace("[device", 'interface = "scale.cuh"\n[device')
    files["scale.cuh"] = "#pragma once\nextern __device__ float scale;\n"
    with raises(CompileError, "compile", "float scale"):
        build_family(files)
    files["relu.cuh"] = "__device__ int activation(float x) { return x * scale; }"
    assert len(build_family(files).fragments) == 2


@pytest.mark.parametrize("value", ["true", "1", "''"])
def test_an_interface_is_a_name_or_false(tmp_path: Path, value: str) -> None:
    with raises(FamilyError, "family-invalid-value", where="[device.activation]"):
        load_family(write_family(tmp_path, SLIP | {"family.toml": f"{TOML}interface = {value}\n"}))


@pytest.mark.parametrize("more", ["", "supplied = true\n"])
def test_a_group_with_an_interface_alone_is_one_that_callers_supply(tmp_path: Path, more: str) -> None:
    toml = TOML + NONE + f'[device.user]\n{more}interface = "activation.cuh"\n'
    family = load_family(write_family(tmp_path, SLIP | {"family.toml": toml}))
    assert [group.name for group in family.groups if group.supplied] == ["user"]


def test_a_group_that_callers_supply_needs_a_header(tmp_path: Path) -> None:
    toml = TOML + NONE + "[device.user]\nsupplied = true\ninterface = false\n"
    with raises(FamilyError, "family-missing-key", where="[device.user]"):
        load_family(write_family(tmp_path, SLIP | {"family.toml": toml}))


WIDE = """struct argument {
#ifdef WIDE
  double other;
#endif
  float x;
};
__device__ float activation(const argument& a);"""
CALL_WIDE = "argument a; a.x = *x; *x = activation(a);"
WIDE_FAMILY = family(WIDE, "", call=CALL_WIDE) | {
    "activation.cu.jinja": f"// {{{{name}}}}\n{INCLUDE}__device__ float activation(const argument& a) {{ return a.x; }}"
}
BEFORE = {
    "group": {"family.toml": TOML.replace("[device", 'options = ["-DWIDE"]\n[device') + DECLARED},
    "template": {"kern.cu.jinja": "#define WIDE\n" + WIDE_FAMILY["kern.cu.jinja"]},
    "provider": {"activation.cu.jinja": "#define WIDE 1\n" + WIDE_FAMILY["activation.cu.jinja"]},
    "header": {"kern.cu.jinja": '#include "wide.cuh"\n' + WIDE_FAMILY["kern.cu.jinja"], "wide.cuh": "#define WIDE\n"},
    "supplied": {"family.toml": TOML.partition("matrix = \"activ")[0] + "supplied = true\n" + DECLARED,
                 "kern.cu.jinja": "#define WIDE\n" + WIDE_FAMILY["kern.cu.jinja"]},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("place", BEFORE)
def test_no_source_changes_a_macro_that_an_interface_mentions(build_family: BuildFamily, place: str) -> None:
    """It would have no effect on the interface, and its author expects one."""
    with raises(BuildError, "build-interface-macro", "WIDE", "activation.cuh:4"):
        build_family(WIDE_FAMILY | BEFORE[place])


ASKS = {"activation.cuh": "#pragma once\n" + WIDE.replace("#ifdef WIDE", "#if __CUDA_ARCH__ >= 900")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [
        {"family.toml": TOML.replace("[entry", 'options = ["-DWIDE"]\n[entry', 1) + DECLARED},
        {"family.toml": TOML.replace("[entry", 'archs = ["75", "90"]\n[entry', 1) + DECLARED, **ASKS},
        {"kern.cu.jinja": "#define OTHER\n" + WIDE_FAMILY["kern.cu.jinja"]},
        {"activation.cuh": f"#pragma once\n#define N 3\n{WIDE}"},
    ],
)
def test_macros_on_which_nothing_depends_do_no_harm(build_family: BuildFamily, files: dict[str, str]) -> None:
    assert build_family(WIDE_FAMILY | files).advice == ()


TRAIT = "template <class T> struct L { float a; };"
MACRO = "#define SPECIAL(T) template <> struct L<T> { float b, a; }"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "source", "name"),
    [
        (f"{TRAIT}\ntemplate <class T> struct L<T*> {{ float a, b; }};",
         "template <> struct L<int*> { float b, a; };", "L"),
        ("template <class T> constexpr int width = 2;\nstruct V { float v[width<int>]; };",
         "template <> constexpr int width<float> = 4;", "width"),
        (TRAIT, f"{MACRO}\nSPECIAL(int);", "L"),
        (f"{TRAIT}\n{MACRO}", "SPECIAL(int);", "L"),
        (TRAIT, "#define S(X) template <> struct X<int> { float b, a; };\nS(L)", "L"),
        (TRAIT, "namespace mine { template <class T> struct L {}; }\ntemplate <> struct L<int> { float b, a; };", "L"),
        ("template <class T> struct L { static constexpr int n = 1; float a[n]; };",
         "template <> const int L<int>::n = 2;", "L"),
        (("template <class T> struct tag {};\ntemplate <class T> __device__ int pick(const T&);\n"
          "template <class T> struct M { decltype(pick(tag<T>())) a; };"),
         "template <class T> __device__ float pick(const tag<T>&);", "pick"),
    ],
)  # fmt: skip
def test_no_source_specialises_a_template_of_an_interface(
    build_family: BuildFamily, interface: str, source: str, name: str
) -> None:
    files = family(f"{interface}\n{FLOAT}", FINE)
    files["kern.cu.jinja"] = f"{source}\n{files['kern.cu.jinja']}"
    with raises(BuildError, "build-interface-specialisation", name, "kern.cu.jinja:", "activation.cuh:"):
        build_family(files)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "struct Own {};\ntemplate <> struct L<Own> { float b, a; };\n__device__ float pick(const Own&);",
        "namespace mine { template <class T> struct L {}; template <> struct L<int> { int c; }; }",
        "namespace mine { struct H {}; }",
        "using Alias = L<int>;\n#define PAIR(x) L<float>{x}",
        "template <class U> __device__ int pick(const U& value = U()) { return 1; }",
    ],
)
def test_what_concerns_types_of_its_own_alone_a_source_may_do(build_family: BuildFamily, source: str) -> None:
    interface = f"{TRAIT}\ntemplate <class T> __device__ int pick(const T&);\n"
    interface += "template <class T> struct M { decltype(pick(T())) a; };\nnamespace a { struct H; }\n"
    files = family(f"{interface}\n{FLOAT}", FINE)
    files["family.toml"] = files["family.toml"].replace('name = "act"', 'name = "act"\nopaque = ["a::H"]')
    files["kern.cu.jinja"] = f"{source}\n{files['kern.cu.jinja']}"
    build_family(files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "name"),
    [
        ("struct S;\n__device__ float activation(float x, S* s = nullptr);", "S"),
        ("namespace n { class S; }\n__device__ float activation(float x, n::S* s = nullptr);", "n::S"),
        ("__device__ float activation(float x, struct S* s = nullptr);", "S"),
        ("enum E : int;\n__device__ float activation(float x, E e = E(0));", "E"),
        ("template <class T> struct L;\n__device__ float activation(float x, L<int>* s = nullptr);", "L"),
    ],
)
def test_types_are_defined_or_opaque(build_family: BuildFamily, interface: str, name: str) -> None:
    types = interface.partition("float x, ")[2].partition(" = ")[0]
    files = family(interface, f"__device__ float activation(float x, {types}) {{ return x; }}")
    with raises(BuildError, "build-interface-incomplete", name, "activation.cuh:3", hint="opaque"):
        build_family(files)
    files["family.toml"] = files["family.toml"].replace('"act"', f'"act"\nopaque = ["{name}"]', 1)
    if not name.startswith("L"):
        build_family(files)
    keyword = "enum" if name == "E" else "class"
    space, _, last = name.rpartition("::")
    definition = f"{keyword} {last} {': int ' if name == 'E' else ''}{{ }};"
    files["kern.cu.jinja"] = (
        f"{f'namespace {space} {{ {definition} }}' if space else definition}\n" + files["kern.cu.jinja"]
    )
    if not name.startswith("L"):
        with raises(BuildError, "build-interface-definition", last, "kern.cu.jinja:1:"):
            build_family(files)


@pytest.mark.slow
@pytest.mark.parametrize("qualifiers", ["", "const", "volatile", "const volatile"])
def test_a_signature_may_have_arrays_of_any_elements(build_family: BuildFamily, qualifiers: str) -> None:
    signature = f"__device__ float activation({qualifiers} float (&x)[2], {qualifiers} float (*y)[] = nullptr)"
    files = family(f"{signature};", signature.replace(" = nullptr", "") + " { return x[0]; }")
    files["kern.cu.jinja"] = "__global__ void kern(float* x) { float y[2] = {*x, 0}; *x = activation(y); }\n"
    build_family(files)


@pytest.mark.slow
def test_both_sides_declare_nothing_beside_the_interface(build_family: BuildFamily) -> None:
    """An overload of their own, with another result: names and sizes are the same on both sides."""
    files = family(FLOAT, f"{FINE}\n__device__ int activation(int x) {{ return x; }}")
    files["kern.cu.jinja"] = (
        "__device__ float activation(int x);\n__global__ void kern(float* x) { *x = activation(1); }\n"
    )
    places = f"activation.cuh:3: declares `{FLOAT}`", "kern.cu.jinja:1: has `__device__ float activation(int x)`"
    with raises(BuildError, "build-interface-undeclared", "activation(int)", *places):
        build_family(files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "line"),
    [
        (FLOAT[:-1], 3),
        (f"struct A {{ float a; }}\n{FLOAT}\nstruct B {{ float b; }}", 4),
        (f"namespace n {{\n{FLOAT}", 4),
        ("__device__ flaot activation(float x);", 3),
        (f"{FLOAT}\n#if 1", 4),
    ],
)
def test_an_interface_that_breaks_the_sources_behind_it_is_named(
    build_family: BuildFamily, interface: str, line: int
) -> None:
    with raises(BuildError, "build-interface-alone", where=f"/activation.cuh:{line}"):
        build_family(family(interface, FINE))


@pytest.mark.slow
def test_opaque_names_types_that_interfaces_declare(build_family: BuildFamily) -> None:
    interface = "struct state;\n__device__ float activation(float x, state* s = nullptr);"
    files = family(interface, "__device__ float activation(float x, state*) { return x; }")
    for name in ("stat", "activation", "n::state"):
        files["family.toml"] = (TOML + DECLARED).replace('"act"', f'"act"\nopaque = ["state", "{name}"]', 1)
        with raises(FamilyError, "family-opaque", name, where="family.toml in [family]"):
            build_family(files)
    with raises(FamilyError, "family-opaque", "stat", hint="'state'"):
        build_family(files | {"family.toml": (TOML + DECLARED).replace('"act"', '"act"\nopaque = ["stat"]', 1)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("struct Shared { float x; };", "__device__ float scale(Shared s);", "build-interface-alone"),
        ("#define ALIAS float", "__device__ ALIAS scale(float s);", "build-interface-alone"),
        ("#pragma pack(1)", "struct Own { char c; };\n#pragma pack()", "build-interface-pack"),
        ("#pragma pack(push, 1)", "", "build-interface-pack"),
        ("#pragma pack(8)", "", "build-interface-pack"),
        ("#pragma pack(16)", "", "build-interface-pack"),
    ],
)
def test_each_interface_stands_alone_and_leaves_nothing_open(
    build_family: BuildFamily, first: str, second: str, code: str
) -> None:
    files = family(f"{FLOAT}\n{first}", FINE)
    files["family.toml"] += '[device.scale]\nsupplied = true\ninterface = "scale.cuh"\n'
    files["scale.cuh"] = f"#pragma once\n{second}\n"
    with raises(BuildError, code, where="/activation.cuh:4" if code.endswith("pack") else "/scale.cuh:2"):
        build_family(files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "is_right"),
    [
        ("static __device__ float scale = 1;", False),
        ("constexpr float scale = 3;", True),
    ],
)
def test_no_interface_has_a_variable_of_which_each_side_has_its_own(
    build_family: BuildFamily, tmp_path: Path, variable: str, is_right: bool
) -> None:
    files = family(f"{variable}\n{FLOAT}", "__device__ float activation(float x) { return scale * x; }")
    files["kern.cu.jinja"] = (
        f"__global__ void kern(float* x) {{ {'' if is_right else 'scale = 3; '}*x = activation(2); }}\n"
    )
    if is_right:
        build_family(files)
        with FragmentDatabase(tmp_path / "family.fragdb") as database:
            assert "1086324736" in KernelFamily("act", database).plan(arch="sm_90").link_ptx()  # 6.0
        return
    with raises(BuildError, "build-interface-variable", "scale", "activation.cuh:3", hint="extern"):
        build_family(files)


UNRELATED = {
    "family.toml": TOML + DECLARED + '[entrypoint.other]\nmatrix = "kern.json"\ntemplate = "other.cu.jinja"\n',
    "other.cu.jinja": "__global__ void other(float* x) { *x = 1; }\n",
}


@pytest.mark.slow
def test_an_edit_of_an_interface_rebuilds_its_family(tmp_path: Path, cache: Cache) -> None:
    """Also a source that uses nothing of it, and those of families that use the family."""
    write_family(tmp_path / "act", family(FLOAT, FINE) | UNRELATED)
    toml = (
        '[family]\nname = "user"\n[use]\nact = "../act"\n[entrypoint.mine]\nmatrix = "m.json"\ntemplate = "t.jinja"\n'
    )
    mine = "__global__ void mine(float* x) { *x = 2; }\n"
    write_family(tmp_path / "user", {"family.toml": toml, "m.json": "{}", "t.jinja": mine})

    def compiled() -> int:
        families = [load_family(tmp_path / name / "family.toml") for name in ("act", "user")]
        return build(families, tmp_path / "a.fragdb", jobs=1, cache=cache).compiled

    assert (compiled(), compiled()) == (4, 0)
    interface = tmp_path / "act" / "activation.cuh"
    interface.write_text(interface.read_text() + "using number = int;\n")
    assert (compiled(), compiled()) == (4, 0)


def test_all_sides_see_the_same_headers(tmp_path: Path) -> None:
    """Every group, in the families that use a family too, and callers, whose sources see what the database holds."""
    inner = {
        "common/scale.cuh": SHARED["common/scale.cuh"] + '#include "more/inner.cuh"\n',
        "common/more/inner.cuh": "",
    }
    write_family(tmp_path, SHARED | inner)
    families = RenderedFamilies([load_family(tmp_path / name / "family.toml") for name in ("search", "cluster")])
    seen: dict[str, set[str]] = defaultdict(set)
    for request in families.requests:
        first = request.config.interface_headers()
        seen[request.key.family].add(digest_headers(first))
    held = {
        name: {digest_headers({header: text.encode() for header, text in record.headers})}
        for name, record in families.records.items()
    }
    assert seen == held
    assert len({digest for digests in held.values() for digest in digests}) == 1


@pytest.mark.slow
def test_an_edit_during_a_build_is_seen_by_no_side(tmp_path: Path) -> None:
    """What callers' sources will be compiled behind was read once."""
    files = family("enum { n = 3 };\n" + FLOAT, FINE, call="*x = n;")
    families = RenderedFamilies([load_family(write_family(tmp_path / "act", files))])
    interface = tmp_path / "act" / "activation.cuh"
    interface.write_text(interface.read_text().replace("n = 3", "n = 4"))
    build(families, tmp_path / "a.fragdb", jobs=1, allow_incomplete=True)
    with FragmentDatabase(tmp_path / "a.fragdb") as database:
        assert "n = 3" in dict(database.families["act"].headers)["activation.cuh"]
        assert "1077936128" in KernelFamily("act", database).plan(arch="sm_90").link_ptx()  # 3.0
