"""The scheduler: each distinct source is compiled once, and again exactly if one of its inputs changes."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import BuildError, CompileError, JitltoError
from jitlto.build.cache.cache import Cache
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import BuildReport, build
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import ROOT

KILLS = int(os.environ.get("JITLTO_TEST_KILLS", "3"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(CacheDir(tmp_path / "cache", 1 << 30))


Make = Callable[..., BuildReport]


@pytest.fixture
def make(tmp_path: Path, cache: Cache, workers: ProcessExecutor) -> Make:
    """Build a family given as files, with one cache."""

    def make(files: dict[str, str], name: str = "family", **arguments: Any) -> BuildReport:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        path = write_family(tmp_path / name, files)
        given = {"cache": cache, "executor": workers} | arguments
        return build([declaration.load_family(path)], tmp_path / f"{name}.fragdb", **given)

    return make


def changed(**files: str) -> dict[str, str]:
    return MINI | {name.replace("__", "."): text for name, text in files.items()}


class NoCompiler(Executor):
    """Fail if anything is compiled."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise AssertionError("a compiler was touched")


@pytest.mark.slow
def test_nothing_changed_touches_no_compiler_wherever_the_sources_are(make: Make) -> None:
    first = make(MINI)
    data = first.path.read_bytes()
    assert first.compiled == 6
    for name in ("family", "elsewhere in a longer path"):
        again = make(MINI, name=name, executor=NoCompiler())
        assert (again.compiled, again.path.read_bytes()) == (0, data)
    assert [make(MINI, cache=None).compiled for _ in range(2)] == [6, 6]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "compiled"),
    [
        (changed(family__toml=MINI["family.toml"].replace('"mini"', '"mini"\noptions = ["-DX=1"]', 1)), 6),
        (changed(family__toml=MINI["family.toml"].replace('"mini"', '"mini"\nimages = ["ltoir"]', 1)), 6),
        (changed(op__json=MINI["op.json"].replace("a * a", "a * a * a")), 2),
        (changed(op__cuh=MINI["op.cuh"] + "#define OTHER 1\n"), 6),
        (changed(op__cu__jinja=MINI["op.cu.jinja"] + "// {{op_name}}\n"), 4),
        (changed(op__json=MINI["op.json"].replace("{", '{ "unused": "1", ', 1)), 0),
        (changed(own__cuh="#pragma once\n#define OTHER 1\n"), 2),
        (changed(unread__cuh="#define X\n"), 0),
    ],
    ids=["options", "images", "value", "header", "template", "unused", "kernels' header", "unread header"],
)
def test_only_changes_of_the_compilers_input_cause_a_compile(make: Make, files: dict[str, str], compiled: int) -> None:
    include = {"kern.cu.jinja": '#include "own.cuh"\n' + MINI["kern.cu.jinja"]}
    make({"own.cuh": "#pragma once\n"} | MINI | include)
    files = {"own.cuh": "#pragma once\n"} | files | include
    report = make(files)
    assert report.compiled == compiled
    assert make(files).compiled == 0
    fresh = make(files, name="fresh", cache=None)
    assert fresh.path.read_bytes() == report.path.read_bytes()


@pytest.mark.slow
def test_a_new_header_that_shadows_another_causes_a_rebuild(make: Make) -> None:
    """Not a changed file but a new one makes an include mean something else."""
    files = MINI | {
        "family.toml": MINI["family.toml"].replace('name = "mini"', 'name = "mini"\ninclude = [".", "late"]'),
        "kern.cu.jinja": '#include "sub/user.cuh"\n' + MINI["kern.cu.jinja"],
        "sub/user.cuh": '#pragma once\n#include "value.cuh"\n#if __has_include("extra.cuh")\n#error found\n#endif\n',
        "late/value.cuh": "#define VALUE 1\n",
    }
    assert make(files).compiled == 6
    assert make(files | {"sub/value.cuh": "#define VALUE 2\n"}).compiled == 2
    assert make(files | {"value.cuh": "#define VALUE 3\n"}).compiled == 2
    with raises(CompileError, "compile", "#error", "found"):
        make(files | {"extra.cuh": ""})


