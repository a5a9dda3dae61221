"""Settings: which variables count, their defaults, and that they are read once."""

from pathlib import Path

import pytest

from jitlto.base import config
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from tests.support.errors import raises


def test_paths_are_meant_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"JITLTO_DATABASE_PATH": "a::b", "JITLTO_CACHE_DIR": "b", "JITLTO_RECORD": "~/c", "JITLTO_PREBUILT": "d"}
    settings = Config.read(names)
    assert settings.database_path == (tmp_path / "a", tmp_path / "b")
    assert settings.cache_dir == tmp_path / "b"
    assert settings.record == Path.home() / "c"
    assert settings.prebuilt == tmp_path / "d"


@pytest.mark.parametrize(
    ("text", "size"), [("", 4 << 30), ("0", 0), ("1000", 1000), ("2k", 2048), (" 3M ", 3 << 20), ("1T", 1 << 40)]
)
def test_build_cache_size(text: str, size: int) -> None:
    assert Config.read({"JITLTO_BUILD_CACHE_SIZE": text}).build_cache_size == size


@pytest.mark.parametrize("text", ["-1", "4 GB", "much", "1.5G", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with raises(JitltoError, "jitlto-size"):
        Config.read({"JITLTO_BUILD_CACHE_SIZE": text})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Path.home() / ".cache" / "jitlto"),
        ({"XDG_CACHE_HOME": ""}, Path.home() / ".cache" / "jitlto"),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/jitlto")),
        ({"XDG_CACHE_HOME": "/x", "JITLTO_CACHE_DIR": ""}, Path("/x/jitlto")),
        ({"XDG_CACHE_HOME": "/x", "JITLTO_CACHE_DIR": "/y"}, Path("/y")),
    ],
)
def test_cache_directory(environment: dict[str, str], expected: Path) -> None:
    assert Config.read(environment).cache_dir == expected


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config.current.cache_clear()
    try:
        monkeypatch.setenv("JITLTO_CACHE_DIR", "/first")
        assert config.current().cache_dir == Path("/first")
        monkeypatch.setenv("JITLTO_CACHE_DIR", "/second")
        assert config.current().cache_dir == Path("/first")
    finally:
        config.current.cache_clear()


def test_settings_of_shared_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "": " s3://bucket ",
        "_TRUST": "checksum",
        "_SIGNERS": "a",
        "_KEY": "~/b",
        "_PATIENCE": " 1.5 ",
        "_TIMEOUT": "30",
    }
    settings = Config.read({f"JITLTO_STORE{name}": text for name, text in names.items()})
    assert settings.store == "s3://bucket"
    assert settings.store_trust == "checksum"
    assert settings.store_signers == tmp_path / "a"
    assert settings.store_key == Path.home() / "b"
    assert (settings.store_patience, settings.store_timeout) == (1.5, 30)
    without = Config.read({"JITLTO_STORE_TRUST": "", "JITLTO_STORE_PATIENCE": ""})
    assert (without.store, without.store_trust, without.store_signers, without.store_key) == ("", "", None, None)
    assert without.store_patience is without.store_timeout is None


@pytest.mark.parametrize("text", ["0", "0.05", ".5", "2."])
def test_seconds(text: str) -> None:
    assert Config.read({"JITLTO_STORE_PATIENCE": text}).store_patience == float(text)


@pytest.mark.parametrize("text", [".", "-1", "1e3", "nan", "50ms", "0,05", "1" * 9])
def test_what_is_no_time_is_refused(text: str) -> None:
    with raises(JitltoError, "jitlto-setting", where="JITLTO_STORE_PATIENCE"):
        Config.read({"JITLTO_STORE_PATIENCE": text})


def test_a_trust_that_there_is_not_is_refused() -> None:
    with raises(JitltoError, "jitlto-setting", where="JITLTO_STORE_TRUST", hint="signed or checksum"):
        Config.read({"JITLTO_STORE_TRUST": "all"})
