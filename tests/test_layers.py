"""Imports go downward: the contracts of ``[tool.importlinter]`` hold."""

import pytest

from tests.support.process import ROOT, python

pytest.importorskip("importlinter", reason="import-linter is not installed; the extra test brings it")


@pytest.mark.slow
def test_every_contract_holds() -> None:
    # In a process of its own: import-linter configures logging, and so turns off the loggers of other tests.
    done = python("-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache", cwd=ROOT)
    assert done.returncode == 0, done.stdout
