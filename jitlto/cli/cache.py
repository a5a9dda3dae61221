"""``jitlto cache``: show, prune and clear what jitlto keeps in the user's cache directory."""

from collections.abc import Iterator
from typing import Any

import click

from jitlto.base import config
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.user_caches import CACHE_OFF, UserCache, user_caches
from jitlto.cli.output import print_result
from jitlto.cli.parameters import json_option, parse_size

_NOUNS = {"compiled": "compiled source", "rendered": "rendered template"}


@click.group(epilog="Example: jitlto cache info")
def cache() -> None:
    """Inspect and prune the caches of linked kernels and of builds."""


@cache.command(epilog="Example: jitlto cache info --json")
@json_option
def info(as_json: bool) -> None:
    """Show the caches' directories, contents and size limits."""
    settings = config.current()
    caches = [_describe(place) for place in user_caches()]
    stores = settings.store.split() if settings.cache != "off" else []
    result = {"caches": caches, "stores": stores, "mode": settings.mode}
    print_result(result, _lines(result), as_json=as_json)


def _lines(result: dict[str, Any]) -> Iterator[str]:
    for about in result["caches"]:
        entries = sorted(about["entries"].items())
        kinds = (pluralize(count, _NOUNS.get(kind, kind.removesuffix("s"))) for kind, count in entries)
        size = f"{format_bytes(about['bytes'])} of {format_bytes(about['bound'])}"
        yield f"{about['title']}: {about['directory']}: {', '.join(kinds) or 'empty'}, {size}"
        if about["note"]:
            yield f"  {about['note']}"
    for store in result["stores"]:
        yield f"shared store: {store}; `jitlto store info` shows what it holds"
    if result["mode"] == "cached":
        yield "JITLTO_MODE=cached: a kernel that is in no cache, pack or shared store is an error"


def _describe(place: UserCache) -> dict[str, Any]:
    usage, problem = place.usage(), place.problem() if place.setting != "off" else CACHE_OFF
    about = {"name": place.name, "title": place.title, "directory": place.directory, "bound": place.bound}
    about |= {"entries": usage.entries, "bytes": usage.size, "setting": place.setting}
    return about | {"note": problem, "usable": problem is None}


@cache.command(epilog="Example: jitlto cache prune --size 500M")
@click.option("--size", callback=parse_size, help="Size limit of each cache, e.g. 500M [default: its own limit].")
def prune(size: int | None) -> None:
    """Remove the least recently used entries until the caches are within their size limits."""
    for place in user_caches():
        _remove(place, size)


@cache.command(epilog="Example: jitlto cache clear --only cubins")
@click.option("--only", type=click.Choice(["cubins", "build"]), help="Only these [default: all].")
def clear(only: str | None) -> None:
    """Remove every entry. Kernels are linked, and fragments compiled, when they are needed again."""
    for place in user_caches():
        if only in (None, place.name):
            _remove(place, -1)


def _remove(place: UserCache, bound: int | None) -> None:
    before, count, left = place.usage().size, place.prune(bound), place.usage().size
    gone = f"removed {pluralize(count, 'entry')}, {format_bytes(max(0, before - left))}"
    click.echo(f"{place.title}: {place.directory}: {gone}; {format_bytes(left)} left")
