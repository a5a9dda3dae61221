"""The rules of what links with what, and of what a driver loads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.versions import Architecture, Version
from jitlto.cuda import toolkit
from jitlto.cuda.compatibility import (
    can_link_for,
    linkable_architectures,
    ltoir_links,
    newest_ptx_isa,
    runs_on,
)
from jitlto.cuda.driver import find_incompatibility

architectures = st.builds(Architecture, st.integers(50, 199), st.sampled_from(["", "a", "f"]))
plain = st.builds(Architecture, st.integers(50, 199), st.just(""))
versions = st.builds(Version, st.integers(11, 15), st.integers(0, 9))


def arch(text: str) -> Architecture:
    return Architecture.parse(text)


@pytest.mark.parametrize(
    ("target", "links"),
    [("100f", True), ("103f", True), ("103a", True), ("100a", True), ("100", False), ("103", False), ("120f", False),
     ("90", False), ("110a", False)],
)  # fmt: skip
def test_family_specific_code_stays_in_its_family(target: str, links: bool) -> None:
    assert runs_on(arch("100f"), arch(target)) is links


def test_code_does_not_link_downward() -> None:
    assert not runs_on(arch("103f"), arch("100f"))
    # Plain code links upward, and code for one architecture nowhere else.
    assert runs_on(arch("75"), arch("90a"))
    assert not runs_on(arch("90"), arch("75"))
    assert runs_on(arch("90a"), arch("90a"))
    assert not runs_on(arch("90a"), arch("100"))


@pytest.mark.slow
@given(versions, versions)
def test_ltoir_links_within_a_major_with_a_linker_as_new(compiler: Version, linker: Version) -> None:
    assert ltoir_links(compiler, linker) == (compiler[0] == linker[0] and compiler[1] <= linker[1])


@pytest.mark.parametrize(
    ("toolkit_version", "isa"),
    [("12.0", "8.0"), ("12.4", "8.4"), ("12.5", "8.5"), ("12.6", "8.5"), ("12.8", "8.7"), ("12.9", "8.8"),
     ("13.0", "9.0"), ("13.5", "9.5")],
)  # fmt: skip
def test_newest_ptx_isa(toolkit_version: str, isa: str) -> None:
    assert newest_ptx_isa(Version.parse(toolkit_version)) == Version.parse(isa)


@pytest.mark.parametrize(
    ("linker", "target", "known"),
    [
        ("12.9", "75", True), ("12.9", "50", True), ("13.0", "50", False), ("13.0", "70", False), ("13.0", "75", True),
        ("12.6", "100", False), ("12.8", "100", True), ("12.8", "103", False), ("12.9", "103", True),
        ("12.9", "101", True), ("13.0", "101", False), ("12.9", "110", False), ("13.0", "110", True),
        ("12.9", "90a", True), ("12.9", "75a", False), ("12.9", "90f", False), ("12.9", "100f", True),
        ("12.8", "100f", False), ("12.9", "1", False), ("13.5", "999", False), ("14.0", "999", True),
        ("14.0", "91", False),
    ],
)  # fmt: skip
def test_which_architectures_a_linker_knows(linker: str, target: str, known: bool) -> None:
    number = Architecture(1) if target == "1" else arch(target)
    assert can_link_for(Version.parse(linker), number) is known


def test_the_table_of_architectures_is_that_of_the_toolchain_at_hand() -> None:
    nvrtc = toolkit.bindings("nvrtc")
    status, supported = nvrtc.nvrtcGetSupportedArchs()
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    assert sorted(linkable_architectures(toolkit.nvrtc_version())) == sorted(supported)


modern = versions.filter(lambda v: v >= (12, 0))


@pytest.mark.slow
@given(modern, versions)
def test_a_driver_loads_cubins_of_its_major_and_of_earlier_ones(linker: Version, driver: Version) -> None:
    assert (find_incompatibility(driver, linker) is None) == (linker[0] <= driver[0])
