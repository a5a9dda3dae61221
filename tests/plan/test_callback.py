"""Device functions for libraries that link them themselves."""

from pathlib import Path

import pytest

from jitlto.base.errors import ArchitectureError, PlanError, UnknownValueError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture
from jitlto.cuda import nvfatbin
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.plan.user_code.inputs import make_stub
from jitlto.runtime.family import KernelFamily
from tests.support.callbacks import CALLBACKS, callbacks
from tests.support.errors import raises
from tests.support.families import built

TYPE = '{"type": ["float"]}'


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return callbacks(tmp_path_factory.mktemp("callbacks"))


@pytest.mark.parametrize("group", ["scale", "shift"])
@pytest.mark.parametrize("type_name", ["float", "double"])
def test_a_callback_is_a_name_and_ltoir_that_links(family: KernelFamily, group: str, type_name: str) -> None:
    name, data = family.callback(group, type=type_name, arch="sm_90")
    assert name == group
    (fragment,) = (
        each for each in family.database.fragments() if str(each.key) == f"callbacks/{group}[type={type_name}]"
    )
    symbol = fragment.provides[0].name
    assert demangle(symbol).startswith(f"{group}(void*, unsigned long long, ")
    assert nvfatbin.find_fatbins(data) == [[("ltoir", (75, ""))]]
    linked = link(
        [LinkInput(InputKind.FATBIN, data, "callback"), make_stub([symbol], None)], Architecture(90), ["-lto"]
    )
    assert linked.data.startswith(b"\x7fELF")
    assert family.callback(group, type=type_name, arch="sm_120")[1] == data


def test_values_name_one_fragment(family: KernelFamily) -> None:
    with raises(PlanError, "plan-unknown-fragment", "callbacks/scale[]", hint="give type"):
        family.callback("scale", arch="sm_90")
    with raises(UnknownValueError, None, "half", hint="double, float"):
        family.callback("scale", type="half", arch="sm_90")
    with raises(PlanError, "plan-unknown-fragment", "callbacks/load[type=float]"):
        family.callback("load", type="float", arch="sm_90")


def test_kernels_and_instantiations_of_templates_are_no_callbacks(mini: KernelFamily) -> None:
    with raises(PlanError, "plan-callback", "mini/op[data_type=float,op_name=twice]", "mini::op<float>"):
        mini.callback("op", data_type="float", op_name="twice", arch="sm_90")
    with raises(PlanError, "plan-callback", "mini/kern[data_type=float]"):
        mini.callback("kern", data_type="float", arch="sm_90")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__device__ void shift(float* x) { *x = 1; }\n__device__ void other() {}", ["other(), shift(float*)"]),
        (
            "__device__ int other(int);\n__device__ int shift(int x) { return other(x); }",
            ["requires other(int)"],
        ),
        ("__device__ int shift = 1;", ["defines shift"]),
    ],
)
def test_what_is_not_one_function_by_itself_is_no_callback(tmp_path: Path, text: str, names: list[str]) -> None:
    family = built(
        tmp_path, CALLBACKS | {"shift.cu.jinja": f"// {{{{type}}}}\n{text}\n", "types.json": TYPE}, "callbacks"
    )
    with raises(PlanError, "plan-callback", "callbacks/shift[type=float]", *names, hint="static"):
        family.callback("shift", type="float", arch="sm_90")


@pytest.mark.parametrize(("begin", "end"), [('extern "C" {', "}"), ("namespace mine {", "}")])
def test_what_a_library_cannot_declare_by_its_name_is_no_callback(tmp_path: Path, begin: str, end: str) -> None:
    shift = f"{begin}\n{CALLBACKS['shift.cu.jinja']}{end}\n"
    family = built(tmp_path, CALLBACKS | {"shift.cu.jinja": shift, "types.json": TYPE}, "callbacks")
    with raises(PlanError, "plan-callback", "callbacks/shift[type=float]", hint="C++"):
        family.callback("shift", type="float", arch="sm_90")


def test_ltoir_is_for_architectures_as_in_a_link(tmp_path: Path) -> None:
    toml = CALLBACKS["family.toml"].replace('"callbacks"\n', '"callbacks"\narchs = ["75", "90a"]\n')
    family = built(tmp_path, CALLBACKS | {"family.toml": toml, "types.json": TYPE}, "callbacks")
    for arch, code in (("sm_80", (75, "")), ("sm_90a", (90, "a"))):
        assert nvfatbin.find_fatbins(family.callback("scale", type="float", arch=arch)[1]) == [[("ltoir", code)]]
    with raises(ArchitectureError, "link-architecture", "callbacks/scale[type=float]"):
        family.callback("scale", type="float", arch="sm_70")
