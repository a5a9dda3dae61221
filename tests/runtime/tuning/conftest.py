"""What the tests of tuning share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.tuned import PlannedFamily, open_tuned


@pytest.fixture
def tuned_copy(tuned_path: Path, tmp_path: Path) -> Path:
    """A copy, beside which wisdom can be put."""
    return Path(shutil.copy(tuned_path, tmp_path / "tuned.fragdb"))


@pytest.fixture
def tuned(tuned_copy: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedFamily:
    """The tuned family on a pretended H200."""
    return open_tuned(tuned_copy, monkeypatch)
