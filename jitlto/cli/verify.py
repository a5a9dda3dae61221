"""``jitlto verify``: whether databases and packs are what was made."""

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from jitlto.base import files
from jitlto.base.errors import JitltoError
from jitlto.base.text import pluralize
from jitlto.cli.ending import print_error
from jitlto.cli.parameters import PATH
from jitlto.cli.selection import DATABASE, open_database
from jitlto.database import FragmentDatabase
from jitlto.link import packs
from jitlto.stores import manifest as manifests
from jitlto.stores.manifest import Manifest


@click.command(epilog="Example: jitlto verify --manifest SHA256SUMS --signers allowed_signers search.fragdb")
@click.argument("databases", metavar=f"[{DATABASE}]...", nargs=-1, type=PATH)
@click.option(
    "--manifest", type=PATH,
    help="Check each DB and its packs against this list of SHA-256 first; without DB, all files in it.",
)  # fmt: skip
@click.option(
    "--signers", metavar="FILE", type=PATH,
    help="Require a signature of the manifest by one of these keys (OpenSSH's allowed_signers).",
)  # fmt: skip
def verify(databases: tuple[Path, ...], manifest: Path | None, signers: Path | None) -> None:
    """Read and check everything in each DB, and in the packs beside it. Exit status 1 if anything is damaged, or if a
    pack beside DB holds kernels that match no plan of DB.

    Damage in one DB does not keep the others from being checked. DB may be a pack too: NAME.pack.
    With a manifest, DB is a path. Files that it does not list, or lists with a different SHA-256, are all named, and
    then none is opened.
    """
    if manifest is None and not databases:
        raise click.UsageError("give a DB, or --manifest")
    if signers is not None and manifest is None:
        raise click.UsageError("--signers needs --manifest")
    if manifest is not None:
        databases = _check_manifest(databases, manifest, signers)
    _check_all(databases, lambda path: verify_file(path, click.echo, is_path=manifest is not None))


def _check_all(paths: Iterable[Path], check: Callable[[Path], object]) -> None:
    """Check files, and print what is wrong with each; end with status 1 if anything is."""
    failed = False
    for path in paths:
        try:
            check(path)
        except JitltoError as error:
            print_error(error)
            failed = True
    if failed:
        raise click.exceptions.Exit(1)


def verify_file(path: Path, tell: Callable[[str], object], *, is_path: bool = True) -> None:
    """Verify a database and the packs beside it, or a pack; tell what is intact."""
    beside, images = [path], None
    if path.suffix != ".pack":
        with FragmentDatabase(path) if is_path else open_database(path)[0] as opened:
            beside, count = list(files.beside(opened.path, ".pack")), opened.verify()
            images = {image.sha256 for fragment in opened.fragments() for image in fragment.images}
            held = f"{pluralize(len(opened.fragments()), 'fragment')} and {pluralize(count, 'image')}"
            tell(f"{opened.path}: {held} intact, digest {opened.digest}")
    for pack in beside:
        tell(f"{pack}: {pluralize(packs.verify(pack, images), 'kernel')} intact")


def _check_manifest(databases: tuple[Path, ...], path: Path, signers: Path | None) -> tuple[Path, ...]:
    """Check files against a manifest; return the databases among them."""
    manifest = Manifest.read(path)
    if signers is not None:
        click.echo(f"{path}: signed by {manifests.check_signature(manifest, signers)}")
    elif manifests.signature_of(path).exists():
        click.echo(f"{path}: signature not checked: give --signers", err=True)
    checked = manifest.covered(databases)
    _check_all(checked, manifest.check)
    click.echo(f"{path}: {pluralize(len(checked), 'file')} {'matches' if len(checked) == 1 else 'match'}")
    return databases or tuple(file for file in checked if file.suffix == files.SUFFIX)
