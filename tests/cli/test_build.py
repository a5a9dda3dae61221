"""`jitlto render`: files that nvcc takes."""

from __future__ import annotations

import gc
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.cli.build import source_name
from jitlto.model.fragment import FragmentKey
from tests.support.commands import jitlto

VALUES = st.tuples(st.text(), st.text())


def test_names_are_readable() -> None:
    key = FragmentKey.make("f", "g", {"veclen": "4", "data_type": "unsigned char", "x": "-0.5"})
    assert source_name(key) == "data_type-unsigned%20char+veclen-4+x--0.5.cu"
    assert source_name(FragmentKey.make("f", "g", {})) == "g.cu"


@pytest.mark.slow
@given(VALUES, VALUES)
def test_names_differ_and_have_no_character_that_nvcc_or_a_file_system_refuses(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    keys = [FragmentKey.make("f", "g", {"a": a, "b": b}) for a, b in (one, other)]
    names = [source_name(key) for key in keys]
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9_.~%+-]{1,203}", name) for name in names)


def test_garbage_is_collected_again_after_a_build() -> None:
    assert gc.isenabled()
    assert jitlto("build", "no-such-family", "--dry-run").returncode != 0
    assert gc.isenabled()
