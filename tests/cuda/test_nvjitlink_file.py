"""The release of nvJitLink, told from its file without loading it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jitlto.cuda import libraries, nvjitlink
from jitlto.cuda.nvjitlink_file import installed_release
from tests.support.process import output_of


def install(library: Path, *releases: str) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    names = [f"__nvJitLinkComplete_{release.replace('.', '_')}" for release in releases]
    library.write_bytes(b"\x7fELF" + b"\0".join([b"", *(n.encode() for n in names), b"nvJitLinkComplete", b""]))


def test_the_installed_library_is_told_by_the_functions_that_it_exports() -> None:
    if libraries.find_packaged(*libraries.FILES["nvJitLink"]) is None:
        pytest.skip("nvJitLink is not installed as a package")
    assert installed_release("") == str(nvjitlink.version())


@pytest.mark.parametrize("file", libraries.FILES["nvJitLink"])
def test_the_newest_release_that_a_library_serves_is_its_own(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "nvidia" / file, "12.10", "12.0", "12.9")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_release("") == "12.10"


def test_packages_come_before_conda_and_conda_before_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conda, site = tmp_path / "conda", tmp_path / "site"
    monkeypatch.setattr(sys, "path", [str(site)])
    assert installed_release(str(conda)) is None
    install(conda / "lib" / "libnvJitLink.so.13", "13.0")
    assert installed_release(str(conda)) == "13.0"
    assert installed_release("") is None
    install(site / "nvidia/nvjitlink/lib/libnvJitLink.so.12", "12.8")
    assert installed_release(str(conda)) == "12.8"


def test_the_first_package_from_which_python_imports_counts_and_an_unknown_file_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    install(one / "nvidia/cu13/lib/libnvJitLink.so.13", "13.0")
    install(other / "nvidia/nvjitlink/lib/libnvJitLink.so.12", "12.9")
    for places, expected in (((one, other), "13.0"), ((other, one), "12.9")):
        monkeypatch.setattr(sys, "path", list(map(str, places)))
        assert installed_release("") == expected
    install(other / "nvidia/nvjitlink/lib/libnvJitLink.so.12")
    assert installed_release("") is None


@pytest.mark.slow
def test_telling_it_loads_nothing() -> None:
    program = (
        "from jitlto.cuda.nvjitlink_file import installed_release\n"
        "assert installed_release('')\n"
        "print('libnvJitLink' in open('/proc/self/maps').read())"
    )
    assert output_of(program).strip() == "False"
