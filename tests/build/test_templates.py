"""Rendering: one source a combination, in order; and errors that name file, line, group and combination."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.build.templates import RenderedSource, describe, matrix_warnings, render_family
from jitlto.errors import FamilyError, MatrixError, RenderError
from jitlto.storage import declaration
from tests.support.families import MINI, write_family


def render(directory: Path, **files: str) -> list[RenderedSource]:
    return list(
        render_family(
            declaration.load(write_family(directory, MINI | {n.replace("__", "."): t for n, t in files.items()}))
        )
    )


def failure(directory: Path, **files: str) -> RenderError:
    with pytest.raises(RenderError) as caught:
        render(directory, **files)
    return caught.value


def test_count_and_order(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert [str(r.key) for r in rendered] == [
        "mini/kern[data_type=float]",
        "mini/kern[data_type=double]",
        "mini/op[data_type=float,op_name=twice]",
        "mini/op[data_type=double,op_name=twice]",
        "mini/op[data_type=float,op_name=square]",
        "mini/op[data_type=double,op_name=square]",
    ]


def test_what_is_rendered(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert "template __global__ void kern<double>(double*, unsigned);\n" in rendered[1].text
    assert rendered[1].params == ("double* x", "unsigned n")
    assert "return a * a;" in rendered[4].text
    assert rendered[4].combination == {"data_type": "float", "op_name": "square", "expr": "a * a"}
    assert rendered[4].text.endswith("}\n")


def test_the_origin_names_template_group_and_combination(tmp_path: Path) -> None:
    assert render(tmp_path)[1].origin == f"{tmp_path / 'kern.cu.jinja'} (group kern, data_type=double)"
    assert describe({}) == "the empty combination"


def test_cpp_is_not_escaped_and_other_syntaxes_are_left_alone(tmp_path: Path) -> None:
    text = "// <&'\"> @data_type@ ${x}\n{{data_type}}"
    assert render(tmp_path, kern__cu__jinja=text)[0].text == "// <&'\"> @data_type@ ${x}\nfloat"


CMAKE = (
    MINI["family.toml"]
    .replace("[entrypoint.kern]", '[entrypoint.kern]\nsyntax = "cmake"')
    .replace("{{data_type}}* x", "@data_type@* x")
)


def test_cmake_placeholders(tmp_path: Path) -> None:
    text = "@data_type@ x; // {{data_type}} a@b.c @ @@ @!p bra @data_type@@data_type@ @a-b/c.d+1@\nlast"
    matrix = '{"data_type": "float", "a-b/c.d+1": "odd"}'
    rendered = render(tmp_path, family__toml=CMAKE, kern__cu__jinja=text, kern__json=matrix)
    assert rendered[0].text == "float x; // {{data_type}} a@b.c @ @@ @!p bra floatfloat odd\nlast"
    assert rendered[0].params == ("float* x", "unsigned n")


UNDEFINED = pytest.mark.parametrize(
    ("toml", "placeholder"), [(MINI["family.toml"], "{{ data_typ }}"), (CMAKE, "@data_typ@")], ids=["jinja", "cmake"]
)


@UNDEFINED
def test_an_undefined_name(tmp_path: Path, toml: str, placeholder: str) -> None:
    error = failure(tmp_path, family__toml=toml, kern__cu__jinja=f"// one\n// two\n{placeholder} x;\n// four\n")
    assert error.where == f"{tmp_path / 'kern.cu.jinja'}:3"
    assert "'data_typ' is undefined" in error.what
    assert "group kern" in error.what
    assert "data_type=float" in error.what
    assert "data_type" in str(error.hint)


@UNDEFINED
def test_an_undefined_name_in_params(tmp_path: Path, toml: str, placeholder: str) -> None:
    error = failure(tmp_path, family__toml=toml.replace('"unsigned n"', f'"{placeholder} n"'))
    assert error.where == f"{tmp_path / 'family.toml'} [entrypoint.kern]"
    assert "'data_typ' is undefined" in error.what
    assert f"{placeholder} n" in error.what
    assert "data_type=float" in error.what


@pytest.mark.parametrize("entry", ["{{ 1 / 0 }} n", "{{ data_type", "{{ data_type + 1 }} n", "{% include 'no' %}"])
def test_params_that_cannot_be_rendered(tmp_path: Path, entry: str) -> None:
    error = failure(tmp_path, family__toml=MINI["family.toml"].replace("unsigned n", entry))
    assert error.where == f"{tmp_path / 'family.toml'} [entrypoint.kern]"
    assert entry in error.what


def test_an_undefined_name_in_an_included_template(tmp_path: Path) -> None:
    for name in ("part.jinja", "sub/part.jinja"):
        files = {
            "kern__cu__jinja": f"// one\n{{% include '{name}' %}}\n",
            name: "// one\n// two\n// three\n{{ nobody }}\n",
        }
        error = failure(tmp_path, **files)
        assert error.where == f"{tmp_path / name}:4"
        assert "'nobody' is undefined (group kern, data_type=float)" in error.what


def test_includes_macros_and_conditions_work(tmp_path: Path) -> None:
    text = "{% include 'part.jinja' %}{% if data_type == 'float' %}F{% else %}D{% endif %}"
    assert [r.text for r in render(tmp_path, kern__cu__jinja=text, part__jinja="{{data_type}} ")[:2]] == [
        "float F",
        "double D",
    ]


def test_an_include_of_nothing(tmp_path: Path) -> None:
    error = failure(tmp_path, kern__cu__jinja="\n\n{% include 'none.jinja' %}\n")
    assert error.where == f"{tmp_path / 'kern.cu.jinja'}:3"
    assert "none.jinja" in error.what


@pytest.mark.parametrize("broken", ["{% if %}", "{{ }}", "{% endfor %}", "{{ x", "{% unknown %}", "{{ a b }}"])
def test_a_malformed_template(tmp_path: Path, broken: str) -> None:
    error = failure(tmp_path, kern__cu__jinja=f"// one\n{broken}\n")
    assert str(error.where).startswith(f"{tmp_path / 'kern.cu.jinja'}:2")
    assert "group kern" in error.what


@pytest.mark.parametrize(
    "expression", ["1 / 0", "data_type + 1", "data_type.nothing", "data_type[0][1]", "data_type()"]
)
def test_an_expression_that_fails(tmp_path: Path, expression: str) -> None:
    error = failure(tmp_path, kern__cu__jinja=f"// one\n// two\n{{{{ {expression} }}}}\n")
    assert error.where == f"{tmp_path / 'kern.cu.jinja'}:3"
    assert "data_type=float" in error.what


@pytest.mark.parametrize("toml", [MINI["family.toml"], CMAKE], ids=["jinja", "cmake"])
def test_a_template_that_is_no_text(tmp_path: Path, toml: str) -> None:
    path = write_family(tmp_path, MINI | {"family.toml": toml})
    (tmp_path / "kern.cu.jinja").write_bytes(b"// caf\xe9\n")
    with pytest.raises(RenderError) as caught:
        list(render_family(declaration.load(path)))
    assert str(caught.value.where).startswith(str(tmp_path / "kern.cu.jinja"))


def test_two_combinations_with_one_key(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('key = ["data_type", "op_name"]', 'key = ["data_type"]')
    with pytest.raises(FamilyError) as caught:
        render(tmp_path, family__toml=toml)
    error = caught.value
    assert error.where == f"{tmp_path / 'family.toml'} [device.op]"
    assert "mini/op[data_type=float]" in error.what
    assert "op_name=twice" in error.what
    assert "op_name=square" in error.what


def test_a_key_parameter_that_a_combination_lacks(tmp_path: Path) -> None:
    with pytest.raises(FamilyError) as caught:
        render(tmp_path, kern__json='[{"data_type": "float"}, {"other": "double"}]')
    assert caught.value.where == f"{tmp_path / 'family.toml'} [entrypoint.kern]"
    assert "'data_type'" in caught.value.what
    assert "other=double" in caught.value.what
    assert str(tmp_path / "kern.json") in caught.value.what


def test_a_malformed_matrix_is_named(tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as caught:
        render(tmp_path, kern__json='{"data_type": [')
    assert str(tmp_path / "kern.json") in str(caught.value)


def test_naming_advice_names_the_file(tmp_path: Path) -> None:
    path = write_family(tmp_path, MINI | {"kern.json": '{"data": {"data_type": ["float"]}}'})
    (advice,) = matrix_warnings(declaration.load(path))
    assert str(tmp_path / "kern.json") in advice
    assert "_data" in advice


def test_groups_that_callers_supply_are_not_rendered(tmp_path: Path) -> None:
    toml = MINI["family.toml"] + '\n[device.user]\ninterface = "op.cuh"\n'
    assert {r.group.name for r in render(tmp_path, family__toml=toml)} == {"kern", "op"}
