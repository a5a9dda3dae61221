"""Azurite, Microsoft's emulator of Azure's blobs, if it is installed: ``npm install -g azurite``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

_ACCOUNT = "devstoreaccount1"  # of every emulator, and its key
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_CONTAINER = "container"


@contextmanager
def azurite(directory: Path) -> Iterator[dict[str, str]]:
    """Run the emulator with a container; yield the variables that make it the store of a process."""
    command = shutil.which("azurite-blob")
    if command is None:
        pytest.skip("azurite is not installed: npm install -g azurite")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    arguments = [command, *options, "--blobPort", str(port), "--location", str(directory)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        try:
            _create_container(port)
            yield {
                "JITLTO_STORE": f"az://{_CONTAINER}/store",
                "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
                "AZURE_STORAGE_USE_EMULATOR": "true",
                "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
                "AZURE_ALLOW_HTTP": "true",
            }
        finally:
            process.terminate()


def _create_container(port: int) -> None:
    """Create the container, as soon as the emulator listens, with a request that is signed with the shared key."""
    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
    place = f"/{_ACCOUNT}/{_ACCOUNT}/{_CONTAINER}\nrestype:container"
    signed = hmac.digest(base64.b64decode(_KEY), f"PUT{12 * chr(10)}{headers}{place}".encode(), hashlib.sha256)
    for _ in range(300):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            sent = {
                "x-ms-date": date,
                "x-ms-version": _VERSION,
                "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}",
                "Content-Length": "0",
            }
            connection.request("PUT", f"/{_ACCOUNT}/{_CONTAINER}?restype=container", headers=sent)
            assert connection.getresponse().status == 201
        except OSError:
            time.sleep(0.1)
        else:
            return
        finally:
            connection.close()
    pytest.fail("azurite does not listen")
