"""``jitlto ls`` and ``show``: what a database holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from msgspec import to_builtins

from jitlto.base.errors import DatabaseError
from jitlto.base.mangling import demangle
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.types import Parameter
from jitlto.cli.output import print_json
from jitlto.cli.parameters import PATH, json_option
from jitlto.cli.selection import DATABASE, describe_nearest, find_key, open_database
from jitlto.record.fragment import Fragment
from jitlto.runtime import session


@click.command(epilog="Example: jitlto ls search.fragdb")
@click.argument("database", metavar=f"[{DATABASE}]", type=PATH, required=False)
@click.option("--installed", is_flag=True, help="List the families of installed packages.")
@json_option
def ls(database: Path | None, installed: bool, as_json: bool) -> None:
    """List the fragments of DB, or of a family: role, size of all images, key."""
    if installed == (database is not None):
        raise click.UsageError("give a database, a family, or --installed")
    if database is None:
        _print_installed(as_json)
        return
    opened, family = open_database(database, noted=True)
    with opened:
        if as_json:
            part, gaps = str(opened.part) if opened.part else None, [str(key) for key in opened.gaps]
            listed = [_as_dict(fragment) for fragment in opened.iterate(family)]
            print_json({"digest": opened.digest, "part": part, "gaps": gaps, "fragments": listed})
            return
        count = 0
        for fragment in opened.iterate(family):
            count += 1
            size = sum(image.size for image in fragment.images)
            click.echo(f"{fragment.role:<10} {size:>8}  {fragment.key}")
        click.echo(f"{pluralize(count, 'fragment')}, digest {opened.digest}", err=True)


def _print_installed(as_json: bool) -> None:
    from jitlto.runtime.discovery.installed import installed_families  # imported late: takes as long as all else

    listed = installed_families(session.default.registry)
    if as_json:
        print_json({"families": [asdict(each) for each in listed]})
        return
    if not listed:
        click.echo("no installed package has a family", err=True)
    for each in listed:
        columns = [each.family, f"{each.distribution} {each.version}"]
        if each.architectures:
            columns += ["for " + ", ".join(f"compute_{a}" for a in each.architectures), *each.compilers]
        if each.size is not None:
            columns.append(format_bytes(each.size))
        click.echo("  ".join(columns))
        about = (each.editable and f"installed editable from {each.editable}", each.database and str(each.database))
        for line in (*about, each.digest and f"digest {each.digest}", each.trouble):
            if line:
                click.echo(f"  {line}")


@click.command(
    epilog="Example: jitlto show search.fragdb 'search/apply_filter[filter_name=filter_none,idx_type=int64_t]'"
)
@click.argument("database", metavar=DATABASE, type=PATH)
@click.argument("key", metavar="KEY")
@json_option
def show(database: Path, key: str, as_json: bool) -> None:
    """Show one fragment of DB: what it provides and requires, and its images.

    KEY may be the group with some of the parameters, or the beginning of a key, where that means one fragment.
    """
    opened, family = open_database(database, noted=True)
    with opened:
        found = find_key(key, (fragment.key for fragment in opened.iterate(family)))
        fragment = opened.get(found) if found else None
        if fragment is None:
            what, hint = f"no fragment {key}", None
            if left_out := find_key(key, opened.gaps):
                what = f"{left_out} was left out at the merge"
            else:
                hint = describe_nearest(
                    key, [fragment.key for fragment in opened.iterate(family)], f"jitlto ls {database}"
                )
            raise DatabaseError(what, code="database-no-such-fragment", where=str(database), hint=hint)
        group = opened.families[fragment.key.family].group(fragment.key.group)
    tune = to_builtins(group.tune) if group and group.tune else {}
    if as_json:
        print_json(_as_dict(fragment) | ({"tune": tune} if tune else {}))
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
        made = f"{image.architecture.compute}, {image.toolchain} {image.version}{isa}"
        click.echo(f"  {image.kind:<9} {made}, {image.size} bytes, sha256 {image.sha256}")
    for what, text in tune.items():
        click.echo(f"  tune      {what}: {json.dumps(text)}")


def _as_dict(fragment: Fragment) -> dict[str, object]:
    images = [
        to_builtins(i)
        | {"architecture": str(i.architecture), "version": str(i.version), "ptx_isa": i.ptx_isa and str(i.ptx_isa)}
        for i in fragment.images
    ]
    key = {"key": str(fragment.key), "parameters": dict(fragment.key.parameters)}
    record: dict[str, object] = to_builtins(fragment, enc_hook=Parameter.as_dict)
    return record | key | {"images": images}
