"""Commands about databases: what they print of large ones does not decide how much memory they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.database_scale import write_family

KEY = "op[data_type=data_type_1,metric=metric_2,shape=shape_3]"
_RUN = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "jitlto", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Databases of 2,000 and 20,000 fragments."""
    sizes = {size: tmp_path_factory.mktemp("large") / f"{size}.fragdb" for size in (2000, 20_000)}
    for size, path in sizes.items():
        write_family(path, size)
    return [*sizes.values()]


def peak_memory(*command: str | Path) -> int:
    """Return the megabytes that a command takes at most."""
    done = subprocess.run([sys.executable, "-c", _RUN, *map(str, command)], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("ls",), ("ls", "--json"), ("show", "--json"), ("show",)], ids=" ".join)
def test_ten_times_the_fragments_take_no_more_memory(command: tuple[str, ...], databases: list[Path]) -> None:
    key = [KEY] if command[0] == "show" else []
    few, many = (peak_memory(*command, database, *key) for database in databases)
    assert many < few + 10
