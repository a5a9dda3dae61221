"""Headers on their way to a worker: whatever it holds, it ends with the set that was sent, after few attempts."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.build.execution.header_transfer import Headers, HeaderStore, MissingHeaders, pack
from jitlto.record.headers import digest_content, digest_headers

SETS = st.dictionaries(st.sampled_from("abcd"), st.binary(max_size=2), max_size=4)


def send(headers: Headers, *stores: HeaderStore) -> int:
    """Send a set to one of the stores after the other, as often as is asked for; return the number of attempts."""
    digest, wanted = digest_headers(headers), frozenset[bytes]()
    packed: bytes | None = None
    for attempt in range(1, 20):
        store = stores[attempt % len(stores)]
        try:
            found = store.get(digest) if packed is None else store.receive(digest, packed)
        except MissingHeaders as error:
            asked = pickle.loads(pickle.dumps(error)).contents  # noqa: S301 - our own
            packed = pack(headers, None if asked is None else (wanted := wanted | asked))
        else:
            assert found == store.get(digest) == headers
            return attempt
    raise AssertionError("it asks forever")


@pytest.mark.slow
@given(st.lists(SETS, max_size=4), SETS)
def test_a_store_asks_for_what_it_lacks(held: list[Headers], headers: Headers) -> None:
    store = HeaderStore(1 << 20)
    for each in held:
        store.put(digest_headers(each), each)
    assert send(headers, store) <= 3
    assert send(headers, store) == 1


@pytest.mark.slow
@given(st.lists(SETS, max_size=2), st.lists(SETS, max_size=2), SETS)
def test_attempts_that_reach_other_workers_come_to_an_end(
    one: list[Headers], two: list[Headers], last: Headers
) -> None:
    stores = HeaderStore(1 << 20), HeaderStore(1 << 20)
    for store, sets in zip(stores, (one, two), strict=True):
        for each in sets:
            store.put(digest_headers(each), each)
    assert send(last, *stores) <= 5


def test_only_what_is_asked_for_is_sent() -> None:
    headers = {"a": bytes(range(256)) * 10, "b": bytes(reversed(range(256))) * 10}
    none, one, both = (
        pack(headers, frozenset()),
        pack(headers, frozenset([digest_content(headers["a"])])),
        pack(headers, None),
    )
    assert len(none) < 200 < len(one) < len(both)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=40))
def test_a_store_holds_no_more_than_its_limit_beside_the_last(puts: list[tuple[str, int]]) -> None:
    store = HeaderStore(100)
    sizes: dict[str, int] = {}
    for name, size in puts:
        store.put(name, {"h": bytes(size)})
        sizes[name] = size
        assert store.get(name) == {"h": bytes(size)}
        held = {n for n in sizes if n in store._sets}
        assert sum(sizes[n] for n in held) <= 100


def test_a_store_drops_the_least_recently_used_set() -> None:
    store = HeaderStore(3)
    for name in "abc":
        store.put(name, {"h": b"1"})
    store.get("a")
    store.put("d", {"h": b"1"})
    with pytest.raises(MissingHeaders):
        store.get("b")
    assert store.get("a") == {"h": b"1"}
