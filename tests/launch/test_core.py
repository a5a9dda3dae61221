"""Whether launches use the compiled core: by what was built and the settings."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.launch import core
from tests.support import launch_core
from tests.support.errors import raises


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings and modules are looked for again, before and after."""
    config.current.cache_clear()
    yield
    monkeypatch.undo()
    config.current.cache_clear()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("_launch")
    module.INTERFACE = core._INTERFACE  # type: ignore[attr-defined]
    monkeypatch.setattr(core, "import_module", lambda _: module)
    return module


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(core, "import_module", fail)


@pytest.mark.parametrize("setting", ["", "auto", "required"])
def test_what_was_built_is_used(monkeypatch: pytest.MonkeyPatch, built: ModuleType, setting: str) -> None:
    monkeypatch.setenv("JITLTO_EXTENSION", setting)
    assert core.extension() is built


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, built: ModuleType) -> None:
    monkeypatch.setenv("JITLTO_EXTENSION", "off")
    assert core.extension() is None


@pytest.mark.usefixtures("missing")
def test_what_was_not_built_is_missed_only_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JITLTO_EXTENSION", raising=False)
    assert core.extension() is None
    monkeypatch.setenv("JITLTO_EXTENSION", "required")
    config.current.cache_clear()
    with raises(JitltoError, "jitlto-extension-missing", "_launch", where="JITLTO_EXTENSION"):
        core.extension()


def test_an_extension_of_another_version_counts_as_missing(monkeypatch: pytest.MonkeyPatch, built: ModuleType) -> None:
    built.INTERFACE = -1  # type: ignore[attr-defined]
    built.__file__ = "stale.so"
    monkeypatch.delenv("JITLTO_EXTENSION", raising=False)
    assert core.extension() is None
    monkeypatch.setenv("JITLTO_EXTENSION", "required")
    config.current.cache_clear()
    with raises(JitltoError, "jitlto-extension-missing", "stale.so"):
        core.extension()


def test_what_the_tests_build_is_of_this_version() -> None:
    assert launch_core.core().INTERFACE == core._INTERFACE
