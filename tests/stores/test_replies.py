"""Whatever a store replies, a process gets the genuine payload or a miss, without an exception and without a hang."""

import base64
import hashlib
import random
import time
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores import entry
from tests.support.shared_stores import KeyPair, Object, WrongReplies, opened, signed, trust, trusted
from tests.support.store_server import faulty_store

SEED = 20


def objects(chance: random.Random, count: int) -> list[Object]:
    """Objects of all kinds and sizes."""
    made = []
    for number in range(count):
        key = hashlib.sha256(b"%d" % number).hexdigest()
        made.append(
            Object(chance.choice(["kernels", "compiled"]), key, chance.randbytes(chance.choice([0, 1, 64, 3000])))
        )
    return made


@pytest.fixture
def keys(tmp_path: Path) -> tuple[KeyPair, KeyPair]:
    """The key that is trusted and one that is not."""
    return KeyPair.create(tmp_path / "ours"), KeyPair.create(tmp_path / "stranger")


def test_no_wrong_reply_is_decoded(keys: tuple[KeyPair, KeyPair], tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311
    others = objects(chance, 10)
    wrong = WrongReplies(chance, *keys, others)
    trusts = trusted(tmp_path / "signers", keys[0])
    wanted = Object("kernels", hashlib.sha256(b"wanted").hexdigest(), b"payload" * 20)
    assert entry.decode(wanted.kind, wanted.key, wrong.entry(wanted), trusts) == wanted.payload
    for way in wrong.ways:
        for _ in range(20):
            reply = way(wanted)
            try:
                payload = entry.decode(wanted.kind, wanted.key, reply, trusts)
            except StoreError:
                continue
            assert payload == wanted.payload, way.__name__
            assert reply == wrong.entry(wanted), way.__name__


@pytest.mark.slow
def test_of_2000_wrong_replies_none_is_taken_and_none_is_an_error(
    keys: tuple[KeyPair, KeyPair], tmp_path: Path
) -> None:
    chance = random.Random(SEED)  # noqa: S311
    others = objects(chance, 50)
    wrong = WrongReplies(chance, *keys, others)
    settings = signed(trust(tmp_path / "signers", keys[0]), patience=60)
    sent = 0
    with faulty_store() as faulty, opened(faulty.environment | settings) as stores:
        for round_ in range(20):
            wanted = Object("kernels", hashlib.sha256(b"round %d" % round_).hexdigest(), chance.randbytes(500))
            ways = [chance.choice(wrong.ways) for _ in range(100)]
            replies = [way(wanted) for way in ways]
            faulty.set(
                fault="bodies",
                part="/kernels/",
                bodies=[base64.b64encode(reply).decode() for reply in [*replies, wrong.entry(wanted)]],
            )
            for way, reply in zip(ways, replies, strict=True):
                begin = time.perf_counter()
                found = stores.get(wanted.kind, wanted.key)
                assert time.perf_counter() - begin < 5, way.__name__
                assert found is None or (reply == wrong.entry(wanted) and found == wanted.payload), way.__name__
                sent += 1
            assert stores.get(wanted.kind, wanted.key) == wanted.payload  # the store is still asked
        assert faulty.counts()["GET"] >= sent == 2000
        assert stores.counts["rejected"] >= sent - stores.counts["hits"]
