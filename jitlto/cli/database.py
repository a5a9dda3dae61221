"""``jitlto ls`` and ``show``: what a database holds."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

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
from jitlto.record.family_record import GroupRecord
from jitlto.record.fragment import Fragment, Symbol


@click.command(epilog="Example: jitlto ls search.fragdb")
@click.argument("database", metavar=DATABASE, type=PATH)
@json_option
def ls(database: Path, as_json: bool) -> None:
    """List the fragments of DB, or of a family: role, size of all images, key."""
    opened, family = open_database(database)
    with opened:
        fragments = list(opened.fragments(family))
        families = [record for name, record in sorted(opened.families.items()) if family in (None, name)]
        supplied = [(record.name, group) for record in families for group in record.groups if group.supplied]
        listed = [{"family": name, **to_builtins(group)} for name, group in supplied]
        about = {"digest": opened.digest, "part": opened.part and str(opened.part), "supplied": listed}
        result = about | {"fragments": list(map(_as_dict, fragments)) if as_json else []}
        rows = ((sum(image.size for image in each.images), each) for each in fragments)
        lines = (f"{fragment.role:<10} {size:>8}  {fragment.key}" for size, fragment in rows)
        left = (f"{group.role:<10} supplied  {name}/{group.name}  {group.interface}" for name, group in supplied)
        print_result(result, chain(lines, left), as_json=as_json)
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
        fragments = {fragment.key.text: fragment for fragment in opened.fragments(family)}
        fragment = fragments.get(key)
        if fragment is None and (supplied := _find_supplied(opened, key)):
            declared, symbols = supplied
            about = {**to_builtins(declared), "key": key, "provides": to_builtins(symbols)}
            lines = [f"{key}  ({declared.role}, supplied by callers)", f"  interface {declared.interface}"]
            print_result(about, [*lines, *_symbol_lines("provides", symbols)], as_json=as_json)
            return
        if fragment is None:
            of_group = {each.key.group: text for text, each in fragments.items()}
            hint = f"{suggest(of_group.get(key, key), fragments)} `jitlto ls {database}` lists the keys".lstrip()
            raise DatabaseError(f"no fragment {key}", code="database-no-such-fragment", where=str(database), hint=hint)
        group = opened.families[fragment.key.family].group(fragment.key.group)
    tune = to_builtins(group.tune) if group and group.tune else {}
    result = _as_dict(fragment) | ({"tune": tune} if tune else {})
    print_result(result, _lines(fragment, tune), as_json=as_json)


def _find_supplied(database: FragmentDatabase, key: str) -> tuple[GroupRecord, list[Symbol]] | None:
    """Return a group that callers supply, named as ``family/group``, and what fragments require of it."""
    family, _, name = key.partition("/")
    if family not in database.families:
        return None
    record, fragments = database.planned(family)
    group, owners = record.group(name), record.supplied_groups()
    if group is None or not group.supplied:
        return None
    symbols = {symbol.name: symbol for fragment in fragments for symbol in fragment.requires}
    return group, [symbol for name, symbol in sorted(symbols.items()) if group in owners(name)]


def _symbol_lines(what: str, symbols: Iterable[Symbol]) -> Iterator[str]:
    for symbol in symbols:
        yield f"  {what}  {demangle(symbol.name)}  layout {symbol.layout}{'  weak' if symbol.weak else ''}"


def _lines(fragment: Fragment, tune: Mapping[str, object]) -> Iterator[str]:
    yield f"{fragment.key}  ({fragment.role})"
    if fragment.entry:
        yield f"  kernel    {demangle(fragment.entry)}"
        yield f"  signature ({', '.join(map(str, fragment.signature))})"
    yield from _symbol_lines("provides", fragment.provides)
    yield from _symbol_lines("requires", fragment.requires)
    for image in fragment.images:
        yield f"  image     {image}, {image.size} bytes, sha256 {image.sha256}"
    for what, text in tune.items():
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
