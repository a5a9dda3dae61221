"""Whatever a shared store replies to builds, they write the same bytes."""

from __future__ import annotations

import base64
import hashlib
import random
from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.build.cache.cache import Cache
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import build
from jitlto.families import declaration
from tests.support.families import MINI, write_family
from tests.support.shared_stores import KeyPair, Object, WrongReplies, opened, signed, trust
from tests.support.store_server import fault_proxy

pytestmark = pytest.mark.timing

BUILDS = 12


@pytest.mark.slow
def test_of_hundreds_of_wrong_replies_none_gets_into_a_database(tmp_path: Path) -> None:
    chance = random.Random(9)  # noqa: S311
    key, stranger = KeyPair.create(tmp_path / "key"), KeyPair.create(tmp_path / "stranger")
    settings = signed(trust(tmp_path / "signers", key), key, patience=60)
    others = [Object("compiled", hashlib.sha256(b"%d" % n).hexdigest(), chance.randbytes(500)) for n in range(20)]
    wrong = WrongReplies(chance, key, stranger, others)
    family = declaration.load_family(write_family(tmp_path / "mini", MINI))
    replies = 0

    def built(number: int) -> tuple[bytes, int]:
        """The database of a build on a fresh machine, and how many sources it compiled."""
        with opened(proxy.environment | settings) as stores:
            cache = Cache(CacheDir(tmp_path / f"cache {number}", 1 << 30), stores)
            report = build([family], tmp_path / "mini.fragdb", cache=cache, executor=workers)
        return report.path.read_bytes(), report.compiled

    with ProcessExecutor(2) as workers, fault_proxy(None) as proxy:
        right, compiled = built(0)
        assert built(1) == (right, 0)
        for number in range(2, 2 + BUILDS):
            fault = ("bodies", "tampered", "truncated", "swapped", "bodies", "empty")[number % 6]
            bodies = [chance.choice(wrong.ways)(chance.choice(others)) for _ in range(50)]
            texts = [base64.b64encode(body).decode() for body in bodies]
            proxy.counts(reset=True)
            proxy.set(fault=fault, method="GET", part="/v1/", bodies=texts)
            assert built(number) == (right, compiled), fault
            replies += proxy.counts()["faults"]
        proxy.set()
        assert built(1000) == (right, 0)
    assert replies > 80
