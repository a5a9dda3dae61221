"""Values that change nothing compiled are noted, once for each group and parameter."""

from __future__ import annotations

from jitlto.base.versions import Architecture, Version
from jitlto.build.findings import Kind
from jitlto.check.same_code import find_same_code
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role


def made(ltoir: str, ptx: str = "", group: str = "op", **parameters: str) -> Fragment:
    """A fragment whose images have these digests."""
    how = 1, "nvrtc", Version(12, 9)
    images = [Image(ImageKind.LTOIR, Architecture(75), ltoir, *how)]
    images += [Image(ImageKind.PTX, Architecture(75), ptx, *how, Version(8, 8))] if ptx else []
    return Fragment(FragmentKey.make("f", group, parameters), Role.DEVICE, "", (), (), (), tuple(images))


def test_fragments_of_one_code_name_the_parameter_that_makes_no_difference() -> None:
    (note,) = find_same_code([
        made("1", "p", metric="l1", veclen="1"),
        made("2", "p", metric="l1", veclen="4"),
        made("3", "q", metric="l2", veclen="1"),
    ])  # fmt: skip
    assert note.kind is Kind.SAME_CODE
    assert all(part in note.message for part in ("metric=l1,veclen=1", "metric=l1,veclen=4", ": veclen "))
    assert note.hint is None


def test_one_parameter_of_a_group_is_one_note() -> None:
    fragments = [made(f"{m}{v}", m, metric=m, veclen=v) for m in ("l1", "l2", "cos") for v in ("1", "2", "4")]
    (note,) = find_same_code(fragments)
    assert "7 more" in note.message


def test_without_ptx_the_ltoir_is_compared() -> None:
    assert len(list(find_same_code([made("1", n="1"), made("1", n="2"), made("2", n="3")]))) == 1


def test_other_groups_and_other_code_are_no_matter() -> None:
    assert not [
        *find_same_code([made("1", "p", group="a"), made("1", "p", group="b"), made("1", "q", group="b", n="1")])
    ]
    bare = Fragment(FragmentKey.make("f", "op", {}), Role.DEVICE, "", (), (), (), ())
    assert not [*find_same_code([bare, bare])]
