"""``jitlto ls``, ``show``, ``verify``, ``manifest``, ``merge`` and ``report``: the use of finished databases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click
from msgspec import to_builtins

from jitlto.base import files
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.mangling import demangle
from jitlto.base.text import pluralize
from jitlto.base.types import Parameter
from jitlto.cli.families import DATABASE, open_database, print_installed
from jitlto.cli.outcome import print_error
from jitlto.cli.output import print_built, print_json, print_json_list
from jitlto.cli.output_files import check_outputs, check_writable, write_output
from jitlto.cli.parameters import DATABASE_FILE, FILE, PAGE_FILE, PATH, allow_incomplete_option, json_option
from jitlto.cli.partial_key import describe_nearest, find_key
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import Fragment
from jitlto.record.tuning import TuneRecord

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
        fragments = opened.iterate(family)
        if as_json:
            gaps = [str(key) for key in opened.gaps]
            head = {"digest": opened.digest, "part": str(opened.part) if opened.part else None, "gaps": gaps}
            print_json_list(head, "fragments", map(_as_dict, fragments))
            return
        count = 0
        for fragment in fragments:
            count += 1
            size = sum(image.size for image in fragment.images)
            click.echo(f"{fragment.role:<10} {size:>8}  {fragment.key}")
        click.echo(f"{pluralize(count, 'fragment')}, digest {opened.digest}", err=True)


@click.command(
    epilog="Example: jitlto show search.fragdb 'search/apply_filter[filter_name=filter_none,idx_type=int64_t]'"
)
@_database
@click.argument("key", metavar="KEY")
@json_option
def show(database: Path, key: str, as_json: bool) -> None:
    """Show one fragment of DB: what it provides and requires, and its images.

    KEY may be the group with some of the parameters, or the beginning of a key, where that means one fragment.
    """
    opened, family = _open(database)
    with opened:
        found = find_key(key, opened.fragment_keys(family))
        fragment = opened.get(found) if found else None
        tune = _tune_of(opened, fragment) if fragment else None
        if fragment is None:
            if left_out := find_key(key, opened.gaps):
                what = f"{left_out} was left out at the merge"
                raise DatabaseError(what, code="database-no-such-fragment", where=str(database))
            where, hint = str(database), describe_nearest(key, [*opened.fragment_keys(family)], f"jitlto ls {database}")
            raise DatabaseError(f"no fragment {key}", code="database-no-such-fragment", where=where, hint=hint)
    if as_json:
        print_json(_as_dict(fragment) | ({"tune": tune.describe()} if tune else {}))
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
    for what, text in tune.describe().items() if tune else ():
        click.echo(f"  tune      {what}: {text}")


def _tune_of(database: FragmentDatabase, fragment: Fragment) -> TuneRecord | None:
    group = database.families[fragment.key.family].group(fragment.key.group)
    return group.tune if group else None


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
@click.option("--signer", metavar="NAME", help="Require the signature of this signer, one of those in FILE.")
def verify(databases: tuple[Path, ...], manifest: Path | None, signers: Path | None, signer: str | None) -> None:
    """Read and check everything in each DB, and in the packs beside it. Exit status 1 if anything is damaged, or if a
    pack beside DB holds kernels that match no plan of DB.

    Damage in one DB does not keep the others from being checked. DB may be a pack too: NAME.pack.
    A file that the manifest does not list, or lists with a different SHA-256, fails and is not opened;
    with a manifest, DB is a path.
    """
    if manifest is None and not databases:
        raise click.UsageError("give a DB, or --manifest")
    if (signers is not None and manifest is None) or (signer is not None and signers is None):
        raise click.UsageError("--signers needs --manifest, and --signer needs --signers")
    if manifest is not None:
        databases = _check_manifest(databases, manifest, signers, signer)
    pending, read, damaged = list(reversed(databases)), set[Path](), False
    held_images: dict[Path, set[str]] = {}  # of the database beside which a pack was found
    while pending:
        path = pending.pop()
        try:
            if path.suffix == ".pack":
                _verify_pack(path, read, held_images.get(path))
                continue
            with FragmentDatabase(path) if manifest else _open(path)[0] as opened:
                packs = files.beside(opened.path, ".pack")
                pending += reversed(packs)
                images = opened.verify()
                if packs:
                    hashes = {image.sha256 for fragment in opened.iterate() for image in fragment.images}
                    held_images |= dict.fromkeys(packs, hashes)
                held = (
                    f"{pluralize(sum(1 for _ in opened.fragment_keys()), 'fragment')} and {pluralize(images, 'image')}"
                )
                click.echo(f"{opened.path}: {held} intact, digest {opened.digest}")
        except JitltoError as error:
            print_error(error)
            damaged = True
    if damaged:
        raise SystemExit(1)


def _verify_pack(path: Path, read: set[Path], images: set[str] | None) -> None:
    from jitlto.link import packs

    if path.absolute() not in read:
        read.add(path.absolute())
        count = packs.verify(path, images)
        click.echo(f"{path}: {pluralize(count, 'kernel')} intact")


def _check_manifest(
    databases: tuple[Path, ...], path: Path, signers: Path | None, signer: str | None
) -> tuple[Path, ...]:
    """Check files against a manifest; return the databases among them."""
    from jitlto.stores.manifest import Manifest, check_signature, signature_of

    manifest = Manifest.read(path)
    if signers is not None:
        click.echo(f"{path}: signed by {check_signature(manifest, signers, signer)}")
    elif signature_of(path).exists():
        click.echo(f"{path}: signature not checked: give --signers", err=True)
    checked = manifest.check_all(databases)
    click.echo(f"{path}: {pluralize(len(checked), 'file')} {'matches' if len(checked) == 1 else 'match'}")
    return databases or tuple(file for file in checked if file.suffix == files.SUFFIX)


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
    from jitlto.stores import manifest as manifests

    signature = manifests.signature_of(output)
    paths = []
    for target in databases:
        with open_database(target)[0] as opened:
            opened.verify()
            paths.append(opened.path)
    check_outputs({"-o": output, "the signature": signature}, (*paths, key))
    was_signed = os.path.lexists(signature)
    if was_signed:
        check_writable(signature)
    before = manifests.bytes_of(output) if was_signed and os.path.lexists(output) else None
    written = manifests.write(output, manifests.with_packs(paths))
    if was_signed and written.text != before:
        signature.unlink()
        if key is None:
            click.echo(f"{signature}: removed, as the manifest has changed; sign it again with --sign KEY", err=True)
    if key is not None:
        manifests.sign(output, key)
    click.echo(
        f"{pluralize(len(written.digests), 'file')} listed in {output}" + (f", signed in {signature}" if key else "")
    )


@click.command(epilog="Example: jitlto merge -o search.fragdb part-1.fragdb part-2.fragdb")
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", type=DATABASE_FILE, required=True, help="The database.")
@click.option("--allow-gaps", is_flag=True, help="Leave out fragments that no PART holds.")
@click.option("--allow-mixed", is_flag=True, help="Accept parts made by different compilers.")
@allow_incomplete_option
@click.option("--prefer", type=click.Choice(["first", "last"]), help="The PART to prefer where they differ.")
@json_option
def merge(
    parts: tuple[Path, ...], output: Path, as_json: bool, prefer: Literal["first", "last"] | None, **allow: bool
) -> None:
    """Merge PARTs, which `jitlto build --shard I/N` wrote, into one fragment database.

    The result is byte for byte that of an unsharded build. Complete databases of different families are joined too.
    The database is written at the end, completely or not at all.
    """
    from jitlto.build.cache.cache import open_cache
    from jitlto.build.merge import merge_databases

    report = merge_databases(parts, output, prefer=prefer, cache=open_cache(), **allow)
    print_built(report, f"from {pluralize(len(parts), 'file')} in {report.path}", as_json=as_json)


@click.command(epilog="Example: jitlto report search.fragdb -o report.html")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.option("-o", "--output", type=PAGE_FILE, required=True, help="The page, e.g. report.html.")
def report(database: Path, output: Path) -> None:
    """Write an HTML page about DB, or a family of it: groups as grids, sizes, calls, toolchains and architectures.

    The page is one file that loads nothing.
    """
    from jitlto.report import page
    from jitlto.report.content import describe

    opened, family = open_database(database)
    with opened:
        check_outputs({"-o": output}, (opened.path,))
        check_writable(output)
        described = describe(opened, family=family)
    write_output(output, page.to_html(described).encode())
    click.echo(f"{pluralize(len(described.fragments), 'fragment')} in {output}")


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
