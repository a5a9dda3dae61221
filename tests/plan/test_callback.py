"""Device functions for libraries that link them themselves."""

from pathlib import Path

import pytest

from jitlto.base.errors import ArchitectureError, PlanError, UnknownValueError
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
def test_a_callback_is_a_symbol_and_ltoir_that_links(family: KernelFamily, group: str, type_name: str) -> None:
    symbol, data = family.callback(group, type=type_name, arch="sm_90")
    assert symbol == group
    assert [str(image.architecture) for image in nvfatbin.list_images(data)] == ["75"]
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


def test_a_template_may_be_a_callback_and_a_kernel_is_none(mini: KernelFamily) -> None:
    symbol, _ = mini.callback("op", data_type="float", op_name="twice", arch="sm_90")
    assert symbol == "_ZN4mini2opIfEET_S1_"
    with raises(PlanError, "plan-callback", "mini/kern[data_type=float]"):
        mini.callback("kern", data_type="float", arch="sm_90")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('extern "C" __device__ void shift(float* x) { *x = 1; }\n__device__ void other() {}', ["other(), shift"]),
        (
            '__device__ int other(int);\nextern "C" __device__ int shift(int x) { return other(x); }',
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


def test_ltoir_is_for_architectures_as_in_a_link(tmp_path: Path) -> None:
    toml = CALLBACKS["family.toml"].replace('"callbacks"\n', '"callbacks"\narchs = ["75", "90a"]\n')
    family = built(tmp_path, CALLBACKS | {"family.toml": toml, "types.json": TYPE}, "callbacks")
    images = {
        arch: nvfatbin.list_images(family.callback("scale", type="float", arch=arch)[1]) for arch in ("sm_80", "sm_90a")
    }
    assert {arch: str(image.architecture) for arch, (image,) in images.items()} == {"sm_80": "75", "sm_90a": "90a"}
    with raises(ArchitectureError, "link-architecture", "callbacks/scale[type=float]"):
        family.callback("scale", type="float", arch="sm_70")
