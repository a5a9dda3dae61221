"""Where the shared stores of a build are configured: in the environment, else in ``[tool.jitlto]``."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base import config
from jitlto.base.config import Config
from jitlto.base.errors import ProjectError, StoreError
from jitlto.packaging.pyproject import find_project_stores
from jitlto.packaging.stores import ProjectStores
from jitlto.stores.shared import SharedStores
from tests.support.errors import raises

STORE = "s3://bucket/prefix"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Config]:
    """What stores are opened with."""
    opened: list[Config] = []

    def from_config(settings: Config) -> object:
        opened.append(settings)
        return object()

    monkeypatch.setattr(SharedStores, "from_config", from_config)
    for name in ("STORE", "STORE_TRUST", "STORE_SIGNERS"):
        monkeypatch.delenv(f"JITLTO_{name}", raising=False)
    monkeypatch.setenv("JITLTO_CACHE_DIR", str(tmp_path / "cache"))
    config.current.cache_clear()
    return opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "signers").write_text("keys")
    return tmp_path


def find(project: Path, *lines: str) -> ProjectStores:
    (project / "pyproject.toml").write_text("\n".join(["[tool.jitlto]", *lines]))
    config.current.cache_clear()
    return find_project_stores(project)


def test_without_a_store_none_is_opened(settings: list[Config], tmp_path: Path) -> None:
    assert find_project_stores(tmp_path) == ProjectStores()
    assert find(tmp_path, 'database = "p/f.fragdb"', 'store_trust = "signed"') == ProjectStores()
    assert not settings


def test_a_project_configures_stores_relative_to_its_file(settings: list[Config], project: Path) -> None:
    found = find(
        project, f'store = ["{STORE}#read", "file:///d"]', 'store_trust = "signed"', 'store_signers = "signers"'
    )
    (used,) = settings
    assert (used.store.split(), used.store_trust) == ([f"{STORE}#read", "file:///d"], "signed")
    assert used.store_signers == project / "signers"
    assert len(found.project) == 64


def test_the_environment_comes_before_the_project(
    settings: list[Config], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITLTO_STORE", "gs://mine")
    monkeypatch.setenv("JITLTO_STORE_SIGNERS", str(project / "mine"))
    found = find(project, f'store = ["{STORE}"]', 'store_signers = "signers"')
    (used,) = settings
    assert (used.store, used.store_signers) == ("gs://mine", project / "mine")
    assert found.project == ""


def test_what_a_project_trusts_is_kept_apart(settings: list[Config], project: Path) -> None:
    """Another store, other keys: another directory, so that one project cannot put code into another's builds."""
    lines = f'store = ["{STORE}"]', 'store_signers = "signers"'
    found = find(project, *lines)
    assert find(project, *lines).project == found.project
    (project / "signers").write_text("keys and one more")
    others = [find(project, *lines), find(project, f'store = ["{STORE}"]'), find(project, 'store = ["s3://b"]')]
    assert len({each.project for each in (found, *others)}) == 4
    directories = [each.open_directory("build", 1 << 20) for each in (found, *others, ProjectStores())]
    assert len({each.directory for each in directories if each is not None}) == 5


@pytest.mark.parametrize(
    "line", ['store = "s3://b"', "store = [1]", 'store = ["s3://b"]\nstore_trust = "none"', "store_signers = 1"]
)
def test_invalid_keys_are_rejected(settings: list[Config], project: Path, line: str) -> None:
    with raises(ProjectError, "project-invalid-value", where="[tool.jitlto]"):
        find(project, line)


def test_an_invalid_address_names_the_table(settings: list[Config], project: Path) -> None:
    with raises(StoreError, "store-address", where="[tool.jitlto] store"):
        find(project, 'store = ["ftp://host"]')
