"""``jitlto ls``, ``show`` and ``verify``: inspect a fragment database."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import to_builtins

from jitlto.cli.families import DATABASE, open_database, print_installed
from jitlto.cli.output import print_json
from jitlto.cli.parameters import PATH, json_option
from jitlto.errors import DatabaseError
from jitlto.model.fragment import Fragment, FragmentKey
from jitlto.model.mangling import demangle
from jitlto.model.text import pluralize
from jitlto.model.types import Parameter
from jitlto.storage import files
from jitlto.storage.database import FragmentDatabase

_database = click.argument("database", metavar=DATABASE, type=PATH)


@click.command(epilog="Example: jitlto ls search.fragdb")
@click.argument("database", metavar=f"[{DATABASE}]", type=PATH, required=False)
@click.option("--installed", is_flag=True, help="List the families of installed packages.")
@json_option
def ls(database: Path | None, installed: bool, as_json: bool) -> None:
    """List the fragments of DB, or of a family: role, size of all images, key."""
    if installed == (database is not None):
        raise click.UsageError("give a database, a family, or --installed")
    if database is None:
        print_installed(as_json=as_json)
        return
    opened, family = _open(database)
    with opened:
        fragments = opened.fragments(family)
        if as_json:
            print_json(
                {
                    "digest": opened.digest,
                    "part": str(opened.part) if opened.part else None,
                    "gaps": [str(key) for key in opened.gaps],
                    "fragments": [_as_dict(fragment) for fragment in fragments],
                }
            )
            return
        for fragment in fragments:
            size = sum(image.size for image in fragment.images)
            click.echo(f"{fragment.role:<10} {size:>8}  {fragment.key}")
        click.echo(f"{pluralize(len(fragments), 'fragment')}, digest {opened.digest}", err=True)


@click.command(
    epilog="Example: jitlto show search.fragdb 'search/apply_filter[filter_name=filter_none,idx_type=int64_t]'"
)
@_database
@click.argument("key", metavar="KEY")
@json_option
def show(database: Path, key: str, as_json: bool) -> None:
    """Show one fragment of DB: what it provides and requires, and its images."""
    with _open(database)[0] as opened:
        fragment = opened.get(FragmentKey.parse(key))
        if fragment is None:
            where, hint = str(database), f"`jitlto ls {database}` lists them"
            raise DatabaseError(f"no fragment {key}", code="database-no-such-fragment", where=where, hint=hint)
    if as_json:
        print_json(_as_dict(fragment))
        return
    click.echo(f"{fragment.key}  ({fragment.role})")
    if fragment.entry:
        click.echo(f"  kernel    {demangle(fragment.entry)}")
        click.echo(f"  signature ({', '.join(map(str, fragment.signature))})")
    for what, symbols in (("provides", fragment.provides), ("requires", fragment.requires)):
        for symbol in symbols:
            click.echo(f"  {what}  {demangle(symbol.name)}  layout {symbol.layout}{'  weak' if symbol.weak else ''}")
    for image in fragment.images:
        isa = f", ISA {image.ptx_isa}" if image.ptx_isa else ""
        click.echo(
            f"  {image.kind:<9} {image.architecture.compute}, {image.toolchain} {image.version}{isa}, "
            f"{image.size} bytes, sha256 {image.sha256}"
        )


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
@click.option("--signer", metavar="NAME", help="Require the signature of this one of the signers.")
def verify(databases: tuple[Path, ...], manifest: Path | None, signers: Path | None, signer: str | None) -> None:
    """Read and check everything in each DB, and in the packs beside it. Exit status 1 if anything is damaged.

    DB may be a pack too: NAME.pack. A file that the manifest does not list, or lists with another SHA-256, fails and is
    not opened; with a manifest, DB is a path.
    """
    if manifest is None and not databases:
        raise click.UsageError("give a DB, or --manifest")
    if (signers is not None and manifest is None) or (signer is not None and signers is None):
        raise click.UsageError("--signers needs --manifest, and --signer needs --signers")
    if manifest is not None:
        databases = _vouched_for(databases, manifest, signers, signer)
    read: set[Path] = set()
    for path in databases:
        if path.suffix == ".pack":
            _verify_pack(path, read)
            continue
        with FragmentDatabase(path) if manifest else _open(path)[0] as opened:
            images = opened.verify()
            count = len(opened.fragments())
            held = f"{pluralize(count, 'fragment')} and {pluralize(images, 'image')}"
            click.echo(f"{opened.path}: {held} hold, digest {opened.digest}")
            for pack in files.beside(opened.path, ".pack"):
                _verify_pack(pack, read)


def _verify_pack(path: Path, read: set[Path]) -> None:
    from jitlto.runtime.linking import packs

    if path.absolute() not in read:
        read.add(path.absolute())
        count = packs.verify(path)
        click.echo(f"{path}: {pluralize(count, 'kernel')} {'holds' if count == 1 else 'hold'}")


def _vouched_for(databases: tuple[Path, ...], path: Path, signers: Path | None, signer: str | None) -> tuple[Path, ...]:
    """Check files against a manifest; return the databases among them."""
    from jitlto.storage.manifest import Manifest, check_signature, signature_of

    manifest = Manifest.read(path)
    if signers is not None:
        click.echo(f"{path}: signed by {check_signature(manifest, signers, signer)}")
    elif signature_of(path).exists():
        click.echo(f"{path}: signature not checked: give --signers", err=True)
    checked = manifest.check_all(databases)
    state = "is one" if len(checked) == 1 else "are those"
    click.echo(f"{path}: {pluralize(len(checked), 'file')} {state} that it lists")
    return databases or tuple(file for file in checked if file.suffix == files.SUFFIX)


def _open(target: Path) -> tuple[FragmentDatabase, str | None]:
    opened, family = open_database(target)
    if opened.part is not None:
        click.echo(f"{opened.path}: {opened.part}", err=True)
    if opened.gaps:
        click.echo(f"{opened.path}: merged with gaps: {len(opened.gaps)} of its fragments are left out", err=True)
    return opened, family


def _as_dict(fragment: Fragment) -> dict[str, object]:
    images = [
        to_builtins(i)
        | {"architecture": str(i.architecture), "version": str(i.version), "ptx_isa": i.ptx_isa and str(i.ptx_isa)}
        for i in fragment.images
    ]
    key = {"key": str(fragment.key), "parameters": dict(fragment.key.parameters)}
    record: dict[str, object] = to_builtins(fragment, enc_hook=Parameter.as_dict)
    return record | key | {"images": images}
