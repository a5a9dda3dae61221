"""Imports go downward: the contracts of ``[tool.importlinter]`` hold."""

from __future__ import annotations

import pytest

from tests.support.process import ROOT

cli = pytest.importorskip("importlinter.cli", reason="import-linter is not installed; the extra test brings it")


def test_every_contract_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.lint_imports(no_cache=True, no_logo=True) == 0, capsys.readouterr().out
