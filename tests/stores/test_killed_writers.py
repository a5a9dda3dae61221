"""Writers that are killed at any moment leave whole entries or none, in a directory and in a bucket."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitlto.stores import entry
from jitlto.stores.address import parse_store
from jitlto.stores.backend import open_backend
from jitlto.stores.signatures import TrustedKeys
from tests.support.process import environment
from tests.support.shared_stores import KeyPair, opened, signed, trust
from tests.support.store_server import faulty_store

KILLS = 16  # a kind of store
KEYS = 40

#: Forks a writer for each line that it reads, before anything of the store's is in use, which prints its process id
#: when it has written an entry.
WRITERS = """
import hashlib, os, random, signal, sys
import cryptography.hazmat.primitives.asymmetric.ed25519, obstore
from jitlto.base.config import Config
from jitlto.link.sources import open_shared

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork():
        continue
    chance = random.Random(int(line))
    stores = open_shared(Config.read(os.environ))
    stores.open_soon()
    told = False
    while True:
        number = chance.randrange(int(sys.argv[1]))
        payload = random.Random(number).randbytes(number * 25_000)
        stores.put("kernels", hashlib.sha256(b"%d" % number).hexdigest(), payload)
        if stores.flush(1) and not told:
            print(os.getpid(), flush=True)
            told = True
"""


def payload_of(number: int) -> bytes:
    """What writers store under a key: up to a megabyte, so that a write takes a while."""
    return random.Random(number).randbytes(number * 25_000)  # noqa: S311


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Of writers that sign."""
    key = KeyPair.create(tmp_path / "key")
    return signed(trust(tmp_path / "signers", key), key, patience=30)


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a store that takes some milliseconds a write."""
    if request.param == "directory":
        (tmp_path / "store").mkdir()
        yield {"JITLTO_STORE": (tmp_path / "store").as_uri()}
        return
    with faulty_store() as faulty:
        faulty.set(bandwidth=50e6)
        yield faulty.environment


@pytest.mark.slow
def test_no_half_entry_is_read_after_writers_were_killed(
    store: dict[str, str], settings: dict[str, str], tmp_path: Path
) -> None:
    chance = random.Random(3)  # noqa: S311
    variables = store | settings
    process = subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(KEYS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(**variables),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for seed in range(KILLS):
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        time.sleep(chance.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
    process.stdin.close()
    process.wait()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        address = parse_store(variables["JITLTO_STORE"])
        backend = open_backend(address)
        trusts = TrustedKeys.load(tmp_path / "signers")
        names = {f"v1/kernels/{key[:2]}/{key[2:]}": (key, number) for number, key in enumerate(map(_key, range(KEYS)))}
        found = [item.name for item in backend.list("")]
        assert found
        for name in found:
            key, number = names[name]  # and nothing else lies there
            data = backend.get(name)
            assert data is not None
            assert entry.decode("kernels", key, data, trusts) == payload_of(number)
    with opened(variables) as stores:
        for number in range(KEYS):
            assert stores.get("kernels", _key(number)) in (None, payload_of(number))
        assert stores.counts["rejected"] == 0


def _key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()
