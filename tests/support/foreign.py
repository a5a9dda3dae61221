"""Libraries to import, in the style of RAPIDS cuVS and of users of librtcx."""

from tests.support.process import ROOT

#: Three families, groups that they share, 119 fragments. Its bundled library replaces headers of the toolkit.
TREE = ROOT / "tests" / "support" / "foreign_tree" / "cpp"
#: What stands in the way of moving over: a small library, ``cpp``, with what it depends on, ``installed``; and a family
#: declared by hand, ``apply``, for the templates and headers of another project, ``vendor``.
MOVING = ROOT / "tests" / "support" / "moving_tree"
