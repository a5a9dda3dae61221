"""Manifests of twins: which file a name in a line table stands for, and what is no twin."""

from pathlib import Path

import pytest

from jitlto.database.twin import TwinManifest, twin_directory

MANIFEST = TwinManifest("d1", {"f": {"a.cuh": "f/a.cuh", "sub/a.cuh": "f/sub/a.cuh", "0f.cu": "f/g/x-1.cu"}})


def test_a_manifest_is_read_back(tmp_path: Path) -> None:
    MANIFEST.write(tmp_path)
    assert TwinManifest.read(tmp_path) == MANIFEST


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/a.cuh", "f/a.cuh"),
        ("a.cuh", "f/a.cuh"),
        ("/home/me/a.cuh", "f/a.cuh"),
        ("/sub/a.cuh", "f/sub/a.cuh"),
        ("/proc/self/cwd/s/o/u/r/c/e/0f.cu", "f/g/x-1.cu"),
        ("/cuda_fp16.h", None),
        ("/xa.cuh", None),
        ("", None),
    ],
)
def test_the_longest_known_end_of_a_name_counts(name: str, path: str | None) -> None:
    assert MANIFEST.find("f", name) == path
    assert MANIFEST.find("other", name) is None


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"schema": 2}', '{"schema": 1, "original": "", "files": []}']
)
def test_what_cannot_be_read_is_no_twin(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "files.json").write_text(content)
    assert TwinManifest.read(tmp_path) is None


def test_a_twin_is_beside_its_database() -> None:
    assert twin_directory(Path("/x/search.fragdb")) == Path("/x/search.lineinfo")
