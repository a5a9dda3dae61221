"""``jitlto doctor`` diagnoses what other commands stumble over, and says it in any encoding."""

import json
from pathlib import Path

import pytest

from jitlto.base.errors import ToolchainError
from jitlto.compile.nvcc import Compiler
from tests.runtime.discovery.test_entry_points import site
from tests.support.commands import fails, jitlto, jitlto_process

__all__ = ["site"]  # a fixture


def _findings(status: int | None = 0, **variables: str) -> list[dict[str, object]]:
    done = jitlto("doctor", "--json", **variables)
    assert status in (None, done.returncode), done.stderr
    found = json.loads(done.stdout)["findings"]
    assert isinstance(found, list)
    return found


@pytest.mark.slow
def test_a_cache_that_other_commands_refuse_is_not_well_and_one_that_can_be_made_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "circle").symlink_to("circle")
    refused = {"file": "ot a directory", "open": "can be written by others", "circle": "symbolic links"}
    for name, why in {**refused, "new/below": None}.items():
        own = {"JITLTO_CACHE_DIR": str(tmp_path / name)}
        (found,) = [each for each in _findings(**own) if each["name"] == "cache directory"]
        assert found["ok"] is (why is None)
        assert (why or name) in str(found["value"])
        told = json.loads(jitlto("cache", "info", "--json", **own).stdout)
        assert {cache["usable"] for cache in told["caches"]} == {found["ok"]}
    assert not (tmp_path / "new").exists()


def _stores(**variables: str) -> list[dict[str, object]]:
    return [found for found in _findings(**variables) if found["name"] == "shared store"]


def test_a_store_that_works_is_well_and_one_that_does_not_gets_a_remedy(tmp_path: Path) -> None:
    assert _stores() == []
    url = (tmp_path / "store").as_uri()
    (missing,) = _stores(JITLTO_STORE=url)
    assert missing["ok"] is False
    assert not (tmp_path / "store").exists()
    (tmp_path / "store").mkdir()
    (well,) = _stores(JITLTO_STORE=url)
    assert well["ok"] is True
    assert url in str(well["value"])
    for variables in (
        {"JITLTO_STORE": (tmp_path / "none").as_uri() + "#read"},
        {"JITLTO_STORE": "ftp://somewhere"},
        {"JITLTO_STORE": url, "JITLTO_STORE_TRUST": "signed"},
        {"JITLTO_STORE": f"{url}#read", "JITLTO_STORE_TRUST": "signed", "JITLTO_STORE_SIGNERS": str(tmp_path / "none")},
    ):
        wrong = [found for found in _stores(**variables) if not found["ok"]]
        assert wrong
        assert all(found["remedy"] and found["needed_for"] == "use" for found in wrong)
    assert "see – above" in jitlto("doctor", JITLTO_STORE="ftp://somewhere").stdout


def test_a_setting_that_is_none_is_the_error() -> None:
    fails(jitlto("doctor", JITLTO_CACHE="sometimes"), 1, "JITLTO_CACHE", "sometimes", "on or off")


@pytest.mark.slow
def test_nvcc_and_its_host_compiler_are_named_and_not_required(tmp_path: Path) -> None:
    found = {f["name"]: f for f in _findings()}
    try:
        compiler = Compiler()
    except ToolchainError as error:
        assert error.what in str(found["nvcc"]["value"])
        pytest.skip(error.what)
    assert f"{compiler.version} at {compiler.path}" in str(found["nvcc"]["value"])
    assert compiler.host_path in str(found["nvcc"]["value"])
    without = {f["name"]: f for f in _findings(NVCC_CCBIN=str(tmp_path / "none"))}
    assert (without["nvcc"]["ok"], without["nvcc"]["needed_for"]) == (False, "")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_output_in_an_encoding_that_lacks_characters_is_escaped(encoding: str, tmp_path: Path) -> None:
    directory = tmp_path / "Ordner-ü-✓-\U0001f600"
    variables = {"PYTHONIOENCODING": encoding, "JITLTO_CACHE_DIR": str(directory), "PYTHONUTF8": "0"}
    done = jitlto_process("doctor", **variables)
    assert done.returncode == 0, done.stderr
    assert b"building and linking work" in done.data
    told = json.loads(jitlto_process("cache", "info", "--json", **variables).data.decode(encoding))
    assert told["caches"][0]["directory"] == str(directory / "cubins")
