"""The kernels that several modules launch."""

from pathlib import Path

import pytest

from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support.families import built
from tests.support.launch_kernels import FAMILY


@pytest.fixture(scope="package")
def kernels_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of them."""
    return built(tmp_path_factory.mktemp("kernels"), FAMILY, "kernels").database.path


@pytest.fixture
def kernels(kernels_path: Path) -> KernelFamily:
    """Their family."""
    return KernelFamily("kernels", FragmentDatabase(kernels_path))
