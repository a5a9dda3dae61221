"""Rendering: one source a combination, in order; and errors that name file, line, group and combination."""

import json
import re
from pathlib import Path

import pytest

from jitlto.base.errors import FamilyError, RenderError
from jitlto.families import declaration
from jitlto.families.templates import RenderedSource, render_family
from tests.support.errors import raises
from tests.support.families import MINI, write_family


def render(directory: Path, **files: str) -> list[RenderedSource]:
    return list(
        render_family(
            declaration.load_family(write_family(directory, MINI | {n.replace("__", "."): t for n, t in files.items()}))
        )
    )


def failure(directory: Path, code: str, *names: str, where: str, **files: str) -> RenderError:
    with raises(RenderError, code, *names) as caught:
        render(directory, **files)
    assert re.sub(r"(:\d+)+(?= in)", "", str(caught.value.where)) == str(directory / where)
    assert isinstance(caught.value, RenderError)
    return caught.value


def test_what_is_rendered(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert "template __global__ void kern<double>(double*, unsigned);\n" in rendered[1].text
    assert rendered[1].params == ("double* x", "unsigned n")
    assert "return a * a;" in rendered[4].text
    assert rendered[4].combination == {"data_type": "float", "op_name": "square", "expr": "a * a"}
    assert rendered[4].text.endswith("}\n")


def test_directories_of_templates_are_searched_behind_the_familys_own(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\ntemplates = ["../vendor/jit", "../vendor"]')
    vendored = {
        "vendor/jit/op.cu.jinja": "{% from 'names.jinja' import called %}{% include 'deep/body.jinja' %}",
        "vendor/names.jinja": "{% macro called(name) %}called_{{name}}{% endmacro %}",
        "vendor/jit/deep/body.jinja": "int {{called(op_name)}}_{{data_type}};\n{{expr}}",
        "vendor/kern.cu.jinja": "not this one",
    }
    files = {f"fam/{name}": text for name, text in MINI.items() if name != "op.cu.jinja"} | vendored
    write_family(tmp_path, files | {"fam/family.toml": toml})
    sources = [each.text for each in render_family(declaration.load_family(tmp_path / "fam" / "family.toml"))]
    assert "kern<float>" in sources[0]
    assert sources[-1] == "int called_square_double;\na * a"
    (tmp_path / "vendor" / "jit" / "deep" / "body.jinja").write_text("\n{{ op_nam }}")
    with raises(RenderError, "render-undefined", "op_nam", where="vendor/jit/deep/body.jinja:2"):
        list(render_family(declaration.load_family(tmp_path / "fam" / "family.toml")))


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
    text = f"// one\n// two\n{placeholder} x;\n// four\n"
    names = ["'data_typ'", "group kern", "data_type=float", "did you mean 'data_type'?"]
    files = {"family__toml": toml, "kern__cu__jinja": text}
    failure(tmp_path, "render-undefined", *names, where="kern.cu.jinja:3", **files)


@UNDEFINED
def test_an_undefined_name_in_params(tmp_path: Path, toml: str, placeholder: str) -> None:
    names = ["'data_typ'", f"{placeholder} n", "data_type=float", "did you mean 'data_type'?"]
    toml = toml.replace('"unsigned n"', f'"{placeholder} n"')
    failure(tmp_path, "render-undefined", *names, where="family.toml in [entrypoint.kern]", family__toml=toml)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{{ 1 / 0 }} n", "render-failed"),
        ("{{ data_type", "render-syntax"),
        ("{{ data_type + 1 }} n", "render-text-as-number"),
        ("{% include 'no' %}", "render-missing-template"),
    ],
)
def test_params_that_cannot_be_rendered(tmp_path: Path, entry: str, code: str) -> None:
    toml = MINI["family.toml"].replace("unsigned n", entry)
    failure(tmp_path, code, entry, where="family.toml in [entrypoint.kern]", family__toml=toml)


def test_an_undefined_name_in_an_included_template(tmp_path: Path) -> None:
    for name in ("part.jinja", "sub/part.jinja"):
        files = {
            "kern__cu__jinja": f"// one\n{{% include '{name}' %}}\n",
            name: "// one\n// two\n// three\n{{ nobody }}\n",
        }
        names = ["'nobody'", "group kern", "data_type=float"]
        failure(tmp_path, "render-undefined", *names, where=f"{name}:4", **files)


@pytest.mark.parametrize("broken", ["{% if %}", "{{ }}", "{% endfor %}", "{{ x", "{% unknown %}", "{{ a b }}"])
def test_a_malformed_template(tmp_path: Path, broken: str) -> None:
    text = f"// one\n{broken}\n"
    failure(tmp_path, "render-syntax", "group kern", where="kern.cu.jinja:2", kern__cu__jinja=text)


