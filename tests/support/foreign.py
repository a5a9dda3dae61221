"""Libraries to import, in the style of RAPIDS cuVS and of users of librtcx."""

from tests.support.process import ROOT

#: Three families, groups that they share, 119 fragments. Its bundled library replaces headers of the toolkit.
TREE = ROOT / "tests" / "support" / "foreign_tree" / "cpp"
#: The directory of a small library, ``cpp``, and of what it depends on, ``installed``: with what stands in the way of
#: moving over.
MOVING = ROOT / "tests" / "support" / "moving_tree"
