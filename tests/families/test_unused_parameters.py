"""A key parameter that nothing uses is an error, and a parameter of a matrix that nothing uses is said."""

import json
from pathlib import Path

import pytest

from jitlto.base.errors import FamilyError
from jitlto.families.declaration import load_family
from jitlto.families.templates import render_family
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


def shared(*names: str) -> str:
    return TOML + f"shared = {json.dumps(names)}\n"


ONE = '{"data_type": ["float"], "veclen": ["4"]}'


def rendered(directory: Path, text: str, matrix: str = ONE, toml: str = TOML, **files: str) -> list[str]:
    """Render a family with one entrypoint; return the warnings."""
    files = {name.replace("__", "."): content for name, content in files.items()}
    own = {"family.toml": toml, "kern.json": matrix, "kern.cu.jinja": text}
    warnings: list[str] = []
    family = load_family(write_family(directory, FILES | own | files))
    assert list(render_family(family, on_warning=warnings.append))
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


def test_a_parameter_that_nothing_uses_at_all_gets_a_warning(tmp_path: Path) -> None:
    matrix = '{"data_type": ["float"], "_veclen": [{"veclen": "4", "rest": "0"}]}'
    (warning,) = rendered(tmp_path, FILES["kern.cu.jinja"], matrix)
    assert str(warning).startswith(f"{tmp_path}/kern.json:1:54: ") and "rest" in warning.message
    # Another group of the same matrix uses it.
    other = TOML + '[device.op]\nmatrix = "kern.json"\ntemplate = "op.jinja"\nkey = ["veclen"]\n'
    assert rendered(tmp_path, FILES["kern.cu.jinja"], matrix, other, op__jinja="{{veclen}} {{rest}}") == []
