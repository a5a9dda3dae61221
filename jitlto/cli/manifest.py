"""``jitlto manifest``: the SHA-256 of databases and their packs, signed or not."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Example: jitlto manifest search.fragdb -o SHA256SUMS --sign ~/.ssh/id_ed25519")
@click.argument("databases", metavar="DB...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The manifest.")
@click.option(
    "--sign", "key", metavar="KEY", type=click.Path(path_type=Path),
    help="Sign it with this SSH key; the signature becomes FILE.sig.",
)  # fmt: skip
def manifest(databases: tuple[Path, ...], output: Path, key: Path | None) -> None:
    """Write the SHA-256 of each DB, and of the packs beside it, to a file that `sha256sum --check` reads too.

    Every DB is verified first. `jitlto verify --manifest FILE` checks all files against it.
    """
    from jitlto import manifest as manifests
    from jitlto.database import FragmentDatabase

    for path in databases:
        with FragmentDatabase(path) as opened:
            opened.verify()
    signature = manifests.signature_of(output)
    written = manifests.write(output, manifests.with_packs(databases))
    if key is not None:
        manifests.sign(output, key)
    elif signature.exists():
        signature.unlink()  # of another manifest
    click.echo(f"{len(written.digests)} files listed in {output}" + (f", signed in {signature}" if key else ""))
