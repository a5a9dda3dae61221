"""No page grows beyond what somebody reads: the most words of each, as ``wc -w`` counts them, with code and tables."""

import pytest

from tests.docs.test_docs import DOCS, OTHER_PAGES, PAGES
from tests.support.process import ROOT

#: Before a first kernel of their own, readers have two pages in front of them: README and the quickstart.
MOST_WORDS = {
    "README.md": 700,
    "docs/quickstart.md": 800,
    "docs/architecture.md": 1400,
    "docs/author-guide.md": 5100,
    "docs/benchmarks/README.md": 2410,
    "docs/caller-guide.md": 4000,
    "docs/ci-guide.md": 750,
    "docs/comparison.md": 1200,
    "docs/compatibility.md": 1500,
    "docs/configuration.md": 1800,
    "docs/database.md": 1500,
    "docs/errors.md": 5410,
    "docs/index.md": 350,
    "docs/migration.md": 2250,
    "docs/operators.md": 1200,
    "docs/packaging.md": 1600,
    "docs/profiling.md": 550,
    "docs/security.md": 1500,
    "docs/shared-stores.md": 1600,
    "docs/tuning.md": 650,
}
MOST_WORDS_OF_ALL = 35_000

WORDS = {
    str(page.relative_to(ROOT)): len(page.read_text("utf-8").split())
    for page in (*PAGES, *OTHER_PAGES)
    if page.is_relative_to(DOCS) or page.name == "README.md"
}


@pytest.mark.parametrize("page", WORDS)
def test_a_page_keeps_to_its_budget(page: str) -> None:
    assert WORDS[page] <= MOST_WORDS[page], "shorten the page; a new page needs a budget"


def test_all_pages_together_keep_to_theirs() -> None:
    assert WORDS.keys() == MOST_WORDS.keys()
    assert sum(WORDS.values()) <= MOST_WORDS_OF_ALL
