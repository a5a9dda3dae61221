"""Families loaded from their sources: what is compiled, what edits change, and what stays as it is of a database."""

import copy
import logging
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jitlto
from jitlto.base.errors import (
    AmbiguousConfigurationError,
    CompileError,
    FamilyError,
    JitltoError,
    MatrixError,
    PlanError,
    RegistryError,
    RenderError,
    UnknownParameterError,
    UnknownValueError,
)
from jitlto.build.pipeline import build
from jitlto.cuda import device, nvfatbin
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from jitlto.source import family as source
from tests.support.callbacks import CALLBACKS
from tests.support.commands import fails
from tests.support.commands import jitlto as command
from tests.support.errors import raises
from tests.support.families import MINI, compiler, write_family
from tests.support.lazy import Lazy
from tests.support.process import ROOT

cp = Lazy("cupy")
FLOAT = {"data_type": "float", "op_name": "twice"}
#: Its op is in a device header, which the other op's source does not include.
EDITED = MINI | {
    "op.json": '{"data_type": ["float", "double"], "op_name": ["twice", "square"]}',
    "op.cu.jinja": MINI["op.cu.jinja"]
    .replace('#include "op.cuh"', '#include "op.cuh"\n#include "{{op_name}}.cuh"')
    .replace("{{expr}}", "{{op_name}}(a)"),
    "twice.cuh": "template <typename T> __device__ T twice(T a) { return a + a; }\n",
    "square.cuh": "template <typename T> __device__ T square(T a) { return a * a; }\n",
    "body.cuh": "template <typename T> __device__ T body(T a) { return a; }\n",
    "kern.cu.jinja": MINI["kern.cu.jinja"]
    .replace('#include "op.cuh"', '#include "op.cuh"\n#include "body.cuh"')
    .replace("op<T>(x[i])", "op<T>(body(x[i]))"),
}


@pytest.fixture
def place(tmp_path: Path, empty_cache: Path) -> Path:
    """The directory of a family's sources."""
    write_family(tmp_path / "mini", EDITED)
    return tmp_path / "mini"


@pytest.fixture
def family(place: Path, caplog: pytest.LogCaptureFixture) -> KernelFamily:
    caplog.set_level(logging.INFO, "jitlto")
    return jitlto.load(place)


def compiled(caplog: pytest.LogCaptureFixture) -> list[int]:
    """How many compiles each build took since the last call."""
    said = [re.search(r": (none|\d+) compiled", record.getMessage()) for record in caplog.records]
    caplog.clear()
    return [int(match[1].replace("none", "0")) for match in said if match]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def ptx(family: KernelFamily, **configuration: Any) -> str:
    return family.plan(arch="sm_90", **(configuration or FLOAT)).link_ptx()


def test_the_fragments_of_a_plan_are_compiled_for_its_target_and_nothing_else(
    family: KernelFamily, caplog: pytest.LogCaptureFixture
) -> None:
    assert family.parameters == {"data_type": ("double", "float"), "op_name": ("square", "twice")}
    assert (family.name, family.entrypoints) == ("mini", ("kern",))
    assert compiled(caplog) == []
    plan = family.plan(arch="sm_90", **FLOAT)
    assert compiled(caplog) == [2]
    assert [str(fragment.key) for fragment in plan.fragments] == [
        "mini/kern[data_type=float]",
        "mini/op[data_type=float,op_name=twice]",
    ]
    assert plan.link().cubin[:4] == b"\x7fELF"
    # Without a target or a device, for the architectures that are declared.
    plain = family.plan(**FLOAT)
    assert {str(image.architecture) for fragment in plan.fragments for image in fragment.images} == {"90"}
    assert {str(image.architecture) for fragment in plain.fragments for image in fragment.images} == {"75"}


