"""A library in the style of RAPIDS cuVS, to import: three families, groups that they share, 119 fragments."""

from tests.support.process import ROOT

#: Its bundled library replaces headers of the toolkit.
TREE = ROOT / "tests" / "support" / "foreign_tree" / "cpp"
