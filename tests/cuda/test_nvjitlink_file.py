"""The release of nvJitLink, told from its file without loading it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.cuda import nvjitlink
from jitlto.cuda.nvjitlink_file import installed_release
from jitlto.runtime.linking.lookup_cache import site_packages
from tests.support.process import output_of


def install(directory: Path, name: str, *releases: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    names = [f"__nvJitLinkComplete_{release.replace('.', '_')}" for release in releases]
    (directory / name).write_bytes(
        b"\x7fELF" + b"\0".join([b"", *(n.encode() for n in names), b"nvJitLinkComplete", b""])
    )


def test_the_installed_library_is_told_by_the_functions_that_it_exports() -> None:
    path = nvjitlink.find_installed(site_packages())
    if path is None or not any(Path(path).is_relative_to(place) for place in site_packages()):
        pytest.skip("nvJitLink is not installed as a package")
    assert installed_release(site_packages(), "") == str(nvjitlink.version())


@pytest.mark.parametrize("place", ["nvidia/cu13/lib", "nvidia/nvjitlink/lib"])
def test_the_newest_release_that_a_library_serves_is_its_own(tmp_path: Path, place: str) -> None:
    install(tmp_path / place, "libnvJitLink.so.12", "12.10", "12.0", "12.9")
    assert installed_release([str(tmp_path)], "") == "12.10"


def test_packages_come_before_conda_and_conda_before_nothing(tmp_path: Path) -> None:
    conda, site = tmp_path / "conda", tmp_path / "site"
    assert installed_release([str(site)], str(conda)) is None
    install(conda / "lib", "libnvJitLink.so.13", "13.0")
    assert installed_release([str(site)], str(conda)) == "13.0"
    assert installed_release([str(site)], "") is None
    install(site / "nvidia/nvjitlink/lib", "libnvJitLink.so.12", "12.8")
    assert installed_release([str(site)], str(conda)) == "12.8"


def test_several_releases_or_an_unknown_file_tell_nothing(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    install(one / "nvidia/cu13/lib", "libnvJitLink.so.13", "13.0")
    install(other / "nvidia/cu13/lib", "libnvJitLink.so.13", "13.0")
    assert installed_release([str(one), str(other)], "") == "13.0"
    install(other / "nvidia/nvjitlink/lib", "libnvJitLink.so.12", "12.9")
    assert installed_release([str(one), str(other)], "") is None
    install(one / "nvidia/cu13/lib", "libnvJitLink.so.13")
    assert installed_release([str(one)], "") is None


@pytest.mark.slow
def test_telling_it_loads_nothing() -> None:
    program = (
        "from jitlto.cuda.nvjitlink_file import installed_release\n"
        "from jitlto.runtime.linking.lookup_cache import site_packages\n"
        "installed_release(site_packages(), '')\n"
        "print('libnvJitLink' in open('/proc/self/maps').read())"
    )
    assert output_of(program).strip() == "False"