def test_one_compile_follows_the_edit_of_a_device_header(
    family: KernelFamily, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = ptx(family)
    assert compiled(caplog) == [2]
    assert ptx(family) == before
    assert compiled(caplog) == []
    edit(place / "twice.cuh", "a + a", "a + a + T(42)")
    after = ptx(family)
    assert compiled(caplog) == [1]
    assert after != before
    edit(place / "square.cuh", "a * a", "a * a * a")  # of no use here
    assert ptx(family) == after
    assert compiled(caplog) == [0]
    edit(place / "twice.cuh", "a + a + T(42)", "a + a")
    assert ptx(family) == before
    assert compiled(caplog) == [0]


@pytest.mark.slow
def test_every_kind_of_edit_is_seen(family: KernelFamily, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = [ptx(family)]
    assert compiled(caplog) == [2]

    def check(compiles: int, **configuration: Any) -> None:
        seen.append(ptx(family, **configuration))
        assert compiled(caplog) == [compiles]
        assert len(set(seen)) == len(seen)

    edit(place / "body.cuh", "return a", "return a + T(2)")
    check(1)
    edit(place / "op.cu.jinja", "(a); }", "(a) + T(3); }")
    check(1)
    edit(place / "op.json", '"twice"', '"twice", "thrice"')
    (place / "thrice.cuh").write_text("template <typename T> __device__ T thrice(T a) { return 3 * a; }\n")
    check(1, data_type="float", op_name="thrice")
    assert family.parameters["op_name"] == ("square", "thrice", "twice")
    edit(place / "family.toml", "[entrypoint", 'options = ["-DSCALE=5"]\n[entrypoint')
    edit(place / "twice.cuh", "a + a", "a + a * SCALE")
    check(2)
    edit(place / "op.cuh", "namespace", "__device__ inline int more() { return 1; }\nnamespace")  # the interface
    edit(place / "twice.cuh", "SCALE", "SCALE * more() + T(8)")
    check(2)


def test_a_file_that_is_now_found_first_is_seen(place: Path) -> None:
    for folder in ("first/sub", "../templates"):
        (place / folder).mkdir(parents=True)
    edit(place / "family.toml", 'name = "mini"', 'name = "mini"\ninclude = ["first", "."]')
    edit(place / "kern.cu.jinja", '"body.cuh"', '"sub/body.cuh"')
    (place / "sub").mkdir()
    (place / "body.cuh").rename(place / "sub" / "body.cuh")
    family = jitlto.load(place)
    before = ptx(family)
    text = (place / "sub" / "body.cuh").read_text()
    (place / "first" / "sub" / "body.cuh").write_text(text.replace("return a", "return a + T(42)"))
    assert "42280000" in ptx(family)  # 42.0f
    assert "42280000" not in before


def test_a_header_elsewhere_whose_name_is_rendered_is_watched(place: Path) -> None:
    edit(place / "op.cu.jinja", '"{{op_name}}.cuh"', '"../{{op_name}}/{{op_name}}.cuh"')
    for name in ("twice", "square"):
        (place.parent / name).mkdir()
        (place / f"{name}.cuh").rename(place.parent / name / f"{name}.cuh")
    family = jitlto.load(place)
    before = ptx(family)
    edit(place.parent / "twice" / "twice.cuh", "a + a", "a + T(42)")
    assert ptx(family) != before


def apart(place: Path) -> Path:
    """Move the headers of a family into a directory of their own, and return it."""
    headers = place.parent / "headers"
    headers.mkdir()
    for header in place.glob("*.cuh"):
        header.rename(headers / header.name)
    edit(place / "family.toml", 'name = "mini"', 'name = "mini"\ninclude = ["../headers"]')
    return headers


def test_a_header_that_no_source_can_reach_is_not_watched(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    headers = apart(place)
    (headers / "other.cuh").write_text("")
    caplog.set_level(logging.INFO, "jitlto")
    family = jitlto.load(place)
    before = ptx(family)
    assert compiled(caplog) == [2]
    (headers / "other.cuh").write_text("int a;")
    assert ptx(family) == before
    assert compiled(caplog) == []
    edit(headers / "twice.cuh", "a + a", "a + T(42)")
    assert ptx(family) != before


def test_an_edit_while_sources_are_read_is_seen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = apart(place)
    render, times = source._render, []

    def edited(*how: Any) -> Any:
        rendered = render(*how)
        times.append(rendered.requests)
        if len(times) == 1:
            edit(headers / "twice.cuh", "a + a", "a + T(42)")
        return rendered

    monkeypatch.setattr(source, "_render", edited)
    assert "42280000" in ptx(jitlto.load(place))  # 42.0f


def test_files_that_no_source_can_reach_are_not_read(place: Path) -> None:
    with (place / "huge.bin").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, which is sparse
    family = jitlto.load(place)
    before = ptx(family)
    (place / "huge.bin").unlink()
    assert ptx(family) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "error", "where"),
    [
        ("twice.cuh", "a + a", "a + b", CompileError, "twice.cuh"),
        ("op.cu.jinja", "{{op_name}}(a)", "{{opname}}(a)", RenderError, "op.cu.jinja:4"),
        ("op.json", '"float"', '"float", "float"', MatrixError, "op.json"),
        ("family.toml", "[family]", "[family", FamilyError, "family.toml"),
    ],
)
def test_an_edit_that_does_not_build_says_where_and_leaves_what_was_planned_usable(
    family: KernelFamily, place: Path, name: str, old: str, new: str, error: type[JitltoError], where: str
) -> None:
    plan = family.plan(arch="sm_90", **FLOAT)
    edit(place / name, old, new)
    for _ in range(2):
        with pytest.raises(error, match=re.escape(where)):
            family.plan(arch="sm_90", **FLOAT)
    assert plan.link().cubin[:4] == b"\x7fELF"
    edit(place / name, new, old)
    assert family.plan(arch="sm_90", **FLOAT).digest == plan.digest


@pytest.fixture
def sparse(place: Path) -> Path:
    """The sources of a family whose ``cube`` is there for one type only."""
    both = '{"data_type": ["float", "double"], "op_name": ["twice", "square"]}'
    (place / "op.json").write_text(f'[{both}, {{"data_type": "double", "op_name": "cube"}}]')
    (place / "cube.cuh").write_text("template <typename T> __device__ T cube(T a) { return a * a * a; }\n")
    return place


@pytest.mark.slow
def test_errors_are_those_of_a_database(sparse: Path, tmp_path: Path) -> None:
    path = tmp_path / "mini.fragdb"
    build([declaration.load_family(sparse / "family.toml")], path, executor=compiler())
    families = jitlto.load("mini", path), jitlto.load(sparse)
    for right in (FLOAT, {"data_type": "double", "op_name": "square"}):  # which is then there
        assert [each.plan(arch="sm_90", **right).configuration for each in families] == [right, right]
    for wrong, error in [
        ({"data_type": "half"}, UnknownValueError),
        ({"data_type": "float", "op_name": "twicee"}, UnknownValueError),
        ({"data_type": "float", "opname": "twice"}, UnknownParameterError),
        ({"op_name": "twice"}, AmbiguousConfigurationError),
        ({"data_type": "float"}, AmbiguousConfigurationError),
        ({"data_type": "float", "op_name": "cube"}, UnknownValueError),
        (FLOAT | {"entry": "none"}, PlanError),
        (FLOAT | {"arch": "x"}, PlanError),
        (FLOAT | {"link_options": {"nonsense": 1}}, PlanError),
    ]:
        said = []
        for family in families:
            with pytest.raises(error) as caught:
                family.plan(**{"arch": "sm_90", **wrong})
            said.append((caught.value.code, caught.value.what, caught.value.hint))
        assert said[0] == said[1]


def test_a_kernel_that_several_configurations_leave_open_is_not_compiled(
    family: KernelFamily, caplog: pytest.LogCaptureFixture
) -> None:
    with raises(AmbiguousConfigurationError, None, "data_type", hint="double, float"):
        family.plan(arch="sm_90", op_name="twice")
    assert compiled(caplog) == []


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that loads nothing."""
    now = SimpleNamespace(compute_capability=(9, 0), device_id=0)
    monkeypatch.setattr(device, "current", lambda: now)
    monkeypatch.setattr(device, "place", lambda: 1)

    class Loaded(SimpleNamespace):  # which can be referred to weakly
        pass

    def load(_: KernelFamily, chosen: object, linked: object, plan: Any) -> object:
        return Loaded(load_seconds=0.0, tier="lto", plan=plan(), later=lambda _: None)

    monkeypatch.setattr(KernelFamily, "_launcher", load)


@pytest.mark.usefixtures("pretended")
def test_a_launcher_stays_the_same_until_its_code_has_changed(
    family: KernelFamily, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = family.launcher(**FLOAT)
    assert compiled(caplog) == [2]
    assert {str(image.architecture) for image in first.plan.images} == {"90"}
    assert family.launcher(**FLOAT) is first
    assert compiled(caplog) == []
    edit(place / "square.cuh", "a * a", "a * a * a")
    assert family.launcher(**FLOAT) is first
    edit(place / "twice.cuh", "a + a", "a + a + T(1)")
    second = family.launcher(**FLOAT)
    assert second is not first
    edit(place / "twice.cuh", "a + a", "a + b")
    with raises(CompileError, None, "twice.cuh"):
        family.launcher(**FLOAT)
    edit(place / "twice.cuh", "a + b", "a + a")
    assert family.launcher(**FLOAT) is second


@pytest.mark.usefixtures("pretended")
def test_a_launcher_stays_the_same_when_another_is_asked_for(family: KernelFamily) -> None:
    first = family.launcher(**FLOAT)
    others = [family.launcher(data_type=t, op_name=o) for t in ("float", "double") for o in ("twice", "square")]
    assert others[0] is first
    assert len({id(each) for each in others}) == 4
    assert [family.launcher(**each.plan.configuration) for each in others] == others


@pytest.mark.slow
def test_all_configurations_keep_one_database_open(family: KernelFamily, caplog: pytest.LogCaptureFixture) -> None:
    kernels = list(family.configurations())
    assert compiled(caplog) == [6]
    plans = [family.plan(arch="sm_90", **each) for each in kernels]
    assert sum(compiled(caplog)) == 6
    again = [family.plan(arch="sm_90", **each) for each in kernels]
    assert compiled(caplog) == []
    assert [each.digest for each in plans] == [each.digest for each in again]
    assert len({id(each.database) for each in again}) == 1


@pytest.mark.slow
def test_a_planner_takes_callers_code_and_keys_of_what_the_configuration_leaves_open(family: KernelFamily) -> None:
    own = "namespace mini { template <> __device__ float op<float>(float a) { return a + 7; } }"
    assert family.planner(data_type="float").add_source(own).plan(arch="sm_90").link().cubin[:4] == b"\x7fELF"
    key = "mini/op[data_type=float,op_name=square]"
    plan = family.planner(data_type="float").add(key).plan(arch="sm_90")
    assert key in [str(fragment.key) for fragment in plan.fragments]


@pytest.mark.slow
def test_what_concerns_all_kernels_compiles_all(family: KernelFamily, caplog: pytest.LogCaptureFixture) -> None:
    assert [group.name for group in family.record.groups] == ["kern", "op"]
    assert compiled(caplog) == []
    assert len(list(family.configurations())) == 4
    assert compiled(caplog) == [6]
    assert family.contents.digest == family.database.digest


def test_a_callback_is_compiled_alone(tmp_path: Path, empty_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jitlto")
    name, ltoir = jitlto.load(write_family(tmp_path, CALLBACKS)).callback("scale", type="float", arch="sm_90")
    assert name == "scale"
    assert nvfatbin.find_fatbins(ltoir) == [[("ltoir", (90, ""))]]
    assert compiled(caplog) == [1]


@pytest.mark.slow
def test_a_key_that_no_source_has_is_looked_for_in_the_family(family: KernelFamily, place: Path) -> None:
    for ask in (
        lambda: family.callback("nope", arch="sm_90"),
        lambda: family.planner(data_type="float").add("mini/op[data_type=float,op_name=nope]"),
    ):
        with raises(PlanError, "plan-unknown-fragment", "nope", where=str(place / "family.toml")):
            ask()


def test_what_is_loaded_is_a_directory_or_its_family_toml(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    for name in (place, str(place), "./mini", "mini/family.toml", place / "family.toml"):
        assert jitlto.load(name).location == place / "family.toml"
    monkeypatch.chdir(place)
    family = jitlto.load("family.toml")
    assert copy.deepcopy(family) is family
    assert pickle.loads(pickle.dumps(family)).location == family.location  # noqa: S301 - our own
    with raises(FamilyError, "family-not-found", str(place / "none")):
        jitlto.load("./none")
    with raises(RegistryError, "registry-unknown-family"):  # a name is none of a directory
        jitlto.load("mini")


@pytest.mark.slow
def test_processes_at_once_compile_each_fragment_once_and_get_the_same(place: Path, empty_cache: Path) -> None:
    code = """
import logging, sys, jitlto
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
print(jitlto.load(sys.argv[1]).plan(arch="sm_90", data_type="float", op_name="twice").digest)
"""
    command = [sys.executable, "-c", code, str(place)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    done = [process.communicate(timeout=120) for process in [subprocess.Popen(command, **pipes) for _ in range(2)]]
    assert len({out for out, _ in done}) == 1
    assert done[0][0].strip(), done
    said = "".join(err for _, err in done)
    assert sorted(re.findall(r"(\w+) compiled,", said)) == ["2", "none"]
    assert said.count("compiled when they are asked for") == 2


@pytest.mark.slow
def test_what_a_process_has_built_ends_with_it_and_not_with_a_fork(place: Path) -> None:
    code = """
import os, sys, jitlto
family = jitlto.load(sys.argv[1])
family.plan(arch="sm_90", data_type="float", op_name="twice")
process = os.fork()
if process == 0:
    family.plan(arch="sm_90", data_type="float", op_name="square").link()
    sys.exit()
assert os.waitpid(process, 0)[1] == 0
print(family.plan(arch="sm_90", data_type="float", op_name="twice").database.path.exists())
print(family.plan(arch="sm_90", data_type="float", op_name="twice").database.path)
"""
    done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, cwd=ROOT, check=True)
    there, path = done.stdout.splitlines()
    assert there == "True"
    assert not Path(path).parent.exists()


@pytest.mark.slow
def test_a_command_plans_what_lies_at_a_path(place: Path) -> None:
    done = command("plan", place, "data_type=float", "op_name=twice", "--arch", "sm_90")
    assert done.returncode == 0, done.stderr
    assert "mini/op[data_type=float,op_name=twice]  ltoir compute_90" in done.stdout
    assert f"{place / 'family.toml'}: " in done.stderr
    fails(command("plan", place, "data_type=floot", "--arch", "sm_90"), 1, "plan-unknown-value", "'float'")
    fails(command("plan", place / "none", "--arch", "sm_90"), 1, "database-not-found")


@pytest.mark.gpu
def test_an_edit_is_launched(family: KernelFamily, place: Path) -> None:
    x = cp.arange(4, dtype="float32")
    before = family.launcher(**FLOAT)
    before(None, 1, 32, x, 4)
    assert x.tolist() == [0, 2, 4, 6]
    edit(place / "twice.cuh", "a + a", "a + a + T(1)")
    family.launcher(**FLOAT)(None, 1, 32, x, 4)
    assert x.tolist() == [1, 5, 9, 13]
    before(None, 1, 32, x, 4)  # as it was
    assert x.tolist() == [2, 10, 18, 26]
