"""The build side turns every family into fragments or one of jitlto's errors, in bounded time."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import event, given

from jitlto.base.diagnostic import Diagnostic
from jitlto.base.errors import FamilyError, JitltoError, MatrixError
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import family_record
from jitlto.database import FragmentDatabase
from jitlto.families import declaration, matrix
from jitlto.families.templates import render_family
from jitlto.record.fragment import Role
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.fuzzing import (
    MINI_BYTES,
    Files,
    Odd,
    compiled_families,
    declared_families,
    effort,
    within,
    write,
)


@contextmanager
def on_disk(files: Files) -> Iterator[Path]:
    """The family's files in a directory of their own, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="jitlto-") as directory:
        yield write(Path(directory) / "family", files)


def declared(path: Path) -> JitltoError | None:
    """Load and render a family; its error, if it has one."""
    try:
        loaded = declaration.load_family(path)
        warnings: list[Diagnostic] = []
        for rendered in islice(render_family(loaded, on_warning=warnings.append), 2000):
            rendered.source.encode()
            str(rendered.key).encode()
        for warning in warnings:
            str(warning).encode("utf-8", "surrogatepass")
        family_record(loaded)
    except JitltoError as error:
        return error
    return None


def check_error(error: JitltoError) -> None:
    """Check that an error can be printed and pickled."""
    assert error.what.strip()
    str(error).encode("utf-8", "backslashreplace")
    # What pickle calls, without pickle: after a RecursionError, Python 3.11 under Hypothesis counts its depth wrongly.
    rebuild, arguments, state = error.__reduce__()
    again = rebuild(*arguments)
    again.__dict__.update(state)
    assert str(again) == str(error)


@pytest.mark.slow
@effort(100)
@given(files=declared_families())
def test_any_declaration_renders_or_is_refused(files: Files) -> None:
    with on_disk(files) as path, within(30):
        error = declared(path)
    event(type(error).__name__)
    if error is not None:
        check_error(error)


def check_database(path: Path) -> None:
    """Verify a database; each of its kernels is planned and linked, or fails with one of jitlto's errors."""
    with FragmentDatabase(path) as database:
        database.verify()
        for name in database.families:
            kernels = KernelFamily(name, database)
            for fragment in database.fragments(name):
                if fragment.role is Role.ENTRYPOINT:
                    configuration = {n: v[0] for n, v in kernels.parameters.items()} | dict(fragment.key.parameters)
                    try:
                        kernels.planner(fragment.key.group, **configuration).plan(arch="sm_90").link()
                    except JitltoError as error:
                        check_error(error)


@pytest.mark.slow
@effort(8)
@given(files=compiled_families())
def test_any_source_builds_or_is_refused_and_nothing_is_lost(
    files: Files, mini_path: Path, workers: ProcessExecutor
) -> None:
    with on_disk(files) as path, within(120):
        (path.parent.parent / "out").mkdir()
        output = Path(shutil.copy(mini_path, path.parent.parent / "out" / "x.fragdb"))
        try:
            build([declaration.load_family(path)], output, executor=workers)
        except JitltoError as error:
            event(type(error).__name__)
            check_error(error)
            assert output.read_bytes() == mini_path.read_bytes()
        else:
            event("built")
            check_database(output)
        assert [left.name for left in output.parent.iterdir()] == ["x.fragdb"]


def changed(**files: str | bytes) -> Files:
    """The family ``mini`` with other files, each under its name with ``.`` written as ``__``."""
    given = {name.replace("__", "."): text for name, text in files.items()}
    return MINI_BYTES | {name: text.encode() if isinstance(text, str) else text for name, text in given.items()}


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    marked = {name: b"\xef\xbb\xbf" + content for name, content in changed().items() if isinstance(content, bytes)}
    plain = [r.text for r in render_family(declaration.load_family(write(tmp_path / "plain", MINI_BYTES)))]
    assert [r.text for r in render_family(declaration.load_family(write(tmp_path / "marked", marked)))] == plain
    cmake = MINI["family.toml"].replace("[family]", '[family]\nsyntax = "cmake"').replace("{{data_type}}* x", "int x")
    files = {"family.toml": b"\xef\xbb\xbf" + cmake.encode(), "kern.cu.jinja": b"\xef\xbb\xbf@data_type@"}
    loaded = declaration.load_family(write(tmp_path / "cmake", changed() | files))
    assert next(render_family(loaded)).text == "float"


@pytest.mark.parametrize(
    "interface", ["../op.cuh", "sub/../../op.cuh", "/op.cuh", 'a"b.cuh', "a\\nb.cuh", "a\\u0000b.cuh"]
)
def test_an_interface_that_no_include_can_name_is_refused(tmp_path: Path, interface: str) -> None:
    quoted = interface.replace('"', '\\"')
    files = changed(family__toml=MINI["family.toml"].replace('"op.cuh"', f'"{quoted}"'))
    with raises(FamilyError, "family-interface", where="family.toml in [device.op]"):
        declaration.load_family(write(tmp_path, files))


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000, "1" * 12])
def test_absurd_numbers_are_refused(tmp_path: Path, number: str) -> None:
    files = changed(family__toml=MINI["family.toml"] + f"[link]\nmax_registers = {number}\n")
    with pytest.raises(FamilyError, match=r"family-(link-option|syntax)"):
        declaration.load_family(write(tmp_path, files))


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    matrix = "{" + ",".join(f'"p{i}": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]' for i in range(30)) + "}"
    with within(30), raises(FamilyError, "family-too-many-combinations", "1,000,000"):
        list(render_family(declaration.load_family(write(tmp_path, changed(kern__json=matrix)))))


def test_reading_a_fifo_without_a_writer_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, {"fifo": Odd.FIFO})
    with within(30):
        with raises(FamilyError, "family-unreadable"):
            declaration.load_family(tmp_path / "fifo")
        with raises(MatrixError, "matrix-unreadable", "FIFO"):
            matrix.load_matrix(tmp_path / "fifo")
    with raises(MatrixError, "matrix-unreadable"):
        matrix.load_matrix(Path("/dev/zero"))


@pytest.mark.slow
def test_a_matrix_may_be_read_from_a_pipe() -> None:
    command = 'import time; time.sleep(0.3); print(\'{"a": ["1", "2"]}\')'
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert matrix.load_matrix(Path(f"/dev/fd/{process.stdout.fileno()}")).count == 2
