"""The recipe for images: what is pushed to a registry and mounted on a node serves its kernels without a link."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.commands import succeeds
from tests.support.process import output_of

oras = pytest.importorskip("oras", reason="oras is not installed; the extra test brings it")

REGISTRY = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {root}}}}}
http: {{addr: 127.0.0.1:{port}}}
log: {{accesslog: {{disabled: true}}, level: error}}
"""
PLAN = """
import sys, jitlto
family = jitlto.load("mini", sys.argv[1])
kernel = family.plan(arch="sm_90", data_type="float", op_name="twice").link()
print(len(kernel.cubin) > 1000)
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """An empty registry on this machine: Debian's docker-registry, or what ``JITLTO_TEST_REGISTRY`` names."""
    program = os.environ.get("JITLTO_TEST_REGISTRY") or shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry (a Debian package) on PATH, and JITLTO_TEST_REGISTRY names none")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "registry.yml"
    config.write_text(REGISTRY.format(root=tmp_path / "registry", port=port))
    process = subprocess.Popen([program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait()


def pull(registry: str, name: str, digest: str, target: Path) -> None:
    """Do what a node does: fetch the image by its digest, check every part and unpack its layers."""

    def fetch(kind: str, wanted: str) -> bytes:
        request = urllib.request.Request(f"http://{registry}/v2/{name}/{kind}/{wanted}")
        request.add_header("Accept", "application/vnd.oci.image.manifest.v1+json")
        with urllib.request.urlopen(request) as reply:  # noqa: S310
            data: bytes = reply.read()
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == wanted
        return data

    manifest = json.loads(fetch("manifests", digest))
    config = json.loads(fetch("blobs", manifest["config"]["digest"]))
    assert config["rootfs"]["type"] == "layers"
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=BytesIO(fetch("blobs", layer["digest"]))) as archive:
            archive.extractall(target, filter="data")


def test_wrong_arguments_are_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from docs.examples import kernel_image

    for given, status in (([], 2), ([str(tmp_path / "none"), "registry/name:tag"], f"error: {tmp_path}/none")):
        monkeypatch.setattr("sys.argv", ["kernel_image.py", *given])
        with pytest.raises(SystemExit) as ended:
            kernel_image.main()
        assert str(ended.value.code).startswith(str(status))
    assert "usage:" in capsys.readouterr().err


@pytest.mark.slow
def test_a_mounted_image_serves_its_kernels_without_a_link(mini_path: Path, registry: str, tmp_path: Path) -> None:
    from docs.examples.kernel_image import push

    kernels = tmp_path / "kernels"
    kernels.mkdir()
    shutil.copy(mini_path, kernels / "mini.fragdb")
    succeeds("warm", "mini", "--arch", "sm_90", "--db", kernels / "mini.fragdb", "-o", kernels / "mini.pack")
    digest = push(kernels, f"{registry}/team/kernels:1", insecure=True)
    os.utime(kernels / "mini.pack", (0, 0))
    assert push(kernels, f"{registry}/team/kernels:again", insecure=True) == digest

    mounted = tmp_path / "mounted"
    pull(registry, "team/kernels", digest, mounted)
    assert {path.name: path.read_bytes() for path in mounted.iterdir()} == {
        path.name: path.read_bytes() for path in kernels.iterdir()
    }
    fresh = str(tmp_path / "node")
    mounted.chmod(0o555)
    assert output_of(PLAN, mounted / "mini.fragdb", JITLTO_CACHE_DIR=fresh, JITLTO_MODE="cached") == "True\n"
