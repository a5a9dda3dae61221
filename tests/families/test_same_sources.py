"""A key parameter on which no source depends is named: asking for another of its values would give the same kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import FamilyError, RenderError
from jitlto.families.declaration import GroupDeclaration, load_family
from jitlto.families.rendered_texts import RenderedTexts
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
        same.add(FragmentKey.make("f", "g", {"p": p, "q": q}), {"p": p, "q": q}, text)
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


ONE = '{"data_type": ["float"], "veclen": ["4"]}'


def rendered(
    directory: Path, text: str, matrix: str = ONE, toml: str = TOML, known: RenderedTexts | None = None, **files: str
) -> list[str]:
    """Render a family with one entrypoint; return the warnings."""
    files = {name.replace("__", "."): content for name, content in files.items()}
    own = {"family.toml": toml, "kern.json": matrix, "kern.cu.jinja": text}
    warnings: list[str] = []
    family = load_family(write_family(directory, FILES | own | files))
    assert list(render_family(family, on_warning=warnings.append, known=known))
    return warnings


@pytest.mark.parametrize(
    "matrix",
    [
        ONE,
        '[{"data_type": "float", "veclen": "4"}, {"data_type": "double", "veclen": "8"}]',
        '{"data_type": ["float", "double"], "veclen": ["4"]}',
    ],
)
def test_a_key_parameter_that_nothing_uses_is_refused_although_all_sources_differ(tmp_path: Path, matrix: str) -> None:
    for text, syntax in (("{{data_type}}", ""), ("@data_type@", 'syntax = "cmake"\n')):
        with raises(FamilyError, "family-unused-key", "veclen", where="[entrypoint.kern]", hint='shared = ["veclen"]'):
            rendered(tmp_path, text, matrix, TOML + syntax)
    assert rendered(tmp_path, "{{data_type}}", matrix, shared("veclen")) == []


def test_what_uses_a_key_parameter(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{data_type}}{% if veclen == '8' %}8{% endif %}") == []
    assert rendered(tmp_path, "{% include 'more.jinja' %}", more__jinja="{{data_type}} {{veclen}}") == []
    assert rendered(tmp_path, "{{data_type}}", toml=TOML + 'params = ["vec{{veclen}} x"]\n') == []
    assert rendered(tmp_path, "@data_type@ @veclen@", toml=TOML + 'syntax = "cmake"\n') == []


def test_a_key_parameter_may_name_another_that_the_source_uses(tmp_path: Path) -> None:
    """As ``distance_name`` does for ``distance_header``, also where there is only one yet."""
    one, two = {"veclen": "few", "n": "4"}, {"veclen": "many", "n": "8"}
    for values in ([one], [one, two]):
        assert rendered(tmp_path, "{{data_type}} {{n}}", json.dumps({"data_type": "float", "_veclen": values})) == []
    # One that depends on both.
    types = [{"data_type": t, "veclen": v, "n": t + v} for t in ("float", "double") for v in ("4", "8")]
    assert rendered(tmp_path, "{{n}}", json.dumps(types)) == []
    # One that depends on the other alone.
    types = [{"data_type": t, "veclen": v, "n": t} for t, v in (("float", "4"), ("float", "8"), ("double", "4"))]
    with raises(FamilyError, "family-same-source", "veclen"):
        rendered(tmp_path, "{{n}}", json.dumps(types))


def test_a_key_parameter_may_tell_groups_apart(tmp_path: Path) -> None:
    group = '[device.%s]\nmatrix = "%s.json"\ntemplate = "%s.jinja"\nkey = ["metric"]\n'
    files = {f"{name}__jinja": f"// {name}" for name in ("one", "two")}
    files |= {f"{name}__json": json.dumps({"metric": name}) for name in ("one", "two")}
    toml = TOML + group % (("one",) * 3)
    with raises(FamilyError, "family-unused-key", "metric", where="[device.one]"):
        rendered(tmp_path, FILES["kern.cu.jinja"], toml=toml, **files)
    assert rendered(tmp_path, FILES["kern.cu.jinja"], toml=toml + group % (("two",) * 3), **files) == []
    lent = '[family]\nname = "f"\n' + group % (("one",) * 3)
    assert rendered(tmp_path, FILES["kern.cu.jinja"], toml=lent, **files) == []


def test_it_is_known_from_rendered_texts_that_are_stored(tmp_path: Path) -> None:
    known = RenderedTexts(CacheDir(tmp_path / "cache", 1 << 20))
    for _ in range(2):
        assert rendered(tmp_path / "fine", FILES["kern.cu.jinja"], known=known) == []
        with raises(FamilyError, "family-unused-key", "veclen"):
            rendered(tmp_path / "not", "{{data_type}}", known=known)


def test_a_parameter_that_nothing_uses_at_all_gets_a_warning(tmp_path: Path) -> None:
    matrix = '{"data_type": ["float"], "_veclen": [{"veclen": "4", "rest": "0"}]}'
    (warning,) = rendered(tmp_path, FILES["kern.cu.jinja"], matrix)
    assert "kern.json" in warning and "rest" in warning
    # Another group of the same matrix uses it.
    other = TOML + '[device.op]\nmatrix = "kern.json"\ntemplate = "op.jinja"\nkey = ["veclen"]\n'
    assert rendered(tmp_path, FILES["kern.cu.jinja"], matrix, other, op__jinja="{{veclen}} {{rest}}") == []
