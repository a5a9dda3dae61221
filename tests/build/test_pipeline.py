"""The whole build: a sound database with the same bytes everywhere, or one error and nothing else."""

import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError, CompileError, DatabaseError, FamilyError, JitltoError
from jitlto.build import pipeline, proof
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.execution.events import Observer, Span
from jitlto.build.pipeline import BuildReport, build
from jitlto.build.rendered_families import family_record
from jitlto.build.shards import Shard
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.fragment import FragmentKey, Role
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.frames import compile_frames


def changed(**files: str) -> dict[str, str]:
    return MINI | {name.replace("__", "."): text for name, text in files.items()}


def test_a_build_writes_every_fragment_with_its_images(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        assert database.verify() == 12  # six fragments, LTO-IR and PTX each
        record = database.families["mini"]
        assert [(g.name, g.role, g.key, g.interface, g.supplied) for g in record.groups] == [
            ("kern", Role.ENTRYPOINT, ("data_type",), None, False),
            ("op", Role.DEVICE, ("data_type", "op_name"), "op.cuh", False),
        ]
        assert record.options == ("--std=c++17",)
        assert record.headers == (("op.cuh", MINI["op.cuh"]),)
        kern = database.fragments("mini")[0]
        assert [str(p) for p in kern.signature] == ["double* x", "unsigned int n"]


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_directory_and_jobs(
    mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "quite another" / "place"
    path = write_family(place, MINI)
    monkeypatch.chdir(place)
    monkeypatch.setenv("TMPDIR", str(place))
    report = build([declaration.load_family(Path("family.toml"))], Path("other.fragdb"), jobs=3)
    data = (place / "other.fragdb").read_bytes()
    assert data == mini_path.read_bytes()
    for mark in (str(tmp_path), str(mini_path.parent), path.name, "quite another"):
        assert mark.encode() not in data
    with FragmentDatabase(mini_path) as database:
        assert database.digest == report.digest


@pytest.mark.slow
def test_the_order_of_families_does_not_change_the_bytes(tmp_path: Path) -> None:
    families = [
        declaration.load_family(
            write_family(tmp_path / name, changed(family__toml=MINI["family.toml"].replace('"mini"', f'"{name}"')))
        )
        for name in ("one", "two")
    ]
    build(families, tmp_path / "a.fragdb", jobs=2)
    build(families[::-1], tmp_path / "b.fragdb", jobs=1)
    assert (tmp_path / "a.fragdb").read_bytes() == (tmp_path / "b.fragdb").read_bytes()


class Told(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.expected: list[FragmentKey] = []
        self.ended: list[FragmentKey] = []
        self.compiles = 0

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        self.expected += keys

    def cached(self, key: FragmentKey) -> None:
        self.ended.append(key)

    def compiled(self, span: Span) -> None:
        self.ended.append(span.key)
        self.compiles += 1
        assert 0 < span.seconds < 60 and span.start > 0

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        self.ended.append(key)


@pytest.mark.slow
def test_an_observer_receives_each_fragment_once(tmp_path: Path) -> None:
    told = Told()
    report = build(
        [declaration.load_family(write_family(tmp_path, MINI))], tmp_path / "x.fragdb", jobs=1, observer=told
    )
    assert told.phases == ["render", "compile", "check", "write"]
    assert sorted(told.expected) == sorted(told.ended) == [f.key for f in report.fragments]
    assert told.compiles == report.compiled == 6
    assert report.advice == ()
    assert report.seconds > 0


FAILURES = {
    "source": (
        changed(op__cu__jinja='#include "op.cuh"\n__device__ {{data_type}} {{op_name}};;)'),
        CompileError, "compile", ("op.cu.jinja",),
    ),
    "kernel": (
        changed(kern__cu__jinja="__device__ {{data_type}} f() { return 1; }"),
        BuildError, "build-no-kernel", ("kern.cu.jinja",),
    ),
    "interface": (
        changed(family__toml=MINI["family.toml"].replace('"op.cuh"', '"none.cuh"')),
        FamilyError, "family-interface", ("'none.cuh'",),
    ),
    "helper": (
        changed(
            kern__cu__jinja="__noinline__ inline __device__ int help(int a) { return a * 3; }\n"
            "#define USE (T)help(n) *\n"
            + MINI["kern.cu.jinja"].replace("op<T>", "USE op<T>"),
            op__cu__jinja="__device__ __noinline__ int help(int a) { return a * 4; }\n"
            + MINI["op.cu.jinja"].replace("{{expr}}", "{{expr}} + help(a)"),
        ),
        BuildError, "build-unplanned-kernels", ("help(int)", "mini/kern", "mini/op["),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_build_keeps_the_existing_database(tmp_path: Path, mini_path: Path, name: str) -> None:
    files, error, code, names = FAILURES[name]
    path = write_family(tmp_path / "family", files)
    (tmp_path / "out").mkdir()
    output = Path(shutil.copy(mini_path, tmp_path / "out" / "x.fragdb"))
    with raises(error, code, *names):
        build([declaration.load_family(path)], output, jobs=1)
    assert [p.name for p in output.parent.iterdir()] == ["x.fragdb"]
    assert output.read_bytes() == mini_path.read_bytes()


@pytest.mark.slow
def test_a_compile_error_shows_template_line_and_combination(build_family: BuildFamily, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        build_family(
            changed(op__cu__jinja='#include "op.cuh"\n// {{op_name}}\n__device__ {{data_type}} {{op_name}} = wrong;\n')
        )
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'family' / 'op.cu.jinja'}:3: ")
    failed = re.search(r"\(group op, .*op_name=(\w+), data_type=(\w+)\)", text)  # whichever compile was the first
    assert failed is not None
    assert 'identifier "wrong" is undefined' in text
    assert f"__device__ {failed[2]} {failed[1]} = wrong;\n" in text


def test_a_header_that_a_value_of_the_matrix_names_and_is_missing(build_family: BuildFamily) -> None:
    files = changed(op__cu__jinja='#include "{{op_name}}.cuh"\n' + MINI["op.cu.jinja"], square__cuh="", twicer__cuh="")
    with raises(CompileError, "compile-missing-header", "op.json:3:12: has op_name=twice", hint="'twicer.cuh'?"):
        build_family(files)


def test_two_families_of_one_name(tmp_path: Path) -> None:
    families = [declaration.load_family(write_family(tmp_path / place, MINI)) for place in ("a", "b")]
    with raises(FamilyError, "family-duplicate", "mini"):
        build(families, tmp_path / "x.fragdb")


def test_an_output_in_no_directory(tmp_path: Path) -> None:
    with raises(BuildError, "build-no-directory", "no", where="x.fragdb"):
        build([declaration.load_family(write_family(tmp_path, MINI))], tmp_path / "no" / "x.fragdb")


@pytest.mark.slow
def test_an_interface_that_is_not_utf8_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = write_family(tmp_path, MINI)
    (tmp_path / "op.cuh").write_bytes(b"// caf\xe9\n" + MINI["op.cuh"].encode())
    with raises(FamilyError, "family-interface", "op.cuh", hint="UTF-8"):
        build([declaration.load_family(path)], tmp_path / "x.fragdb", jobs=1)


def test_the_record_holds_only_headers_reachable_from_interfaces(tmp_path: Path) -> None:
    files = changed(op__cuh='#include "sub/part.cuh"\n#include <cuda_fp16.h>\n' + MINI["op.cuh"])
    path = write_family(tmp_path, files | {"sub/part.cuh": '#include "../base.cuh"\n', "base.cuh": "", "other.cuh": ""})
    record = family_record(declaration.load_family(path))
    assert [name for name, _ in record.headers] == ["base.cuh", "op.cuh", "sub/part.cuh"]
    assert record.interfaces == ("op.cuh",)


FAR = changed(
    kern__cu__jinja=MINI["kern.cu.jinja"]
    .replace("namespace mini {", "__device__ float far(float);\nnamespace mini {", 1)
    .replace("op<T>(x[i])", "op<T>(far(x[i]))")
)


@pytest.mark.slow
def test_a_kernel_that_lacks_something_is_an_error_and_no_database(tmp_path: Path) -> None:
    families = [declaration.load_family(write_family(tmp_path / "mini", FAR))]
    cache, output = open_cache(tmp_path / "cache"), tmp_path / "mini.fragdb"
    for _ in range(2):
        with raises(BuildError, "build-unplanned-kernels", "far(float)", "mini/kern[", hint="--allow-incomplete"):
            build(families, output, jobs=1, cache=cache)
        assert not output.exists()
    for _ in range(2):
        (advice,) = build(families, output, jobs=1, cache=cache, allow_incomplete=True).advice
        assert "far(float)" in advice.message
    before = output.read_bytes()
    with raises(BuildError, "build-unplanned-kernels"):
        build(families, output, jobs=1, cache=cache)
    assert output.read_bytes() == before


@pytest.mark.slow
def test_a_build_without_work_proves_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = [declaration.load_family(write_family(tmp_path / "mini", MINI))]
    cache = open_cache(tmp_path / "cache")
    digest = build(families, tmp_path / "1.fragdb", jobs=1, cache=cache).digest
    monkeypatch.setattr(proof, "enumerate_kernels", None)
    with pytest.raises(TypeError):
        build(families, tmp_path / "2.fragdb", jobs=1, cache=None)
    build(families, tmp_path / "3.fragdb", jobs=1, cache=None, shard=Shard(1, 2))
    monkeypatch.setattr(pipeline, "InterfaceProof", None)
    assert build(families, tmp_path / "4.fragdb", jobs=1, cache=cache).digest == digest


@pytest.mark.slow
def test_interfaces_are_proved_again_when_a_declaration_alone_has_changed(tmp_path: Path) -> None:
    unsaid = MINI["family.toml"].replace('interface = "op.cuh"\n', "")
    cache = open_cache(tmp_path / "cache")
    files = MINI | {"family.toml": unsaid + "interface = false\n"}
    other = {name.replace("op.cuh", "ops.cuh"): text.replace("op.cuh", "ops.cuh") for name, text in files.items()}
    path = write_family(tmp_path / "mini", other)  # none has the group's name
    build([declaration.load_family(path)], tmp_path / "1.fragdb", jobs=1, cache=cache)
    path.write_text(unsaid)
    with raises(BuildError, "build-no-interface", "mini/op"):
        build([declaration.load_family(path)], tmp_path / "2.fragdb", jobs=1, cache=cache)


def test_a_file_that_is_not_a_database_is_not_replaced(tmp_path: Path) -> None:
    path = write_family(tmp_path / "mini", MINI)
    before = path.read_bytes()
    with raises(DatabaseError, "database-overwrite"):
        build([declaration.load_family(path)], path, jobs=1)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_options_that_the_compiler_refuses_are_not_blamed_on_a_template(build_family: BuildFamily) -> None:
    files = dict(MINI)
    files["family.toml"] = files["family.toml"].replace('name = "mini"', 'name = "mini"\nstd = "c++99"')
    with pytest.raises(CompileError, match=r"std.*\[compile-options\]") as caught:
        build_family(files)
    assert "family.toml" in str(caught.value.hint)
    assert "source:" not in str(caught.value)


@pytest.mark.slow
def test_options_of_nvcc_are_named_all_at_once_with_what_nvrtc_has_in_place(build_family: BuildFamily) -> None:
    options = '["-w", "--extended-lambda", "--expt-relaxed-constexpr", "-t4"]'
    toml = MINI["family.toml"].replace('"mini"\n', f'"mini"\noptions = {options}\n', 1)
    write, remove = "--device-as-default-execution-space for --expt-relaxed-constexpr", ("--extended-lambda", "-t4")
    with raises(CompileError, "compile-options", write, *(f"remove {each}" for each in remove)) as caught:
        build_family(changed(family__toml=toml))
    assert "-w" not in str(caught.value.hint).split()


@pytest.mark.slow
def test_headers_of_the_host_are_one_error_for_all_that_is_in_them(build_family: BuildFamily) -> None:
    kernel = "#include <channel_descriptor.h>\n" + MINI["kern.cu.jinja"]
    with raises(CompileError, "compile", ".cu.jinja:1: ", "<channel_descriptor.h>", hint="__CUDACC_RTC__") as caught:
        build_family(changed(kern__cu__jinja=kernel))
    assert str(caught.value).count("error: ") == 1


@pytest.mark.parametrize("macro", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
def test_sources_that_use_the_clock_are_rejected_by_each_shard(tmp_path: Path, macro: str) -> None:
    header = write_family(tmp_path / "a", MINI | {"op.cuh": MINI["op.cuh"] + f"static const char built[] = {macro};\n"})
    with raises(BuildError, "build-not-reproducible", macro, "op.cuh:5"):
        build([declaration.load_family(header)], tmp_path / "x.fragdb")
    clock = f'{{% if data_type == "float" and op_name == "twice" %}}// {macro}\n{{% endif %}}'
    path = write_family(tmp_path / "b", MINI | {"op.cu.jinja": MINI["op.cu.jinja"] + clock})
    for number in (1, 2):
        with raises(BuildError, "build-not-reproducible", macro):
            build([declaration.load_family(path)], tmp_path / "part.fragdb", shard=Shard(number, 2))


@pytest.mark.slow
def test_options_of_a_group_reach_its_compiles_and_no_others(build_family: BuildFamily) -> None:
    guard = "#if !defined {0} || defined {1}\n#error {0}\n#endif\n"
    files = {
        "kern__cu__jinja": guard.format("KERN", "OP") + MINI["kern.cu.jinja"],
        "op__cu__jinja": guard.format("OP", "KERN") + MINI["op.cu.jinja"],
    }
    toml = MINI["family.toml"].replace("[entrypoint.kern]", '[entrypoint.kern]\noptions = ["-DKERN"]')
    with raises(CompileError, "compile", "group op"):
        build_family(changed(family__toml=toml, **files))
    build_family(changed(family__toml=toml.replace("[device.op]", '[device.op]\noptions = ["-DOP"]'), **files))


KERNEL = """typedef {{data_type}} value_t;
struct shape { int rows, columns; };
__global__ void kern(value_t* x, const void* data, shape s, unsigned n) { x[n] = s.rows; }
"""


def signature(report: BuildReport) -> list[str]:
    with FragmentDatabase(report.path) as database:
        return [str(p) for p in next(f for f in database.fragments() if f.key.group == "kern").signature]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ("", ["double* x", "void const* data", "shape s", "unsigned int n"]),
        ('params = ["out", "data", "s", "n"]', ["double* out", "void const* data", "shape s", "unsigned int n"]),
        (
            'params = ["{{data_type}}* x", "const float* data", "shape s", "uint32_t n"]',
            ["double* x", "const float* data", "shape s", "unsigned int n"],
        ),
    ],
)
def test_params_rename_and_narrow_what_the_compiler_tells(
    build_family: BuildFamily, params: str, expected: list[str]
) -> None:
    toml = MINI["family.toml"].replace('params = ["{{data_type}}* x", "unsigned n"]', params)
    toml = toml.partition("[device.op]")[0]
    assert signature(build_family(changed(family__toml=toml, kern__cu__jinja=KERNEL))) == expected


def test_params_that_contradict_the_kernel_stop_the_build_at_its_first_compile(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace("unsigned n", "int n").partition("[device.op]")[0]
    files = changed(family__toml=toml, kern__json='{"data_type": ["float", "double", "int"]}')
    files["kern.cu.jinja"] = "__global__ void kern({{data_type}}* x, unsigned n) { x[n] = 0; }\n"
    compiled: list[FragmentKey] = []

    class Observed(Observer):
        def compiled(self, span: Span) -> None:
            compiled.append(span.key)

    family = declaration.load_family(write_family(tmp_path, files))
    with raises(BuildError, "build-params-mismatch", "'n'", "unsigned int"):
        build([family], tmp_path / "f.fragdb", jobs=1, observer=Observed())
    assert compiled == []


@pytest.mark.slow
def test_nvrtc_is_at_most_twelve_functions_from_the_command(tmp_path: Path) -> None:
    frames = compile_frames(tmp_path)
    assert (frames[0], frames[-1]) == ("cli.build: build", "compile.nvrtc_program: run_program")
    assert len(frames) <= 12, frames


def test_with_keep_going_all_failures_are_listed_by_cause_and_the_rest_is_kept(tmp_path: Path, cache: Cache) -> None:
    files = {
        "family.toml": '[family]\nname = "f"\n'
        + "".join(
            f'[entrypoint.{name}]\nmatrix = "m.json"\ntemplate = "{name}.cu.jinja"\nkey = ["t"]\n' for name in "ab"
        ),
        "m.json": '{"t": ["int", "one", "two", "float"]}',
        "a.cu.jinja": "__global__ void a({{t}}* x) { *x = 2; }\n",
        "b.cu.jinja": "__global__ void b({{t}}* x) { *x = {% if t == 'int' %}y{% else %}2{% endif %}; }\n",
    }
    family = declaration.load_family(write_family(tmp_path, files))
    said = ("5 of 8 fragments", "a: t=one", "b: t=int", '"y" is undefined', "b[t=int].cu(1): error")
    with raises(CompileError, "compile", "is undefined", where=".cu.jinja:1 (group a, t=one)"):
        build([family], tmp_path / "a.fragdb", jobs=1)
    with raises(BuildError, "build-failed-fragments", *said):
        build([family], tmp_path / "a.fragdb", jobs=1, cache=cache, keep_going=True)
    assert not (tmp_path / "a.fragdb").exists()
    (tmp_path / "m.json").write_text('{"t": ["float"]}')
    report = build([declaration.load_family(tmp_path / "family.toml")], tmp_path / "a.fragdb", jobs=1, cache=cache)
    assert report.compiled == 0
