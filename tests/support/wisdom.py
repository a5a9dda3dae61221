"""Wisdom for tests: entries by hand, and a strategy for any."""

from collections.abc import Iterable

from hypothesis import strategies as st

from jitlto.record.tuning import Variant
from jitlto.tuning.wisdom import Entry, Sizes, Trial, Wisdom

H200 = "NVIDIA H200 (sm_90, 132 SMs, memory at 3201 MHz)"
A100 = "NVIDIA A100 (sm_80, 108 SMs, memory at 1215 MHz)"


def variant(**choices: str) -> Variant:
    """A variant of parameters, and of ``block``."""
    block = choices.pop("block", None)
    return Variant(tuple(sorted(choices.items())), (int(block),) if block else ())


def trial(seconds: float, count: int = 10, **choices: str) -> Trial:
    return Trial(variant(**choices), seconds, count)


def make_entry(
    family: str, entry: str, configuration: dict[str, str], bucket: Sizes, device: str, trials: Iterable[Trial]
) -> Entry:
    """An entry of an unsorted configuration."""
    return Entry(family, entry, tuple(sorted(configuration.items())), bucket, device, tuple(trials))


def entry(
    *trials: Trial, device: str = H200, rows: int = 1024, data_type: str = "float", family: str = "mini"
) -> Entry:
    """What was measured for a family with one size and one parameter."""
    return make_entry(family, "kern", {"data_type": data_type}, (("rows", rows),), device, trials)


variants = st.builds(
    Variant,
    st.sampled_from([(), (("veclen", "1"),), (("veclen", "4"),), (("a", "x"), ("veclen", "4"))]),
    st.sampled_from([(), (64,), (16, 8)]),
)
trials = st.builds(
    Trial,
    variants,
    st.floats(1e-7, 10),
    st.integers(1, 1000),
)
entries = st.builds(
    make_entry,
    st.sampled_from(["mini", "search"]),
    st.just("kern"),
    st.sampled_from([{}, {"data_type": "float"}, {"data_type": "double"}]),
    st.sampled_from([(("rows", 1),), (("rows", 1024),), (("rows", 1 << 40),)]),
    st.sampled_from([H200, A100]),
    st.lists(trials, min_size=1, max_size=4),
)
wisdoms = st.lists(entries, max_size=5).map(Wisdom)
