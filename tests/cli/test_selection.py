"""Keys as people type them: whatever means one fragment is taken for it, and nothing else."""

from __future__ import annotations

import pytest

from jitlto.base.errors import JitltoError
from jitlto.cli.selection import describe_nearest, find_key
from jitlto.record.fragment import FragmentKey
from tests.support.errors import raises

KEYS = [
    *(FragmentKey.make("f", "op", {"metric": m, "data_type": t}) for m in ("l1", "l2") for t in ("float", "a,b")),
    FragmentKey.make("f", "opaque", {}),
    FragmentKey.make("g", "kern", {"n": "1"}),
]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("f/op[data_type=float,metric=l2]", "f/op[data_type=float,metric=l2]"),
        ("f/op[metric=l2,data_type=float]", "f/op[data_type=float,metric=l2]"),
        ("op[metric=l1,data_type=a%2Cb]", "f/op[data_type=a%2Cb,metric=l1]"),
        ("kern", "g/kern[n=1]"),
        ("g/kern[", "g/kern[n=1]"),
        ("f/opa", "f/opaque[]"),
        ("f/op[data_type=float,metric=l1", "f/op[data_type=float,metric=l1]"),
        ("f/op[data_type=fl", None),  # two begin so
        ("g/", "g/kern[n=1]"),
    ],
)
def test_what_means_one_key(text: str, key: str | None) -> None:
    if key is None:
        with raises(JitltoError, "jitlto-ambiguous-fragment-key"):
            find_key(text, KEYS)
    else:
        assert str(find_key(text, KEYS)) == key


@pytest.mark.parametrize("text", ["op[metric=l3]", "h/op[metric=l1,data_type=float]", "", "[]", "f/op[metric]", "/"])
def test_what_means_none(text: str) -> None:
    assert find_key(text, KEYS) is None
    assert "'kern'" in describe_nearest("kren", KEYS, "")
