"""The objects of a store: each method's promise in a directory, and errors with codes."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitlto.base import config
from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores import backend
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, open_backend
from tests.support.errors import raises
from tests.support.process import environment

pytest.importorskip("obstore")


@pytest.fixture
def store(tmp_path: Path) -> Backend:
    return open_backend(StoreAddress(f"file://{tmp_path}/store", writes=True), makes=True)


def test_an_object_is_put_read_listed_and_deleted(store: Backend) -> None:
    assert store.get("a/b") is None
    assert list(store.list()) == []
    store.put("a/b", b"data")
    assert store.get("a/b") == b"data"
    (listed,) = store.list("a/")
    assert (listed.name, listed.size) == ("a/b", 4)
    assert abs(listed.modified - time.time()) < 60
    assert list(store.list("c/")) == []
    store.delete("a/b")
    store.delete("a/b")
    assert store.get("a/b") is None


def test_an_object_that_is_too_large_is_not_read(store: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MOST_BYTES", 10)
    store.put("a", b"0123456789")
    store.put("b", b"0123456789a")
    assert store.get("a") == b"0123456789"
    with raises(StoreError, "store-too-large", where="/store/b"):
        store.get("b")


def test_a_missing_directory_is_made_where_that_is_wanted(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}/none", writes=True)
    with raises(StoreError, "store-unreachable"):
        open_backend(address)
    assert not (tmp_path / "none").exists()
    open_backend(address, makes=True)
    assert (tmp_path / "none").is_dir()


def test_a_transfer_that_takes_too_long_ends_and_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "current", lambda: Config.read({"JITLTO_STORE_TIMEOUT": "0.5"}))
    head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            client.recv(10_000)
            with contextlib.suppress(OSError):  # the reader has left
                for data in [head, *"x" * 100]:
                    client.sendall(data.encode())
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        store = open_backend(StoreAddress(f"http://127.0.0.1:{server.getsockname()[1]}", writes=False))
        with raises(StoreError, "store-unreachable", hint="JITLTO_STORE_TIMEOUT"):
            store.get("a")


def test_an_unreachable_endpoint_is_named_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one without TLS that may not be used, with the setting that allows it."""
    endpoint = "http://127.0.0.1:1"
    for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "y"), ("ENDPOINT_URL", endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    address = StoreAddress("s3://bucket", writes=True)
    with raises(StoreError, "store-settings", endpoint, hint="AWS_ALLOW_HTTP=true"):
        open_backend(address, retries=0).get("a")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with raises(StoreError, "store-unreachable", endpoint, "Connection refused", hint="AWS_ENDPOINT_URL"):
        open_backend(address, retries=0).get("a")


@pytest.mark.parametrize("body", ["<Code>NoSuchBucket</Code>", "<Code>NoSuchKey</Code>"])
def test_a_missing_bucket_is_no_missing_object(body: str) -> None:
    answer = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            client.recv(10_000)
            client.sendall(answer.encode())
            client.close()

        threading.Thread(target=serve, daemon=True).start()
        store = open_backend(StoreAddress(f"http://127.0.0.1:{server.getsockname()[1]}", writes=False))
        if "Bucket" in body:
            with raises(StoreError, "store-no-such-bucket"):
                store.get("a")
        else:
            assert store.get("a") is None


def test_without_obstore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with raises(StoreError, "store-missing-package", "jitlto[remote]"):
        open_backend(StoreAddress("s3://bucket", writes=True))


@pytest.fixture
def requests() -> Iterator[tuple[str, list[str]]]:
    """A server that has nothing: its URL, and the paths that it was asked for."""
    server, paths = socket.create_server(("127.0.0.1", 0)), list[str]()

    def serve() -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = server.accept()
                paths.append(client.recv(10_000).split()[1].decode())
                client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                client.close()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", paths
    server.close()


@pytest.mark.parametrize(
    ("url", "variables", "path"),
    [
        (
            "s3://bucket/a/b",
            {"AWS_ENDPOINT_URL": "{}", "AWS_ALLOW_HTTP": "1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"},
            "/bucket/a/b/c",
        ),
        (
            "az://container/a/b",
            {
                "AZURE_ENDPOINT": "{}",
                "AZURE_ALLOW_HTTP": "true",
                "AZURE_STORAGE_ACCOUNT_NAME": "account",
                "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
            },
            "/container/a/b/c",
        ),
        ("{}/a/b", {}, "/a/b/c"),
    ],
)
def test_what_a_url_and_the_environment_name_is_asked(
    url: str,
    variables: dict[str, str],
    path: str,
    requests: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, paths = requests
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(server))
    store = open_backend(StoreAddress(url.format(server), writes=False))
    assert store.get("c") is None
    assert paths == [path]


FORKED = """
import os, sys
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import open_backend
from jitlto.stores.shared import SharedStore
from jitlto.base.config import Config
address = StoreAddress("file://" + sys.argv[1], writes=True)
ours = SharedStore(Config.read({"JITLTO_STORE": address.url}), 5.0)
ours.put("kernels", "abc", b"payload"); ours.flush(10); assert ours.get("kernels", "abc") == b"payload"
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert ours.get("kernels", "abc") is None
ours.put("kernels", "abd", b"payload")
assert ours.flush(1)
try:
    open_backend(address)
except StoreError as error:
    assert error.code == "store-forked", error
else:
    sys.exit(3)
"""


@pytest.mark.slow
def test_a_forked_process_does_without_stores(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_an_endpoint_that_is_no_url_is_an_error_and_no_panic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = StoreAddress("s3://bucket", writes=True)
    for value in ("no url", "127.0.0.1:9000", "ftp://host", "http://", "http://a|b"):
        monkeypatch.setenv(name, value)
        with raises(StoreError, "store-settings", "AWS_ENDPOINT_URL", where="s3://bucket"):
            open_backend(address)
    for value in ("http://127.0.0.1:9000", "https://s3.eu-1.example.org/path", "http://[::1]:9000/"):
        monkeypatch.setenv(name, value)
        open_backend(address)
