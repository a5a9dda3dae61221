"""``jitlto cache``: show, prune and clear what jitlto keeps in the user's cache directory."""

from __future__ import annotations

from typing import Any

import click

from jitlto.base import config
from jitlto.base.files import EDITABLE, FETCHED
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.user_caches import CACHE_OFF, UserCache, clear_databases, kept_databases, user_caches
from jitlto.cli.output import print_json
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
    caches = [(place.title, _describe(place)) for place in user_caches()]
    caches += [(title, _describe_databases(name)) for name, title in _KEPT.items()]
    mode, stores = settings.mode, settings.store.split() if settings.cache != "off" else []
    if as_json:
        print_json({"caches": [about for _, about in caches], "stores": stores, "mode": mode})
        return
    for title, about in caches:
        entries = sorted(about["entries"].items())
        kinds = (pluralize(count, _NOUNS.get(kind, kind.removesuffix("s"))) for kind, count in entries)
        bound = "" if about["bound"] is None else f" of {format_bytes(about['bound'])}"
        size = format_bytes(about["bytes"])
        click.echo(f"{title}: {about['directory']}: {', '.join(kinds) or 'empty'}, {size}{bound}")
        if about.get("note"):
            click.echo(f"  {about['note']}")
    for store in stores:
        click.echo(f"shared store: {store}; `jitlto store info` shows what it holds")
    if mode == "cached":
        click.echo("JITLTO_MODE=cached: a kernel that is in no cache, pack or shared store is an error")


def _describe(place: UserCache) -> dict[str, Any]:
    usage, problem, note = place.usage(), None, None
    if place.setting == "off":
        note = CACHE_OFF
    elif problem := place.problem():
        note = f"cannot be used: {problem}"
    elif place.setting == "readonly":
        note = "JITLTO_CACHE=readonly: nothing is added to it"
    about = {"name": place.name, "directory": str(place.directory), "bound": place.bound}
    about |= {"entries": usage.entries, "bytes": usage.size, "setting": place.setting, "note": note}
    return about | {"usable": place.setting != "off" and problem is None}


def _describe_databases(name: str) -> dict[str, Any]:
    settings = config.current()
    kept = kept_databases(name, settings)
    entries = {"databases": len(kept)} if kept else {}
    directory = str(settings.cache_dir / name)
    return {"name": name, "directory": directory, "bound": None, "entries": entries, "bytes": sum(kept.values())}


@cache.command(epilog="Example: jitlto cache prune --only cubins --size 500M")
@click.option("--size", callback=parse_size, help="Size limit of each cache, e.g. 500M [default: its own limit].")
@click.option("--only", type=click.Choice(["cubins", "build"]), help="Only this cache [default: both].")
def prune(size: int | None, only: str | None) -> None:
    """Remove the least recently used entries until the caches are within their size limits."""
    _prune(only, size)


@cache.command(epilog="Example: jitlto cache clear --only cubins")
@click.option("--only", type=click.Choice(["cubins", "build", *_KEPT]), help="Only these [default: all].")
def clear(only: str | None) -> None:
    """Remove every entry, and the databases of packages that are installed editable or that came from shared stores.

    Kernels and databases are linked, compiled or fetched again when they are needed.
    """
    _prune(only, -1)
    for name, title in _KEPT.items():
        if only in (None, name):
            before = _describe_databases(name)
            removed = pluralize(clear_databases(name, config.current()), "database")
            _print_removed(title, before["directory"], removed, before["bytes"], _describe_databases(name)["bytes"])


def _prune(only: str | None, bound: int | None) -> None:
    for place in user_caches():
        if only in (None, place.name):
            before = place.usage().size
            removed = pluralize(place.prune(bound), "entry")
            _print_removed(place.title, str(place.directory), removed, before, place.usage().size)


def _print_removed(title: str, directory: str, removed: str, before: int, left: int) -> None:
    gone = format_bytes(max(0, before - left))
    click.echo(f"{title}: {directory}: removed {removed}, {gone}; {format_bytes(left)} left")
