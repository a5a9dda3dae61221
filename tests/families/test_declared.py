"""The shipped families as they are declared: how many fragments their matrices and templates give, uncompiled."""

from collections import Counter

import pytest

from jitlto.families import declaration
from jitlto.families.matrix import load_matrix
from jitlto.families.templates import render_family
from tests.support.shipped import GROUPS


def test_these_families_are_shipped() -> None:
    assert set(declaration.list_families()) == set(GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_matrices_give_the_promised_number_of_combinations(name: str) -> None:
    family = declaration.load_family(declaration.find_family(name))
    assert {group.name: load_matrix(group.matrix).count for group in family.groups if group.matrix} == GROUPS[name]


@pytest.mark.parametrize("name", ["transform", "search", "transport"])
def test_every_combination_renders_under_a_key_of_its_own(name: str) -> None:
    sources = list(render_family(declaration.load_family(declaration.find_family(name))))
    assert Counter(source.group.name for source in sources) == GROUPS[name]
    assert len({source.key for source in sources}) == len({source.text for source in sources}) == len(sources)
