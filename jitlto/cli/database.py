"""``jitlto ls`` and ``show``: what a database holds."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from jitlto.base.errors import DatabaseError
from jitlto.base.mangling import demangle
from jitlto.base.text import pluralize, suggest
from jitlto.base.types import Parameter
from jitlto.cli.output import print_result
from jitlto.cli.parameters import PATH, json_option
from jitlto.cli.selection import DATABASE, open_database
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import Fragment, FragmentKey


@click.command(epilog="Example: jitlto ls search.fragdb")
@click.argument("database", metavar=DATABASE, type=PATH)
@json_option
def ls(database: Path, as_json: bool) -> None:
    """List the fragments of DB, or of a family: role, size of all images, key."""
    opened, family = open_database(database)
    with opened:
        fragments, supplied = opened.fragments(family), _list_supplied(opened, family)
        about = {"digest": opened.digest, "part": opened.part and str(opened.part)}
        listed = {"fragments": fragments, "supplied": supplied}
        result = about | {what: list(map(_as_dict, several)) if as_json else [] for what, several in listed.items()}
        rows = ((sum(image.size for image in each.images) or "supplied", each) for each in (*fragments, *supplied))
        lines = (f"{fragment.role:<10} {size:>8}  {fragment.key}" for size, fragment in rows)
        print_result(result, lines, as_json=as_json)
        click.echo(f"{pluralize(len(fragments), 'fragment')}, digest {opened.digest}", err=True)


@click.command(
    epilog="Example: jitlto show search.fragdb 'search/apply_filter[filter_name=filter_none,idx_type=int64_t]'"
)
@click.argument("database", metavar=DATABASE, type=PATH)
@click.argument("key", metavar="KEY")
@json_option
def show(database: Path, key: str, as_json: bool) -> None:
    """Show one fragment of DB, by its KEY: what it provides and requires, and its images."""
    opened, family = open_database(database)
    with opened:
        several = (*opened.fragments(family), *_list_supplied(opened, family))
        fragments = {fragment.key.text: fragment for fragment in several}
        fragment = fragments.get(key)
        if fragment is None:
            of_group = {each.key.group: text for text, each in fragments.items()}
            hint = f"{suggest(of_group.get(key, key), fragments)} `jitlto ls {database}` lists the keys".lstrip()
            raise DatabaseError(f"no fragment {key}", code="database-no-such-fragment", where=str(database), hint=hint)
        group = opened.families[fragment.key.family].group(fragment.key.group)
    about = {"interface": group.interface} if group and group.interface else {}
    about |= {"supplied": "by callers"} if not fragment.images else {}
    about |= {"tune": to_builtins(group.tune)} if group and group.tune else {}
    print_result(_as_dict(fragment) | about, _lines(fragment, about), as_json=as_json)


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
