"""A key parameter on which no source depends is named: asking for another of its values would give the same kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import FamilyError, RenderError
from jitlto.families.declaration import GroupDeclaration, load_family
from jitlto.families.same_sources import SameSources
from jitlto.families.templates import RenderedSource, render_family
from jitlto.record.fragment import FragmentKey, Role
from tests.support.errors import raises
from tests.support.families import write_family

TOML = """[family]
name = "f"
[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type", "veclen"]
"""
FILES = {
    "family.toml": TOML,
    "kern.json": '{"data_type": ["float", "double"], "veclen": ["4", "8"]}',
    "kern.cu.jinja": "template __global__ void kern<{{data_type}}, {{veclen}}>();\n",
}


def render(directory: Path, text: str, toml: str = TOML) -> list[RenderedSource]:
    return list(
        render_family(load_family(write_family(directory, FILES | {"kern.cu.jinja": text, "family.toml": toml})))
    )


def shared(*names: str) -> str:
    return TOML + f"shared = {json.dumps(names)}\n"


def test_a_key_parameter_that_the_source_does_not_use(tmp_path: Path) -> None:
    names = ["f/kern[data_type=float,veclen=4]", "f/kern[data_type=float,veclen=8]"]
    with raises(FamilyError, "family-same-source", *names, where="family.toml [entrypoint.kern]", hint='["veclen"]'):
        render(tmp_path, "template __global__ void kern<{{data_type}}, 4>();\n")


def test_several_that_it_does_not_use(tmp_path: Path) -> None:
    with raises(FamilyError, "family-same-source", "data_type and veclen change nothing", hint="remove them"):
        render(tmp_path, "__global__ void kern();\n")


def test_what_the_error_advises_helps(tmp_path: Path) -> None:
    text = "template __global__ void kern<{{data_type}}, 4>();\n"
    assert len(render(tmp_path / "used", text.replace("4", "{{veclen}}"))) == 4
    assert len(render(tmp_path / "shared", text, shared("veclen"))) == 4
    removed = FILES | {
        "family.toml": TOML.replace(', "veclen"', ""),
        "kern.json": '{"data_type": ["float", "double"]}',
        "kern.cu.jinja": text,
    }
    assert len(list(render_family(load_family(write_family(tmp_path / "removed", removed))))) == 2


def test_all_such_parameters_are_named_at_once(tmp_path: Path) -> None:
    with raises(FamilyError, "family-same-source", hint='["data_type", "veclen"]'):
        render(tmp_path, "template __global__ void kern<float, 4>();\n")


@pytest.mark.parametrize(
    "text",
    [
        "// for {{veclen}}\nint {{data_type}};", "/* {{veclen}} */ int {{data_type}};",
        "int /* {{veclen}}\n*/\n\n {{data_type}};",
        "int {{data_type}}; {{ ' ' * (veclen|int) }}", "{{ '\\n' * (veclen|int) }}int {{data_type}};",
        "int {{data_type}}; // {{veclen}} \\\n   {{veclen}}", "char a[] = \"\\\"\"; // {{veclen}}\nint {{data_type}};",
        "int a = 1'000'000; // {{veclen}}'\nint {{data_type}};",
        "{% if veclen == '16' %}8{% else %}4{% endif %} {{data_type}}",
        "{% if data_type == 'float' %}4{% else %}{{veclen}}{% endif %} {{data_type}}",
    ],
)  # fmt: skip
def test_comments_and_blanks_make_no_difference(tmp_path: Path, text: str) -> None:
    with raises(FamilyError, "family-same-source", "veclen", where="family.toml [entrypoint.kern]"):
        render(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        'char a[] = "// {{veclen}}"; {{data_type}}', "char a[] = R\"x(\" // {{veclen}} )x\"; {{data_type}}",
        "'/*'; {{veclen}}; '*/' {{data_type}}",
        'char a[] = "{{ " " * (veclen|int) }}"; {{data_type}}', "#define V {{veclen}}\n{{data_type}}",
        "#define V{{ '\\n' if veclen == '4' else '' }} x {{data_type}}",
        '#include "{{veclen}}.cuh"\n{{data_type}}', "a\\\n{{veclen}} {{data_type}}",
        "0x1'000 /* {{data_type}} */ {{data_type}} 1'{{veclen}}",
    ],
)  # fmt: skip
def test_everything_else_does(tmp_path: Path, text: str) -> None:
    assert len(render(tmp_path, text)) == 4


def test_params_make_no_difference(tmp_path: Path) -> None:
    with raises(FamilyError, "family-same-source", "veclen"):
        render(tmp_path, "{{data_type}}", TOML + 'params = ["int* x{{veclen}}"]\n')


def test_cmake_templates_are_compared_too(tmp_path: Path) -> None:
    with raises(FamilyError, "family-same-source", "veclen"):
        render(tmp_path, "@data_type@", TOML.replace("key =", 'syntax = "cmake"\nkey ='))


def test_shared_parameters_are_allowed(tmp_path: Path) -> None:
    assert len(render(tmp_path, "{{data_type}}", shared("veclen"))) == 4
    assert len(render(tmp_path, "x", shared("veclen", "data_type"))) == 4


def test_they_are_allowed_for_some_of_the_keys_alone(tmp_path: Path) -> None:
    text = "{% if data_type == 'float' %}4{% else %}{{veclen}}{% endif %} {{data_type}}"
    assert len(render(tmp_path, text, shared("veclen"))) == 4


def test_a_parameter_is_not_shared_along_with_another(tmp_path: Path) -> None:
    with raises(FamilyError, "family-same-source", "data_type", hint='["veclen", "data_type"]'):
        render(tmp_path, "x", shared("veclen"))


def test_shared_that_is_not_needed(tmp_path: Path) -> None:
    with raises(FamilyError, "family-unneeded-shared", "data_type", where="family.toml [entrypoint.kern]"):
        render(tmp_path, "{{data_type}}", shared("veclen", "data_type"))
    with raises(FamilyError, "family-unneeded-shared", "veclen"):
        render(tmp_path, FILES["kern.cu.jinja"], shared("veclen"))


def test_shared_that_is_not_in_the_key(tmp_path: Path) -> None:
    with raises(FamilyError, "family-invalid-value", "'veclem'", hint="veclen", where="family.toml [entrypoint.kern]"):
        render(tmp_path, "x", shared("veclem"))


def test_combinations_that_fail_do_not_make_shared_unneeded(tmp_path: Path) -> None:
    text = "{{data_type}}{% if veclen == '8' %}{{ nothing }}{% endif %}"
    family = load_family(write_family(tmp_path, FILES | {"kern.cu.jinja": text, "family.toml": shared("veclen")}))
    errors: list[RenderError] = []
    assert len(list(render_family(family, on_error=lambda _, error: errors.append(error)))) == 2
    assert len(errors) == 2


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from(["", "1", "2", "3"])),
        max_size=6, unique_by=lambda row: row[:2],
    ),
    st.sets(st.sampled_from(["p", "q"])),
)  # fmt: skip
def test_two_keys_have_one_source_only_if_all_in_which_they_differ_is_shared(
    rows: list[tuple[str, str, str]], names: set[str]
) -> None:
    group = GroupDeclaration(
        "g", Role.DEVICE, None, None, ("p", "q"), (), None, None, "jinja", tuple(sorted(names))
    )  # fmt: skip
    same = SameSources(group)
    same.has_gaps = True
    for p, q, text in rows:
        same.add(FragmentKey.make("f", "g", {"p": p, "q": q}), text)
    clash = any(
        a[2] == b[2] and ((a[0] != b[0] and "p" not in names) or (a[1] != b[1] and "q" not in names))
        for a in rows
        for b in rows
    )
    try:
        same.check("")
    except FamilyError:
        assert clash
    else:
        assert not clash
