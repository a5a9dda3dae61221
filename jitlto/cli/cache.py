"""``jitlto cache``: show, prune and clear what jitlto keeps in the user's cache directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from jitlto.base import config
from jitlto.base.files import EDITABLE, FETCHED
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.user_caches import CACHE_OFF, UserCache, clear_databases, kept_databases, user_caches
from jitlto.cli.output import print_result
from jitlto.cli.parameters import json_option, parse_size

# Databases that are kept whole.
_KEPT = {EDITABLE: "databases of packages that are installed editable", FETCHED: "databases fetched from shared stores"}
_NOUNS = {"compiled": "compiled source", "rendered": "rendered template"}


@click.group(epilog="Example: jitlto cache info")
def cache() -> None:
    """Inspect and prune the caches of linked kernels and of builds."""


@cache.command(epilog="Example: jitlto cache info --json")
@json_option
def info(as_json: bool) -> None:
    """Show the caches' directories, contents and size limits."""
    settings = config.current()
    caches = [*map(_describe, user_caches()), *map(_describe_databases, _KEPT)]
    stores = settings.store.split() if settings.cache != "off" else []
    result = {"caches": caches, "stores": stores, "mode": settings.mode}
    print_result(result, _lines(caches, stores, settings.mode), as_json=as_json)


def _lines(caches: Sequence[Mapping[str, Any]], stores: Sequence[str], mode: str) -> Iterator[str]:
    for about in caches:
        entries = sorted(about["entries"].items())
        kinds = (pluralize(count, _NOUNS.get(kind, kind.removesuffix("s"))) for kind, count in entries)
        bound = "" if about["bound"] is None else f" of {format_bytes(about['bound'])}"
        size = format_bytes(about["bytes"])
        yield f"{about['title']}: {about['directory']}: {', '.join(kinds) or 'empty'}, {size}{bound}"
        if about["note"]:
            yield f"  {about['note']}"
    for store in stores:
        yield f"shared store: {store}; `jitlto store info` shows what it holds"
    if mode == "cached":
        yield "JITLTO_MODE=cached: a kernel that is in no cache, pack or shared store is an error"


def _describe(place: UserCache) -> dict[str, Any]:
    usage, problem = place.usage(), place.problem() if place.setting != "off" else CACHE_OFF
    note = "JITLTO_CACHE=readonly: nothing is added to it" if place.setting == "readonly" else None
    about = {"name": place.name, "title": place.title, "directory": place.directory, "bound": place.bound}
    about |= {"entries": usage.entries, "bytes": usage.size, "setting": place.setting}
    return about | {"note": problem or note, "usable": problem is None}


def _describe_databases(name: str) -> dict[str, Any]:
    settings = config.current()
    kept = kept_databases(name, settings)
    about = {"name": name, "title": _KEPT[name], "directory": settings.cache_dir / name, "bound": None}
    entries = {"databases": len(kept)} if kept else {}
    return about | {"entries": entries, "bytes": sum(kept.values()), "note": None}


@cache.command(epilog="Example: jitlto cache prune --size 500M")
@click.option("--size", callback=parse_size, help="Size limit of each cache, e.g. 500M [default: its own limit].")
def prune(size: int | None) -> None:
    """Remove the least recently used entries until the caches are within their size limits."""
    for place in user_caches():
        _remove(partial(_describe, place), partial(place.prune, size), "entry")


@cache.command(epilog="Example: jitlto cache clear --only cubins")
@click.option("--only", type=click.Choice(["cubins", "build", *_KEPT]), help="Only these [default: all].")
def clear(only: str | None) -> None:
    """Remove every entry, and the databases of packages that are installed editable or that came from shared stores.

    Kernels and databases are linked, compiled or fetched again when they are needed.
    """
    for place in user_caches():
        if only in (None, place.name):
            _remove(partial(_describe, place), partial(place.prune, -1), "entry")
    for name in _KEPT:
        if only in (None, name):
            _remove(partial(_describe_databases, name), partial(clear_databases, name, config.current()), "database")


def _remove(describe: Callable[[], dict[str, Any]], remove: Callable[[], int], noun: str) -> None:
    before, count, left = describe(), remove(), describe()["bytes"]
    gone = f"removed {pluralize(count, noun)}, {format_bytes(max(0, before['bytes'] - left))}"
    click.echo(f"{before['title']}: {before['directory']}: {gone}; {format_bytes(left)} left")
