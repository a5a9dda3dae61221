"""Line information on request: databases are replaced by their twins."""

import shutil
from pathlib import Path

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import LinkError
from jitlto.database.twin import mark_twin, twin_directory
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.source.load import load
from tests.support.errors import raises

CONFIGURATION = {"data_type": "float", "op_name": "twice"}


def session(cache: Path, lineinfo: str = "1") -> Session:
    return Session(Config.read({"JITLTO_CACHE_DIR": str(cache), "JITLTO_LINEINFO": lineinfo}))


def twin_of(path: Path) -> Path:
    return twin_directory(path) / path.name


def test_a_setting_replaces_databases_by_their_twins(
    twin_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load("mini", twin_path, session=session(tmp_path)).database.path == twin_of(twin_path)
    assert load("mini", twin_path, session=session(tmp_path, "0")).database.path == twin_path
    assert load("mini", twin_of(twin_path), session=session(tmp_path)).database.path == twin_of(twin_path)
    assert not caplog.records


def test_a_database_without_a_twin_is_used_itself_with_one_warning(
    mini_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "alone.fragdb"
    shutil.copy(mini_path, path)
    for _ in range(2):
        assert load("mini", path, session=session(tmp_path)).database.path == path
    assert len([record for record in caplog.records if "--lineinfo" in record.message]) == 1


def test_a_twin_of_another_build_is_not_used(twin_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(twin_path.parent, tmp_path / "copy")
    path = tmp_path / "copy" / twin_path.name
    mark_twin(twin_directory(path), "another digest")
    assert load("mini", path, session=session(tmp_path)).database.path == path
    assert "another build" in caplog.text


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
