"""The kernels that several modules launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from tests.support.families import write_family
from tests.support.launch_kernels import FAMILY


@pytest.fixture(scope="package")
def kernels_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of them."""
    directory = tmp_path_factory.mktemp("kernels")
    return build([declaration.load_family(write_family(directory, FAMILY))], directory / "kernels.fragdb").path


@pytest.fixture
def kernels(kernels_path: Path) -> KernelFamily:
    """Their family."""
    return KernelFamily("kernels", FragmentDatabase(kernels_path))
