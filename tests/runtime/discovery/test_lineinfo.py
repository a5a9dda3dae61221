"""Line information on request: the twin of a database is used, and what is loaded names files that exist."""

import shutil
from pathlib import Path

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import LinkError
from jitlto.database.twin import TwinManifest, twin_directory
from jitlto.runtime.discovery.lineinfo import point_to_sources
from jitlto.runtime.family import KernelFamily, load
from jitlto.runtime.session import Session
from tests.support.errors import raises
from tests.support.launchers import FakeDriver
from tests.support.line_information import read_files

CONFIGURATION = {"data_type": "float", "op_name": "twice"}


def session(cache: Path, **variables: str) -> Session:
    return Session(Config.read({"JITLTO_CACHE_DIR": str(cache), **variables}))


def twin_of(path: Path) -> Path:
    return twin_directory(path) / path.name


def test_a_setting_replaces_databases_by_their_twins(twin_path: Path, tmp_path: Path) -> None:
    on, off = session(tmp_path, JITLTO_LINEINFO="1"), session(tmp_path, JITLTO_LINEINFO="0")
    assert load("mini", twin_path, session=on).database.path == twin_of(twin_path)
    assert load("mini", twin_path, session=off).database.path == twin_path


def test_a_database_without_a_twin_is_used_itself_with_one_warning(
    mini_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "alone.fragdb"
    shutil.copy(mini_path, path)
    for _ in range(2):
        with_setting = session(tmp_path, JITLTO_LINEINFO="1")
        assert load("mini", path, session=with_setting).database.path == path
    assert len([record for record in caplog.records if "--lineinfo" in record.message]) == 1


def test_a_twin_of_another_build_is_not_used(twin_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(twin_path.parent, tmp_path / "copy")
    path = tmp_path / "copy" / twin_path.name
    manifest = TwinManifest.read(twin_directory(path))
    assert manifest is not None
    TwinManifest("another digest", manifest.files).write(twin_directory(path))
    assert load("mini", path, session=session(tmp_path, JITLTO_LINEINFO="1")).database.path == path
    assert "another build" in caplog.text


def test_a_twin_named_by_path_is_no_reason_to_warn(
    twin_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load("mini", twin_of(twin_path), session=session(tmp_path, JITLTO_LINEINFO="1"))
    assert not caplog.records


@pytest.mark.usefixtures("capability")
def test_what_is_loaded_names_the_files_of_the_twin(
    twin_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeDriver(monkeypatch)
    found = load("mini", twin_path, session=session(tmp_path, JITLTO_LINEINFO="1"))
    for _ in range(2):  # linked, then found
        launcher = found.launcher(**CONFIGURATION)
        names = read_files(launcher.linked.cubin)
        assert {Path(name).name for name in names} == {"data_type-float.cu", "data_type-float+op_name-twice.cu"}
        assert all(Path(name).is_file() and twin_directory(twin_path) in Path(name).parents for name in names)
        found = load("mini", twin_path, session=session(tmp_path, JITLTO_LINEINFO="1"))
    assert found.dispatcher("op_name", data_type="float")("twice").linked == launcher.linked


def test_a_plan_links_to_the_same_bytes_wherever_the_twin_is(twin_path: Path, tmp_path: Path) -> None:
    shutil.copytree(twin_path.parent, tmp_path / "copy")
    plans = [
        load("mini", twin_of(path)).plan(arch="sm_90", **CONFIGURATION)
        for path in (twin_path, tmp_path / "copy" / twin_path.name)
    ]
    assert plans[0].digest == plans[1].digest
    assert plans[0].link(use_cache=False).cubin == plans[1].link(use_cache=False).cubin


def test_line_information_that_nobody_built_is_an_error_that_says_how(mini: KernelFamily) -> None:
    plan = mini.plan(arch="sm_90", link_options={"lineinfo": True}, **CONFIGURATION)
    with raises(LinkError, "link-option-late", "lineinfo", hint="--lineinfo"):
        plan.link()


def test_a_kernel_that_cannot_be_read_is_loaded_as_it_is(twin_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert point_to_sources(b"\x7fELF", twin_of(twin_path), "mini") == b"\x7fELF"
    assert point_to_sources(b"\x7fELF", twin_path, "mini") == b"\x7fELF"  # no twin, and so no warning
    assert len(caplog.records) == 1