@pytest.mark.slow
@pytest.mark.parametrize(("factors", "compiled"), [((3, 3), 6), ((3, 4), 12)])
def test_equal_sources_of_several_families_are_compiled_once_and_others_apart(
    tmp_path: Path, cache: Cache, workers: ProcessExecutor, factors: tuple[int, int], compiled: int
) -> None:
    families = []
    for name, factor in zip(("one", "two"), factors, strict=True):
        files = changed(
            family__toml=MINI["family.toml"].replace('"mini"', f'"{name}"'),
            op__json=MINI["op.json"].replace("a + a", "a * FACTOR"),
            op__cuh=MINI["op.cuh"] + f"#define FACTOR {factor}\n",
        )
        families.append(declaration.load_family(write_family(tmp_path / name, files)))
    for kept in (None, cache):
        report = build(families, tmp_path / "x.fragdb", cache=kept, executor=workers)
        assert (len(report.fragments), report.compiled) == (12, compiled)
    assert build(families[1:], tmp_path / "y.fragdb", cache=cache, executor=NoCompiler()).compiled == 0
    alone = build(families[1:], tmp_path / "z.fragdb", cache=None, executor=workers)
    assert set(alone.fragments) < set(report.fragments)


def entries(cache: Cache, kind: str) -> list[Path]:
    return sorted(p for p in (cache.store.directory / kind).rglob("*") if p.is_file())


@pytest.mark.slow
def test_damaged_entries_are_made_again(make: Make, cache: Cache) -> None:
    whole = make(MINI).path.read_bytes()
    first, *others = entries(cache, "compiled")
    first.unlink()
    for path in others:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    report = make(MINI, cache=Cache(cache.store))  # as in another process
    assert (report.compiled, report.path.read_bytes()) == (6, whole)
    assert make(MINI).compiled == 0


@pytest.mark.slow
def test_a_kernel_that_was_declared_a_device_function_has_its_parameters_names_afterwards(make: Make) -> None:
    toml = MINI["family.toml"].replace('params = ["{{data_type}}* x", "unsigned n"]\n', "")
    with raises(BuildError, "build-unexpected-kernel", "kern"):
        make(changed(family__toml=toml.replace("[entrypoint.kern]", "[device.kern]")))
    kernels = [each for each in make(changed(family__toml=toml)).fragments if each.entry]
    assert {tuple(parameter.name for parameter in each.signature) for each in kernels} == {("x", "n")}


@pytest.mark.slow
def test_an_include_that_cannot_be_told_names_template_combination_and_line(make: Make) -> None:
    files = {"op.cu.jinja": MINI["op.cu.jinja"] + "#include __FILE__\n"}
    line = files["op.cu.jinja"].count("\n")
    with raises(JitltoError, "jitlto-header-unknown", f"op.cu.jinja:{line}: ", "(group op, ", "data_type=float"):
        make(MINI | files)


DRIVER = """
import sys
from pathlib import Path
from jitlto.families import declaration
from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import build
from jitlto.base.cache_dir import CacheDir

cache = Cache(CacheDir(Path(sys.argv[2]), 1 << 30))
build([declaration.load_family(Path(sys.argv[1]))], Path(sys.argv[3]), cache=cache, jobs=2)
"""


