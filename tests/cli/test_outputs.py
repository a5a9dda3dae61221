"""No command overwrites what it reads, nor a database with something else, nor one of its files with another."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.cli import cli
from tests.support.families import MINI, write_family
from tests.support.outputs import SPECIAL, special_file

TWICE = ("mini", "data_type=float", "op_name=twice", "--arch", "sm_90")


def _usage(*arguments: str | Path) -> str:
    """The message of a usage error."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 2, done.output
    return done.stderr


def _fails(kind: type[JitltoError], *arguments: str | Path) -> JitltoError:
    """The error that a command ends with, for which the status is 1."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert isinstance(done.exception, kind), done.output
    return done.exception


@pytest.fixture
def here(tmp_path: Path, mini_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the declaration of a family, and with its database."""
    monkeypatch.chdir(tmp_path)
    write_family(tmp_path / "mini", MINI)
    shutil.copy(mini_path, "mini.fragdb")
    return tmp_path


@pytest.mark.parametrize("other", ["x.json", "./x.json", "mini/../x.json", "link.json"])
def test_a_build_does_not_write_its_timings_over_its_database(here: Path, other: str) -> None:
    (here / "link.json").symlink_to("x.json")
    assert "would overwrite another file" in _usage("build", "./mini", "-o", "x.json", "--timings", other)
    assert not Path("x.json").exists()


def test_timings_do_not_replace_a_database_or_what_is_built_from(here: Path) -> None:
    shutil.move("mini.fragdb", "tt.json")
    before = Path("tt.json").read_bytes()
    error = _fails(DatabaseError, "build", "./mini", "-o", "x.fragdb", "--timings", "tt.json")
    assert (error.where, error.code) == ("tt.json", "database-not-overwritten")
    assert Path("tt.json").read_bytes() == before
    for source in ("mini/family.toml", *sorted(map(str, Path("mini").rglob("*.json")))):
        assert "would overwrite another file" in _usage("build", "./mini", "-o", "x.fragdb", "--timings", source)
    assert not Path("x.fragdb").exists()


def test_a_dumped_kernel_does_not_replace_a_database(here: Path) -> None:
    before = Path("mini.fragdb").read_bytes()
    for database in ("mini.fragdb", here / "mini.fragdb"):
        dump = ("plan", *TWICE, "--db", database, "--dump", "cubin", "-o", "mini.fragdb")
        assert "would overwrite another file" in _usage(*dump)
    shutil.copy("mini.fragdb", "other.fragdb")
    _fails(DatabaseError, "plan", *TWICE, "--db", "mini.fragdb", "--dump", "cubin", "-o", "other.fragdb")
    assert Path("mini.fragdb").read_bytes() == Path("other.fragdb").read_bytes() == before


def test_a_report_does_not_replace_a_database(here: Path) -> None:
    shutil.copy("mini.fragdb", "other.fragdb")
    before = Path("mini.fragdb").read_bytes()
    _fails(DatabaseError, "report", "mini.fragdb", "-o", "other.fragdb")
    assert "would overwrite another file" in _usage("report", "mini.fragdb", "-o", "mini.fragdb")
    assert Path("mini.fragdb").read_bytes() == Path("other.fragdb").read_bytes() == before


@pytest.mark.parametrize("name", ["fifo.json", f"{'long' * 70}.json", "gone/t.json"])
def test_timings_that_cannot_be_written_stop_a_build_before_it_begins(here: Path, name: str) -> None:
    os.mkfifo("fifo.json")
    error = _fails(JitltoError, "build", "./mini", "-o", "x.fragdb", "--timings", name)
    assert error.where == name
    assert not (here / "x.fragdb").exists()


#: Every command that writes a file, by the option that names it, up to the name of the file.
WRITERS = {
    "merge": ("merge", "mini.fragdb", "-o"),
    "plan json": ("plan", *TWICE, "--db", "mini.fragdb", "--dump", "json", "-o"),
    "plan cubin": ("plan", *TWICE, "--db", "mini.fragdb", "--dump", "cubin", "-o"),
    "report": ("report", "mini.fragdb", "-o"),
    "warm": ("warm", *TWICE[:-2], "--db", "mini.fragdb", "--arch", "sm_90", "-o"),
    "timings": ("build", "./mini", "-o", "new.fragdb", "--timings"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("writer", WRITERS)
def test_no_command_replaces_or_writes_to_what_is_no_file(here: Path, writer: str, kind: str) -> None:
    path = special_file(here / "out.json", kind)
    (here / "link.json").symlink_to("out.json")
    before = path.lstat()
    for name in ("out.json", "link.json"):
        done = CliRunner().invoke(cli, [*WRITERS[writer], name])
        assert isinstance(done.exception, JitltoError) or done.exit_code == 2, done.output
        assert name in str(done.exception) + done.stderr
    assert os.path.samestat(before, path.lstat())
    assert not Path("new.fragdb").exists()
