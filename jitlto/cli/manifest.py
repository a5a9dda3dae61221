"""``jitlto manifest``: the SHA-256 of databases and their packs, signed or not."""

from __future__ import annotations

from pathlib import Path

import click

from jitlto.cli.families import DATABASE, open_database
from jitlto.cli.outputs import check_outputs
from jitlto.cli.parameters import FILE, PATH
from jitlto.model.text import pluralize


@click.command(epilog="Example: jitlto manifest search.fragdb -o SHA256SUMS --sign ~/.ssh/id_ed25519")
@click.argument("databases", metavar=f"{DATABASE}...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", type=FILE, required=True, help="The manifest.")
@click.option(
    "--sign", "key", metavar="KEY", type=PATH,
    help="Sign it with this SSH key; the signature becomes FILE.sig.",
)  # fmt: skip
def manifest(databases: tuple[Path, ...], output: Path, key: Path | None) -> None:
    """Write the SHA-256 of each DB, and of the packs beside it, to a file for `sha256sum --check`.

    Every DB is verified first. `jitlto verify --manifest FILE` checks all files against it. An existing
    signature FILE.sig is removed if FILE changes.
    """
    from jitlto.storage import manifest as manifests

    signature = manifests.signature_of(output)
    paths = []
    for target in databases:
        with open_database(target)[0] as opened:
            opened.verify()
            paths.append(opened.path)
    check_outputs({"-o": output, "the signature": signature}, (*paths, key))
    before = manifests.bytes_of(output) if signature.exists() and output.exists() else None
    written = manifests.write(output, manifests.with_packs(paths))
    if key is not None:
        manifests.sign(output, key)
    elif signature.exists() and written.text != before:
        signature.unlink()
        click.echo(f"{signature}: removed, as the manifest has changed; sign it again with --sign KEY", err=True)
    click.echo(
        f"{pluralize(len(written.digests), 'file')} listed in {output}" + (f", signed in {signature}" if key else "")
    )