@pytest.mark.parametrize("toml", [MINI["family.toml"], CMAKE], ids=["jinja", "cmake"])
def test_a_template_that_is_not_text(tmp_path: Path, toml: str) -> None:
    path = write_family(tmp_path, MINI | {"family.toml": toml})
    (tmp_path / "kern.cu.jinja").write_bytes(b"// caf\xe9\n")
    with raises(RenderError, "render-unreadable", where="kern.cu.jinja"):
        list(render_family(declaration.load_family(path)))


def test_the_first_error_is_raised(tmp_path: Path) -> None:
    family = declaration.load_family(write_family(tmp_path, MINI | {"op.cu.jinja": "{{ expr // 2 }}"}))
    with raises(RenderError, "render-failed", "op_name=twice"):
        list(render_family(family))


def test_two_combinations_with_one_key(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('key = ["data_type", "op_name"]', 'key = ["data_type"]')
    names = ["mini/op[data_type=float]", "op_name=twice", "op_name=square"]
    with raises(FamilyError, "family-duplicate-key", *names, where="family.toml in [device.op]", hint="op_name"):
        render(tmp_path, family__toml=toml)


def test_a_key_parameter_that_a_combination_lacks(tmp_path: Path) -> None:
    names = ["'data_type'", "other=double", str(tmp_path / "kern.json")]
    with raises(FamilyError, "family-missing-key-parameter", *names, where="family.toml in [entrypoint.kern]"):
        render(tmp_path, kern__json='[{"data_type": "float"}, {"other": "double"}]')


def test_groups_that_callers_supply_are_not_rendered(tmp_path: Path) -> None:
    toml = MINI["family.toml"] + '\n[device.user]\nsupplied = true\ninterface = "op.cuh"\n'
    assert {r.group.name for r in render(tmp_path, family__toml=toml)} == {"kern", "op"}


# --- keys that have one source ---

TWO_KEYS = """[family]
name = "f"
[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type", "veclen"]
"""


def render_two(directory: Path, text: str, *shared: str) -> int:
    toml = TWO_KEYS + f"shared = {json.dumps(shared)}\n"
    matrix = '{"data_type": ["float", "double"], "veclen": ["4", "8"]}'
    path = write_family(directory, {"family.toml": toml, "kern.json": matrix, "kern.cu.jinja": text})
    return len(list(render_family(declaration.load_family(path))))


@pytest.mark.parametrize(
    "text",
    [
        "template __global__ void kern<{{data_type}}, 4>();\n",
        "// for {{veclen}}\nint {{data_type}};", "int /* {{veclen}}\n*/\n\n {{data_type}};",
        "{{ '\\n' * (veclen|int) }}int {{data_type}};", "int {{data_type}}; // {{veclen}} \\\n   {{veclen}}",
        "char a[] = \"\\\"\"; // {{veclen}}\nint {{data_type}};",
        "int a = 1'000'000; // {{veclen}}'\nint {{data_type}};",
        "{% if data_type == 'float' %}4{% else %}{{veclen}}{% endif %} {{data_type}}",
    ],
)  # fmt: skip
def test_a_key_parameter_on_which_no_source_depends_is_refused(tmp_path: Path, text: str) -> None:
    names = ["veclen=4", "veclen=8", "depends on veclen"]
    with raises(FamilyError, "family-same-source", *names, where="family.toml in [entrypoint.kern]", hint='["veclen"]'):
        render_two(tmp_path, text)
    assert render_two(tmp_path, text, "veclen") == 4


@pytest.mark.parametrize(
    "text",
    [
        'char a[] = "// {{veclen}}"; {{data_type}}', "char a[] = R\"x(\" // {{veclen}} )x\"; {{data_type}}",
        "'/*'; {{veclen}}; '*/' {{data_type}}", 'char a[] = "{{ " " * (veclen|int) }}"; {{data_type}}',
        "#define V{{ '\\n' if veclen == '4' else '' }} x {{data_type}}", "a\\\n{{veclen}} {{data_type}}",
        "0x1'000 /* {{data_type}} */ {{data_type}} 1'{{veclen}}",
    ],
)  # fmt: skip
def test_all_but_comments_and_blanks_makes_a_source_another(tmp_path: Path, text: str) -> None:
    assert render_two(tmp_path, text) == 4


def test_shared_names_what_is_shared(tmp_path: Path) -> None:
    assert render_two(tmp_path, "x", "veclen", "data_type") == 4
    with raises(FamilyError, "family-same-source", "depends on veclen", hint="remove it"):
        render_two(tmp_path, "x")
    with raises(FamilyError, "family-same-source", "data_type", hint='["veclen", "data_type"]'):
        render_two(tmp_path, "x", "veclen")
    with raises(FamilyError, "family-invalid-value", "'veclem'", hint="veclen"):
        render_two(tmp_path, "x", "veclem")
