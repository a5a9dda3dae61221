"""Push databases and their packs to a registry as an image of one layer, which nodes mount read-only.

``python kernel_image.py [--insecure] DIRECTORY REGISTRY/NAME:TAG``, after ``pip install oras``, which finds the
credentials that ``docker login`` stored. The same files give the same digest, which is printed: whoever pulls the image
by it gets these bytes or none.
"""

import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from oras.client import OrasClient

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def layer_of(directory: Path) -> bytes:
    """The files of a directory as a tar archive without times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(path.relative_to(directory).as_posix())
                entry.size, entry.mode = path.stat().st_size, 0o444
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    return buffer.getvalue()


def push(directory: Path, target: str, *, insecure: bool = False, platform: str = "amd64") -> str:
    """Push the image and return its digest; ``insecure``: to a registry without TLS, as on this machine."""
    client = OrasClient(insecure=insecure)
    container = client.get_container(target)
    archive = layer_of(directory)
    layer = gzip.compress(archive, mtime=0)
    layers = {"type": "layers", "diff_ids": [_digest(archive)]}
    config = json.dumps({"architecture": platform, "os": "linux", "config": {}, "rootfs": layers}).encode()
    described = []
    for data, kind in ((config, CONFIG), (layer, LAYER)):
        described.append({"mediaType": kind, "digest": _digest(data), "size": len(data)})
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            client.upload_blob(file.name, container, described[-1]).raise_for_status()
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
    answer = client.upload_manifest(manifest, container)
    answer.raise_for_status()
    return str(answer.headers["Docker-Content-Digest"])


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Push a directory to a registry as an image of one layer.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("target", metavar="REGISTRY/NAME:TAG")
    parser.add_argument("--insecure", action="store_true", help="the registry is without TLS")
    given = parser.parse_args()
    if not given.directory.is_dir():
        sys.exit(f"error: {given.directory}: no such directory")
    print(push(given.directory, given.target, insecure=given.insecure))


if __name__ == "__main__":
    main()
