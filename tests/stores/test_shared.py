"""Stores as both wings use them: what is found, what is trusted, what it costs when a store fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress
from jitlto.stores.shared import SharedStores
from jitlto.stores.trust import Trust
from tests.support.errors import raises
from tests.support.process import python
from tests.support.stores import KEY, config, directory_store, write_key

pytestmark = pytest.mark.timing

pytest.importorskip("obstore")

OTHER = "f" * 64


def test_without_a_setting_there_are_no_stores() -> None:
    assert SharedStores.from_config(config()) is None


def test_a_wrong_address_is_an_error_at_once() -> None:
    with raises(StoreError, "store-address", where="JITLTO_STORE"):
        SharedStores.from_config(config(**{"": "ftp://host"}))


def test_the_same_settings_give_the_same_stores(tmp_path: Path) -> None:
    settings = config(**{"": f"file://{tmp_path}"})
    assert SharedStores.from_config(settings) is SharedStores.from_config(settings)


def test_what_one_process_writes_another_reads(tmp_path: Path) -> None:
    writer, reader = directory_store(tmp_path), directory_store(tmp_path)
    assert writer.get("kernels", KEY) is None
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert reader.get("kernels", KEY) == b"linked"
    assert reader.get("compiled", KEY) is None
    assert (reader.statistics.hits, reader.statistics.misses) == (1, 1)
    assert writer.statistics.writes == 1


def test_signed_entries_are_read_by_those_who_trust_the_key(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key")
    trust = Trust(True, tmp_path / "key.pub", key)
    writer = directory_store(tmp_path / "store", trust)
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert directory_store(tmp_path / "store", Trust(True, tmp_path / "key.pub")).get("kernels", KEY) == b"linked"
    write_key(tmp_path / "other")
    reader = directory_store(tmp_path / "store", Trust(True, tmp_path / "other.pub"))
    assert reader.get("kernels", KEY) is None
    assert reader.statistics.rejected == 1


ENDING = """
import os, socket, sys, threading, time
from jitlto.stores.address import StoreAddress
from jitlto.stores.shared import SharedStores
from jitlto.stores.trust import Trust

delay = float(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0), backlog=50)
if os.fork() == 0:  # answers the first request, which opens the store, and the others late
    import signal
    signal.alarm(10)
    os.close(1), os.close(2)
    def answer(client, seconds):
        while client.recv(10000):
            time.sleep(seconds)
            client.sendall(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\n\\r\\n")
            seconds = delay
    seconds = 0
    while True:
        client, _ = server.accept()
        threading.Thread(target=answer, args=(client, seconds), daemon=True).start()
        seconds = delay
address = StoreAddress(f"http://127.0.0.1:{server.getsockname()[1]}", True, False)
stores = SharedStores([(address, Trust(False))], 0.05)
stores.open_soon()
assert stores._stores[0]._opened.wait(10)
assert stores.get_many("kernels", [f"{number:064x}" for number in range(20)]) == {}

class Slow:
    def __del__(self, sleep=time.sleep, os=os):
        sleep(0.1)  # while the interpreter ends, which is when the replies come
        os.write(1, b"ended")

import types
sys.modules["slow"] = types.ModuleType("slow")
sys.modules["slow"].slow = Slow()
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.06, 0.08, 0.1, 0.12, 5])
def test_a_process_ends_well_while_requests_are_under_way(delay: float) -> None:
    begin = time.monotonic()
    done = python("-c", ENDING, str(delay))
    assert (done.returncode, done.stdout) == (0, "ended")
    assert "FATAL" not in done.stderr
    assert "panicked" not in done.stderr
    assert time.monotonic() - begin < 5


def test_with_several_stores_the_first_that_has_an_entry_answers(tmp_path: Path) -> None:
    near, far = (StoreAddress(f"file://{tmp_path}/{name}", True, True) for name in ("near", "far"))
    writer = SharedStores([(far, Trust(False))], 5.0)
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    both = SharedStores([(near, Trust(False)), (far.only(writes=False), Trust(False))], 5.0)
    assert both.get("kernels", KEY) == b"linked"
    assert both.flush(10)
    assert SharedStores([(near, Trust(False))], 5.0).get("kernels", KEY) == b"linked"  # it got a copy
    both.put("kernels", OTHER, b"new")
    assert both.flush(10)
    assert writer.get("kernels", OTHER) is None  # only read


def test_what_is_read_unsigned_is_not_signed_for_others(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key")
    signed = (StoreAddress(f"file://{tmp_path}/signed", True, True), Trust(True, tmp_path / "key.pub", key))
    unsigned = (StoreAddress(f"file://{tmp_path}/unsigned", True, True), Trust(False))
    writer = SharedStores([unsigned], 5.0)
    writer.put("kernels", KEY, b"anybody's")
    assert writer.flush(10)
    both = SharedStores([signed, unsigned], 5.0)
    assert both.get("kernels", KEY) == b"anybody's"
    assert both.flush(10)
    assert SharedStores([signed], 5.0).get("kernels", KEY) is None


@pytest.mark.parametrize("is_read", [True, False])
def test_a_damaged_entry_is_replaced(tmp_path: Path, is_read: bool) -> None:
    writer = directory_store(tmp_path)
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    (file,) = (tmp_path / "v1").rglob(KEY[2:])
    file.write_bytes(b"damaged")
    stores = directory_store(tmp_path)
    if is_read:
        assert stores.get("kernels", KEY) is None
        assert stores.statistics.rejected == 1
    stores.put("kernels", KEY, b"linked again")
    assert stores.flush(10)
    assert stores.get("kernels", KEY) == b"linked again"


def test_many_entries_are_read_side_by_side(tmp_path: Path) -> None:
    stores = directory_store(tmp_path)
    entries = {f"{number:064x}": b"%d" % number for number in range(50)}
    for key, payload in entries.items():
        stores.put("compiled", key, payload)
    assert stores.flush(10)
    assert stores.get_many("compiled", [*entries, KEY, KEY]) == entries
    assert (stores.statistics.hits, stores.statistics.misses) == (50, 1)


def test_without_patience_nothing_is_read(tmp_path: Path) -> None:
    directory_store(tmp_path).put("kernels", KEY, b"linked")
    assert directory_store(tmp_path, patience=0.0).get("kernels", KEY) is None
