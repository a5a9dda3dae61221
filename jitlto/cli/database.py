"""``jitlto ls`` and ``show``: what a database holds."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from jitlto.base.errors import DatabaseError
from jitlto.base.mangling import demangle
from jitlto.base.text import format_bytes, suggest
from jitlto.base.types import Parameter
from jitlto.cli.output import columns, print_result
from jitlto.cli.parameters import PATH, json_option
from jitlto.cli.selection import DATABASE, open_database
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import Fragment, FragmentKey
from jitlto.report.content import FamilyView, describe, size

_LISTED = 10  # of several fragments


@click.command(epilog="Example: jitlto ls search.fragdb")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.option("-l", "--long", is_flag=True, help="List each fragment: role, size of all images, key.")
@json_option
def ls(database: Path, long: bool, as_json: bool) -> None:
    """Show the families of DB, or one: their groups, with the values of parameters, and how many kernels they make."""
    opened, family = open_database(database)
    with opened:
        described = describe(opened, family=family)
        fragments, supplied = opened.fragments(family), _list_supplied(opened, family)
        if as_json:
            result = {"digest": opened.digest, "part": opened.part and str(opened.part)}
            counts = {each.name: each.kernels for each in described.families}
            listed = {"fragments": list(map(_as_dict, fragments)), "supplied": list(map(_as_dict, supplied))}
            print_result({**result, "kernels": counts, **listed}, (), as_json=True)
        elif long:
            for each in (*fragments, *supplied):
                click.echo(f"{each.role:<10} {size([each]) or 'supplied':>8}  {each.key}")
        else:
            for view in described.families:
                print_tree(view)
        taken = format_bytes(opened.path.stat().st_size)
        click.echo(f"{opened.path}: {taken}, digest {opened.digest}", err=True)


def print_tree(family: FamilyView) -> None:
    """Print a family as a tree."""
    for line in family.tree(columns(), lambda name: click.style(name, bold=True)):
        click.echo(line)


@click.command(epilog="Example: jitlto show search.fragdb 'apply_filter[filter_name=filter_none,idx_type=int64_t]'")
@click.argument("database", metavar=DATABASE, type=PATH)
@click.argument("key", metavar="KEY")
@json_option
def show(database: Path, key: str, as_json: bool) -> None:
    """Show one fragment of DB: what it provides and requires, and its images.

    KEY is as `jitlto ls -l` prints it, or a part that only one fragment has: the family, and every NAME=VALUE that
    does not decide, may be left out.
    """
    opened, family = open_database(database)
    with opened:
        fragment = _find(key, (*opened.fragments(family), *_list_supplied(opened, family)), database)
        group = opened.families[fragment.key.family].group(fragment.key.group)
    about = {"interface": group.interface} if group and group.interface else {}
    about |= {"supplied": "by callers"} if not fragment.images else {}
    about |= {"tune": to_builtins(group.tune)} if group and group.tune else {}
    print_result(_as_dict(fragment) | about, _lines(fragment, about), as_json=as_json)


def _find(text: str, fragments: Sequence[Fragment], database: Path) -> Fragment:
    """Return the one fragment of which a text is the key, or a part of it.

    Raises:
        DatabaseError: If there is none, or if several are meant.
    """
    named, _, given = text.removesuffix("]").partition("[")
    pairs, found = {*filter(None, given.split(","))}, dict[str, Fragment]()
    for each in fragments:
        group, _, own = each.key.text.removesuffix("]").partition("[")
        if named in ("", each.key.group, group) and pairs.issubset(own.split(",")):
            found[each.key.text] = each
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        what = f"{len(found)} fragments match {text!r}"
        hint = "\n    ".join(["name one, for example", *map(shlex.quote, [*found][:_LISTED])])
        raise DatabaseError(what, code="database-ambiguous-key", where=str(database), hint=hint)
    nearest = suggest(text, [each.key.text for each in fragments])
    hint = f"{nearest} `jitlto ls -l {database}` lists the keys".lstrip()
    raise DatabaseError(f"no fragment {text}", code="database-no-such-fragment", where=str(database), hint=hint)


def _list_supplied(database: FragmentDatabase, family: str | None) -> list[Fragment]:
    """Return the groups that callers supply, each as a fragment without images that provides what others require."""
    required = {symbol.name: symbol for fragment in database.fragments() for symbol in fragment.requires}
    found = []
    for record in (each for name, each in sorted(database.families.items()) if family in (None, name)):
        owners = record.supplied_groups()
        for group in (each for each in record.groups if each.supplied):
            provides = tuple(required[name] for name in sorted(required) if group in owners(name))
            found.append(Fragment(FragmentKey(record.name, group.name), group.role, "", (), provides, (), ()))
    return found


def _lines(fragment: Fragment, about: Mapping[str, Any]) -> Iterator[str]:
    yield f"{fragment.key}  ({fragment.role})"
    if fragment.entry:
        yield f"  kernel    {demangle(fragment.entry)}"
        yield f"  signature ({', '.join(map(str, fragment.signature))})"
    yield from (f"  {what:<9} {about[what]}" for what in ("supplied", "interface") if what in about)
    for what, symbols in (("provides", fragment.provides), ("requires", fragment.requires)):
        for symbol in symbols:
            yield f"  {what}  {demangle(symbol.name)}  layout {symbol.layout}{'  weak' if symbol.weak else ''}"
    for image in fragment.images:
        yield f"  image     {image}, {image.size} bytes, sha256 {image.sha256}"
    for what, text in about.get("tune", {}).items():
        yield f"  tune      {what}: {json.dumps(text)}"


def _as_dict(fragment: Fragment) -> dict[str, object]:
    images = [
        to_builtins(i)
        | {"architecture": str(i.architecture), "version": str(i.version), "ptx_isa": i.ptx_isa and str(i.ptx_isa)}
        for i in fragment.images
    ]
    key = {"key": str(fragment.key), "parameters": dict(fragment.key.parameters)}
    record: dict[str, object] = to_builtins(fragment, enc_hook=Parameter.as_dict)
    return record | key | {"images": images}
