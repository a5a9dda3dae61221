"""Families that use others: what the interfaces of one leave never changes what those of another mean."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base.errors import BuildError, FamilyError
from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.uses import check_uses
from jitlto.compile.declarations import read_declarations
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.record.family_record import FamilyRecord
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import write_family

ONCE = "#pragma once\n"
VALUE = "__device__ float value(int x);\n"
REAL = "using real = float;\n"

#: Headers of a first and of a second family, of which the first comes first; by default one of each.
WRONG = {
    "specialisation": ('#include "both.cuh"\ntemplate <> struct traits<int> { using type = int; };\n',
                       '#include "both.cuh"\n__device__ traits<int>::type value(int x);\n', "traits", 3, 3),
    "variable": ('#include "both.cuh"\ntemplate <> constexpr int width<int> = 8;\n',
                 '#include "both.cuh"\nstruct S { int v[width<int>]; };\n', "width", 3, 4),
}  # fmt: skip
#: The same for a macro that the first leaves and the second mentions.
LEFT = {
    "definition": ("#define real int\n", f"{REAL}__device__ real value(int x);\n", "real", 2, 2),
    "function-like": ("#define real(x) x\n", "#define as(x) real(x)\nas(int) y();\n", "real", 2, 2),
    "condition": ("#define WIDE\n", f"#ifdef WIDE\nstruct S {{ int x; }};\n#endif\n{VALUE}", "WIDE", 2, 2),
    "guard": ("#define V_CUH\n", f"#ifndef V_CUH\n#define V_CUH\n{VALUE}#endif\n", "V_CUH", 2, 2),
    "default": ("#define N 3\n", "#ifndef N\n#define N 4\n#endif\nenum { count = N };\n", "N", 2, 2),
    "body": ("#define N 3\n", "#ifndef N\n#define N 4\n#endif\ninline __device__ int f() { return N; }\n", "N", 2, 2),
    "keyword": ("#define float double\n", VALUE, "float", 2, 2),
    "undefined": ('#include "both.cuh"\n#undef N\n', '#include "both.cuh"\nenum { count = N };\n', "N", 3, 3),
    "after a comment": ("/*\n*/ // N\n#define N 3 /*\n*/ + 1\n", "/* N */ // N\nenum { count = N };\n", "N", 4, 2),
    "in the midst": ("#define N 3\n", "int f(\n#ifdef N\nint, int\n#endif\n);\n", "N", 2, 3),
}  # fmt: skip
RIGHT = {
    "nothing": ("", VALUE),
    "a macro of its own": ("#define N 3\n", VALUE),
    "a comment and a text": ("#define N 3\n", '// N\nstatic_assert(true, "N");\n'),
    "undefined again": ("#define N 3\nenum { first = N };\n#undef N\n", "enum { N = 2 };\n"),
    "the same": ("#define HD __device__\n", "#define HD  __device__ // the same\nHD float value(int x);\n"),
    "the same default": ("#ifndef HD\n#define HD __device__\n#endif\n",
                         "#if !defined(HD)\n#define HD __device__\n#endif\nHD float value(int x);\n"),
    "defined anew": ("#define N 3\n", "#undef N\n#define N 4\nenum { count = N };\n"),
    "a copy under the same guard": ('#include "copy1.cuh"\n', f'#include "copy2.cuh"\n{VALUE}'),
    "a header of both in the midst": (
        'enum { one = 1 };\n#include "both.cuh"\n', 'enum { two = 2 };\n#include "both.cuh"\nenum { count = N };\n'),
    "a list": ("#define X(n) first_##n,\nenum { X(one) };\n#undef X\n",
               "#define X(n) second_##n,\nenum { X(one) };\n#undef X\n"),
    "a header of both under the same mode": (
        '#define M 3\n#include "mode.cuh"\n#undef M\n', '#define M 3\n#include "mode.cuh"\n#undef M\n'),
    "a header of both before": (
        '#include "both.cuh"\n#define T float\nT f(T x);\n#undef T\n', '#include "both.cuh"\nenum { count = N };\n'),
    "a list of both": (
        '#define X(n) first_##n,\nenum {\n#include "list.cuh"\n};\n#undef X\n',
        '#define X(n) second_##n,\nenum {\n#include "list.cuh"\n};\n#undef X\n'),
    "a header of both": ('#include "both.cuh"\nenum { first = N };\n', '#include "both.cuh"\nenum { count = N };\n'),
    "a specialisation of its own": (
        "namespace a { template <class T> struct traits {}; template <> struct traits<int> {}; }\n",
        "namespace b { template <class T> struct traits {}; }\n__device__ b::traits<int> value(int x);\n"),
    "a specialisation for a type of its own": (
        '#include "both.cuh"\nnamespace a { struct P {}; }\ntemplate <> struct traits<a::P*> { using type = int; };\n',
        '#include "both.cuh"\n__device__ traits<int>::type value(int x);\n'),
    "a variable of its own": (
        "namespace a { template <class T> constexpr int width = 4; template <> constexpr int width<int> = 8; }\n",
        "__device__ float value(int width);\n"),
}  # fmt: skip
SHARED = {
    "both.cuh": f"{ONCE}#define N 5\ntemplate <class T> struct traits {{ using type = T; }};\n"
    "template <class T> constexpr int width = 2;\nusing single = float;\n",
    "mode.cuh": f"{ONCE}constexpr int mode = M;\n",
    "list.cuh": "X(one) X(two)\n",
    "more.cuh": "#define real int\n",
    "copy1.cuh": "#ifndef COPY\n#define COPY\nstruct Copy { float x; };\n#endif\n",
    "copy2.cuh": "#ifndef COPY\n#define COPY\nstruct Copy { float x; };\n#endif\n",
}


def record(name: str, headers: dict[str, str], *uses: FamilyRecord, options: tuple[str, ...] = ()) -> FamilyRecord:
    """A family whose own interface is ``NAME.cuh``."""
    interfaces = dict.fromkeys([*(each for used in uses for each in used.interfaces), f"{name}.cuh"])
    every = {header: text for used in uses for header, text in used.headers} | headers
    reached: dict[str, str] = {}
    pending = [*interfaces]
    for header in pending:
        reached[header] = every.get(header, ONCE)
        pending += [other for other in SHARED if f'"{other}"' in reached[header] and other not in pending]
    all_used = {each for used in uses for each in (used.name, *used.uses)}
    return FamilyRecord(
        name, ("--std=c++17", *options), LinkOptions(), (), (), tuple(sorted(reached.items())),
        tuple(sorted(all_used)), interfaces=tuple(interfaces),
    )  # fmt: skip


def families(first: str, second: str, options: tuple[str, ...] = (), user: str = "") -> dict[str, FamilyRecord]:
    used = [
        record(name, SHARED | {f"{name}.cuh": ONCE + text}, options=options)
        for name, text in (("first", first), ("second", second))
    ]
    last = record("user", SHARED | {"user.cuh": ONCE + user}, *used, options=options)
    return {each.name: each for each in (*used, last)}


@pytest.mark.parametrize("case", WRONG)
def test_a_specialisation_of_what_the_next_mentions_is_refused_at_both_places(case: str) -> None:
    first, second, name, left, mention = WRONG[case]
    with raises(FamilyError, "family-use", name, f"first.cuh:{left}", f"both.cuh:{mention}", "user", hint="both.cuh"):
        check_uses(families(first, second))


@pytest.mark.parametrize("case", LEFT)
def test_a_macro_that_one_family_leaves_and_the_next_mentions_is_refused_at_both_places(case: str) -> None:
    first, second, name, left, mention = LEFT[case]
    with raises(FamilyError, "family-use", name, f"first.cuh:{left}", f"second.cuh:{mention}", "user"):
        check_uses(families(first, second))
    check_uses(families(second, first))


def test_nor_does_one_while_a_header_of_both_is_read_for_the_first_time() -> None:
    first, second = (f'#define M {value}\n#include "mode.cuh"\n#undef M\n' for value in (3, 4))
    with raises(FamilyError, "family-use", "first.cuh:2", "M", "mode.cuh:2", "user"):
        check_uses(families(first, second))


def test_an_include_of_an_interface_finds_no_header_of_a_user() -> None:
    used = record("used", {"used.cuh": f"{ONCE}#include <cuda_fp16.h>\n"})
    user = record("user", {"user.cuh": f"{ONCE}", "cuda_fp16.h": "#define N 1\n"}, used)
    user = replace(user, headers=(*user.headers, ("cuda_fp16.h", "#define N 1\n")))
    with raises(FamilyError, "family-use", "used.cuh", "cuda_fp16.h"):
        check_uses({"used": used, "user": user})


@pytest.mark.parametrize("case", RIGHT)
def test_what_changes_nothing_is_not(case: str) -> None:
    check_uses(families(*RIGHT[case]))


@pytest.mark.slow
def test_a_header_that_both_have_is_named(tmp_path: Path) -> None:
    """Not the interface, which includes the one of its family."""
    files = group("first", '#include "types.cuh"\n__device__ a first();\n', "__device__ a first() { return {}; }")
    files |= group("second", '#include "types.cuh"\n__device__ b second();\n', "__device__ b second() { return {}; }")
    files |= {"first/types.cuh": f"{ONCE}struct a {{}};\n", "second/types.cuh": f"{ONCE}struct b {{}};\n"}
    write_family(tmp_path, files | {"user/family.toml": USER, "user/m.json": "{}", "user/t.cu.jinja": KERNEL})
    with raises(FamilyError, "family-use", "'types.cuh'", "second", hint="types.cuh"):
        RenderedFamilies([load_family(tmp_path / "user" / "family.toml")])


def test_a_template_of_a_used_family_is_specialised_by_nobody_else() -> None:
    check_uses(families("", "template <class T> struct traits {};\n"))
    with raises(FamilyError, "family-use", "traits", "user.cuh:2", "second.cuh:2"):
        check_uses(families("", "template <class T> struct traits {};\n", user="template <> struct traits<int> {};\n"))
    macro = "template <class T> struct traits {};\n#define SPECIAL(T) template <> struct traits<T> {}\n"
    with raises(FamilyError, "family-use", "traits", "user.cuh", "second.cuh:2"):
        check_uses(families("", macro, user="SPECIAL(int);\n"))


def test_each_header_of_a_long_chain_is_read_once() -> None:
    chain: list[FamilyRecord] = []
    for number in range(20):
        headers = {name: text for used in chain for name, text in used.headers}
        headers[f"f{number}.cuh"] = f"{ONCE}template <class T> T f{number}(T x);\n"
        chain.append(record(f"f{number}", headers, *chain[-1:]))
    before = read_declarations.cache_info().misses
    check_uses({each.name: each for each in chain})
    assert read_declarations.cache_info().misses - before <= len(chain)


def group(name: str, interface: str, definition: str, *, uses: tuple[str, ...] = ()) -> dict[str, str]:
    """A family whose one group has one fragment."""
    toml = f'[family]\nname = "{name}"\n[use]\n' + "".join(f'{each} = "../{each}"\n' for each in uses)
    toml += f'[device.{name}_group]\nmatrix = "m.json"\ntemplate = "t.cu.jinja"\nkey = ["{name}_key"]\n'
    return {
        f"{name}/family.toml": f'{toml}interface = "{name}.cuh"\n',
        f"{name}/m.json": f'{{"{name}_key": "one"}}',
        f"{name}/{name}.cuh": ONCE + interface,
        f"{name}/t.cu.jinja": f"{definition} // {{{{{name}_key}}}}\n",
    }


@pytest.mark.slow
def test_an_interface_of_a_used_family_that_leaves_pack_open_is_named(tmp_path: Path, cache: Cache) -> None:
    first = group("first", "#pragma pack(1)\n__device__ float first();\n", "__device__ float first() { return 1; }")
    second = group("second", f"namespace lib {{ {VALUE} }}\n", "__device__ float lib::value(int x) { return x; }")
    user = {"user/family.toml": USER, "user/m.json": "{}", "user/t.cu.jinja": KERNEL}
    write_family(tmp_path, first | second | user)
    with raises(BuildError, "build-interface-pack", "first.cuh leaves", where="first.cuh:2"):
        build([load_family(tmp_path / "user" / "family.toml")], tmp_path / "user.fragdb", jobs=1, cache=cache)


USER = """[family]
name = "user"
[use]
first = "../first"
second = "../second"
[entrypoint.kern]
matrix = "m.json"
template = "t.cu.jinja"
"""
KERNEL = "__global__ void kern(float* x) { *x = lib::value(3) + first(); }\n"
DEFAULT = "#ifndef real\n#define real int\n#endif\nnamespace lib { __device__ real value(int x); }\n"
ALIAS = "using real = int;\nnamespace lib { __device__ real value(int x); }\n"
TRAITS = '#include "traits.cuh"\nnamespace lib { __device__ traits<int>::type value(int x); }\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "second", "is_right"),
    [
        ("#define real float\n", DEFAULT, False),
        ("#define real float\n#undef real\n", DEFAULT, True),
        ("namespace lib { using real = float; }\n", ALIAS, False),
        ("namespace other { using real = float; }\n", ALIAS, True),
        ('#include "traits.cuh"\ntemplate <> struct traits<int> { using type = float; };\n', TRAITS, False),
        ('#include "traits.cuh"\n', TRAITS, True),
    ],
)
def test_the_linked_kernel_holds_what_both_mean(
    tmp_path: Path, cache: Cache, left: str, second: str, is_right: bool
) -> None:
    """An int of 7 that is taken for a float would be stored as a number near zero."""
    first = group("first", f"{left}__device__ float first();\n", "__device__ float first() { return 1; }")
    files = first | group("second", second, "__device__ int lib::value(int x) { return x + 4; }")
    files |= {"shared/traits.cuh": f"{ONCE}template <class T> struct traits {{ using type = T; }};\n"}
    files |= {"user/family.toml": USER, "user/m.json": "{}", "user/t.cu.jinja": KERNEL}
    shared = '"\ninclude = [".", "../shared"]\n[use]'
    write_family(tmp_path, {path: text.replace('"\n[use]', shared) for path, text in files.items()})
    family = load_family(tmp_path / "user" / "family.toml")
    if not is_right:
        with raises(FamilyError, "family-use", "user"):
            build([family], tmp_path / "user.fragdb", jobs=1, cache=cache)
        return
    build([family], tmp_path / "user.fragdb", jobs=1, cache=cache)
    with FragmentDatabase(tmp_path / "user.fragdb") as database:
        planner = KernelFamily("user", database)
        assert "1090519040" in planner.plan(arch="sm_90").link_ptx()  # 8.0
        source = "__device__ float first() { return lib::value(1) - 1; }"
        assert "1093664768" in planner.planner().add_source(source).plan(arch="sm_90").link_ptx()  # 11.0
