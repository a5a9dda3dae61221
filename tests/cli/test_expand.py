"""``jitlto expand``: what it prints, where, and how it exits."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jitlto.cli.expand import expand
from jitlto.families import matrix
from tests.support.commands import fails, jitlto, succeeds
from tests.support.families import MINI, write_family

GOOD = {"_type": [{"data_type": "float", "abbrev": "f"}, {"data_type": "__half"}], "veclen": ["1", "4"]}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def written(folder: Path, document: Any) -> Path:
    path = folder / "matrix.json"
    path.write_text(json.dumps(document))
    return path


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(expand, [str(arg) for arg in args])


def test_prints_one_combination_a_line(good: Path) -> None:
    result = run(good)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "abbrev=f data_type=float veclen=1",
        "abbrev=f data_type=float veclen=4",
        "data_type=__half veclen=1",
        "data_type=__half veclen=4",
    ]


def test_json_is_an_array_of_the_combinations_in_order_one_a_line(good: Path) -> None:
    result = run(good, "--json")
    assert result.exit_code == 0
    combinations = list(matrix.load_matrix(good).combinations())
    assert json.loads(result.stdout) == combinations
    assert [line.rstrip(",") for line in result.stdout.splitlines()[1:-1]] == [
        json.dumps(combination) for combination in combinations
    ]


@pytest.mark.parametrize("option", ["--json", None])
def test_warnings_go_to_stderr_and_change_nothing(tmp_path: Path, option: str | None) -> None:
    path = written(tmp_path, {"type": [{"_abbrev": "f"}]})
    result = run(path, *([option] if option else []))
    assert result.exit_code == 0
    assert result.stdout == {"--json": '[\n{"_abbrev": "f"}\n]\n'}.get(str(option), "_abbrev=f\n")
    first, second = result.stderr.splitlines()
    assert first.startswith(f"warning: {path}:1:2: ") and "`_type`" in first
    assert second.startswith(f"warning: {path}:1:12: ") and "`abbrev`" in second


@pytest.mark.parametrize("target", ["mini", "mini/family.toml", "fragments/mini"])
def test_of_a_family_each_group_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_family(tmp_path / target.replace("/family.toml", ""), MINI)
    assert succeeds("expand", target).splitlines() == [
        "kern: data_type=float",
        "kern: data_type=double",
        *(
            f"op: {expression} data_type={data_type}"
            for expression in ('expr="a + a" op_name=twice', 'expr="a * a" op_name=square')
            for data_type in ("float", "double")
        ),
    ]
    told = json.loads(succeeds("expand", target, "--json"))
    assert told["kern"] == [{"data_type": "float"}, {"data_type": "double"}]
    assert [len(told[name]) for name in told] == [2, 4]
    fails(jitlto("expand", target, "--lenient"), 2, "--lenient")


def test_exit_status_is_0_1_or_2_and_an_error_is_a_message(good: Path, tmp_path: Path) -> None:
    assert jitlto("expand", good).returncode == 0
    assert jitlto("expand", good, "--xml").returncode == 2
    good.write_text('{"a": ["x" "y"]}')
    failed = jitlto("expand", good, "--json")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith(f"error: {good}:1:12: ") and "[matrix-not-json]" in failed.stderr
    assert "Traceback" not in failed.stderr
