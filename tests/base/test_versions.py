"""Versions and architectures: their texts and their order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from tests.support.errors import raises

architectures = st.builds(Architecture, st.integers(50, 199), st.sampled_from(["", "a", "f"]))
versions = st.builds(Version, st.integers(11, 15), st.integers(0, 9))


def arch(text: str) -> Architecture:
    return Architecture.parse(text)


@pytest.mark.slow
@given(architectures, st.sampled_from(["", "sm_", "compute_", "lto_"]))
def test_architectures_parse_back(architecture: Architecture, prefix: str) -> None:
    assert Architecture.parse(prefix + str(architecture)) == architecture
    assert Architecture.parse(architecture.sm) == Architecture.parse(architecture.compute) == architecture


@pytest.mark.parametrize("text", ["", "sm", "sm_", "9", "sm_9", "sm_90b", "sm_90aa", "9.0", "sm90", "sm_1000", "x_90"])
def test_what_is_no_architecture(text: str) -> None:
    with raises(JitltoError, "jitlto-architecture", repr(text)):
        Architecture.parse(text)


def test_architectures_are_ordered_by_number_then_suffix() -> None:
    ordered = [arch(text) for text in ("75", "80", "90", "90a", "100", "100a", "100f", "120")]
    assert all(a < b for a, b in pairwise(ordered))


@pytest.mark.parametrize("text", ["", "12", "v12.9", "12.", ".9", "twelve"])
def test_what_is_no_version(text: str) -> None:
    with raises(JitltoError, "jitlto-version"):
        Version.parse(text)


def test_versions_are_ordered_by_number() -> None:
    assert Version(12, 9) < Version(12, 10) < Version(13, 0)
