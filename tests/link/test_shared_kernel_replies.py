"""Whatever a shared store replies, the kernel is the right one."""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jitlto.base.config import Config
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.runtime.family import KernelFamily, load
from jitlto.runtime.session import Session
from jitlto.stores import shared
from tests.support.kernels import entry
from tests.support.shared_stores import KeyPair, Object, WrongReplies, signed, trust
from tests.support.store_server import Proxy, fault_proxy

pytestmark = pytest.mark.timing

#: Links kernels as a process of a machine of its own does.
Machine = Callable[..., LinkedKernel]


@pytest.fixture
def key(tmp_path: Path) -> KeyPair:
    return KeyPair.create(tmp_path / "key")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with fault_proxy(None) as proxy:
        for name, value in proxy.variables.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def machine(
    mini_path: Path, proxy: Proxy, key: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Machine]:
    """Start a process on another machine, with the store behind the proxy; it writes all that it links."""
    monkeypatch.setattr(shared, "_by_settings", {})
    settings = signed(trust(tmp_path / "signers", key), key, patience=20) | {"JITLTO_STORE": proxy.url}
    number = iter(range(10_000))

    def start() -> Machine:
        session = Session(Config.read(settings | {"JITLTO_CACHE_DIR": str(tmp_path / f"machine{next(number)}")}))
        family = load("mini", mini_path, session=session)

        def link(op_name: str = "twice") -> LinkedKernel:
            kernel = family.plan(arch="sm_90", data_type="float", op_name=op_name).link()
            shared = session.kernel_cache.shared
            assert shared is not None
            assert shared.store.flush(10)
            return kernel

        return link

    return start


@pytest.mark.slow
def test_of_80_wrong_replies_none_becomes_a_kernel(
    machine: Callable[[], Machine], proxy: Proxy, key: KeyPair, mini: KernelFamily, tmp_path: Path
) -> None:
    chance = random.Random(5)  # noqa: S311
    right = machine()()
    assert right.layer == "link"
    assert machine()().layer == "store"
    plan = mini.plan(arch="sm_90", data_type="float", op_name="twice")
    wanted = Object("kernels", plan.digest, entry(plan))
    others = [Object("kernels", hashlib.sha256(b"%d" % n).hexdigest(), chance.randbytes(500)) for n in range(5)]
    wrong = WrongReplies(chance, key, KeyPair.create(tmp_path / "stranger"), others)
    layers = Counter[str]()
    for number in range(80):
        reply = wrong.ways[number % len(wrong.ways)](wanted)
        if number % 10 == 0:  # signed by us, and no kernel
            payload = chance.choice([b"", b"{}\n", chance.randbytes(99)])
            reply = wrong.entry(Object("kernels", plan.digest, payload))
        bodies = [base64.b64encode(reply).decode()]
        proxy.set(fault="bodies", part="/kernels/", method="GET", bodies=bodies)
        kernel = machine()()
        layers[kernel.layer] += 1
        assert (kernel.cubin, kernel.entry, kernel.target) == (right.cubin, right.entry, right.target)
    assert layers == {"link": 80}
    proxy.set()
    assert machine()().layer == "store"  # what was rejected has been written anew