def drive(path: Path, cache: Path, output: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(path), str(cache), str(output)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


MANY = MINI | {"op.json": json.dumps({"data_type": ["float", "double"], "_op": [
    {"op_name": f"plus{n}", "expr": f"a + T({n})"} for n in range(4)]})}  # fmt: skip


@pytest.mark.slow
def test_two_builds_at_once_share_a_cache_and_write_the_same_bytes(tmp_path: Path, workers: ProcessExecutor) -> None:
    path = write_family(tmp_path / "family", MANY)
    reference = build([declaration.load_family(path)], tmp_path / "reference.fragdb", executor=workers)
    builds = [drive(path, tmp_path / "cache", tmp_path / f"{n}.fragdb") for n in range(2)]
    for n, process in enumerate(builds):
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert (tmp_path / f"{n}.fragdb").read_bytes() == reference.path.read_bytes()


@pytest.mark.slow
def test_a_build_killed_at_any_moment_can_be_resumed(tmp_path: Path, workers: ProcessExecutor) -> None:
    """After `kill -9` a build is right, and what was kept is not compiled again."""
    path = write_family(tmp_path / "family", MANY)
    families = [declaration.load_family(path)]
    reference = build(families, tmp_path / "reference.fragdb", executor=workers).path.read_bytes()
    chance = random.Random(KILLS)  # noqa: S311 - not for secrets
    outcomes: Counter[int] = Counter()
    for number in range(KILLS):
        cache = Cache(CacheDir(tmp_path / f"cache{number}", 1 << 30))
        output = tmp_path / f"{number}.fragdb"
        process = drive(path, cache.store.directory, output)
        while len(entries(cache, "compiled")) < 10 * number // KILLS and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))  # about as long as a compile takes
        process.kill()
        process.communicate()
        kept = len(entries(cache, "compiled"))
        if output.exists():
            with FragmentDatabase(output) as database:
                database.verify()
        report = build(families, output, cache=cache, executor=workers)
        assert output.read_bytes() == reference
        assert report.compiled <= 10 - kept + 1  # a file that is not whole has a name of its own
        assert build(families, output, cache=cache, executor=NoCompiler()).compiled == 0
        outcomes[report.compiled] += 1
        shutil.rmtree(cache.store.directory)
    assert len(outcomes) > min(1, KILLS - 1), f"all were killed at the same moment: {outcomes}"


@pytest.mark.slow
def test_the_toolkits_headers_are_dependencies_too(tmp_path: Path, cache: Cache, workers: ProcessExecutor) -> None:
    """The same family with a copy of the toolkit's headers is served; with a changed one it is not."""
    path = write_family(tmp_path / "family", MINI | {"op.cuh": MINI["op.cuh"] + "#include <cuda_fp16.h>\n"})
    assert build([declaration.load_family(path)], tmp_path / "a.fragdb", cache=cache, executor=workers).compiled == 6
    copies = []
    for number, root in enumerate(toolkit.header_roots()):
        copy = tmp_path / "copy" / str(number)
        shutil.copytree(root, copy)
        copies.append(copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jitlto.cuda.toolkit.header_roots", lambda: tuple(copies))
        report = build([declaration.load_family(path)], tmp_path / "b.fragdb", cache=cache, executor=NoCompiler())
        assert report.path.read_bytes() == (tmp_path / "a.fragdb").read_bytes()
        fp16 = next(copy / "cuda_fp16.h" for copy in copies if (copy / "cuda_fp16.h").is_file())
        fp16.write_text(fp16.read_text() + "// another release\n")
        assert (
            build([declaration.load_family(path)], tmp_path / "c.fragdb", cache=cache, executor=workers).compiled == 6
        )


def test_the_cache_passes_no_source_that_its_interfaces_refuse(make: Make) -> None:
    toml = '[family]\nname = "f"\n[entrypoint.k]\nmatrix = "m.json"\ntemplate = "k.cu"\nkey = ["n"]\n'
    toml += '[device.d]\nmatrix = "m.json"\ntemplate = "d.cu"\nkey = ["n"]\ninterface = '
    include, files = (
        '#include "d.cuh"\n#line 1\n',
        {
            "m.json": '{"n": ["1"]}',
            "d.cuh": "#ifdef WIDE\ntypedef double T;\n#else\ntypedef float T;\n#endif\n__device__ T f();\n",
        },
    )
    kernel = "#define WIDE\n__global__ void k(float* out) { *out = f() + {{n}}; }\n"
    device = "__device__ T f() { return {{n}}; }\n"
    make(files | {"family.toml": f"{toml}false\n", "k.cu": include + kernel, "d.cu": include + device})
    with raises(BuildError, "build-interface-macro"):  # the same texts, which are behind an interface now
        make(files | {"family.toml": f'{toml}"d.cuh"\n', "k.cu": kernel, "d.cu": device})
