"""``jitlto cache``: show and prune the caches, and explain why a kernel is or is not in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.text import format_bytes, pluralize
from jitlto.base.user_caches import CACHE_OFF, Removed, UserCache, project_caches, user_caches
from jitlto.cli.output import print_json
from jitlto.cli.parameters import json_option

_EDITABLE = "databases of packages that are installed editable"
_FETCHED = "databases fetched from shared stores"


def _bytes(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else config.parse_size(value, "--size")
    except JitltoError as error:
        raise click.BadParameter(f"{error.what}; {error.hint}") from None


_only = click.option("--only", type=click.Choice(["cubins", "build"]), help="Only this cache [default: both].")
_only_of_all = click.option(
    "--only", type=click.Choice(["cubins", "build", "editable", "fetched"]), help="Only these [default: all]."
)


@click.group(epilog="Example: jitlto cache info")
def cache() -> None:
    """Inspect and prune the caches of linked kernels and of builds."""


@cache.command(epilog="Example: jitlto cache info --json")
@json_option
def info(as_json: bool) -> None:
    """Show the caches' directories, contents and size limits."""
    caches = [(place.title, _describe(place)) for place in (*user_caches(), *project_caches())]
    caches += [(_EDITABLE, _describe_editable()), (_FETCHED, _describe_fetched())]
    settings = config.current()
    mode, stores = settings.mode, settings.store.split() if settings.cache != "off" else []
    if as_json:
        print_json({"caches": [about for _, about in caches], "stores": stores, "mode": mode})
        return
    for title, about in caches:
        nouns = {"compiled": "compiled source", "rendered": "rendered template"}
        kinds = (
            pluralize(count, nouns.get(kind, kind.removesuffix("s")))
            for kind, count in sorted(about["entries"].items())
        )
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
    usage = place.usage()
    problem, note = None, None
    if place.setting == "off":
        note = CACHE_OFF
    elif problem := place.problem():
        note = f"cannot be used: {problem}"
    elif place.setting == "readonly":
        note = "JITLTO_CACHE=readonly: nothing is added to it"
    return {
        "name": place.name,
        "directory": str(place.directory),
        "bound": place.bound,
        "entries": usage.entries,
        "bytes": usage.size,
        "setting": place.setting,
        "usable": place.setting != "off" and problem is None,
        "note": note,
    }


def _describe_editable() -> dict[str, Any]:
    from jitlto.runtime.discovery import editable

    return _describe_databases(editable.DIRECTORY, editable.built_databases(config.current()))


def _describe_fetched() -> dict[str, Any]:
    from jitlto.stores import fetched

    return _describe_databases(fetched.DIRECTORY, fetched.copies(config.current()))


def _describe_databases(name: str, kept: dict[Path, int]) -> dict[str, Any]:
    return {
        "name": name,
        "directory": str(config.current().cache_dir / name),
        "bound": None,
        "entries": {"databases": len(kept)} if kept else {},
        "bytes": sum(kept.values()),
    }


@cache.command(epilog="Example: jitlto cache prune --only cubins --size 500M")
@click.option(
    "--size",
    "bound",
    callback=_bytes,
    metavar="SIZE",
    help="Size limit of each cache, e.g. 500M [default: its own limit].",
)
@_only
@json_option
def prune(bound: int | None, only: str | None, as_json: bool) -> None:
    """Remove the least recently used entries until the caches are within their size limits."""
    _print_removed(_remove(only, bound=bound), as_json)


@cache.command(epilog="Example: jitlto cache clear --only cubins")
@_only_of_all
@json_option
def clear(only: str | None, as_json: bool) -> None:
    """Remove every entry, and the databases of packages that are installed editable or that came from shared stores.

    Kernels and databases are linked, compiled or fetched again when they are needed.
    """
    removed = _remove(only, everything=True)
    if only in (None, "editable"):
        from jitlto.runtime.discovery import editable

        removed.append((_EDITABLE, "database", _clear(_describe_editable, editable.clear)))
    if only in (None, "fetched"):
        from jitlto.stores import fetched

        removed.append((_FETCHED, "database", _clear(_describe_fetched, fetched.clear)))
    _print_removed(removed, as_json)


def _clear(describe: Callable[[], dict[str, Any]], clear: Callable[[config.Config], int]) -> dict[str, Any]:
    before = describe()
    count = clear(config.current())
    left = describe()["bytes"]
    about = {"name": before["name"], "directory": before["directory"]}
    return {**about, **asdict(Removed(count, before["bytes"] - left, left))}


def _remove(only: str | None, **how: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Remove entries; return title, noun and result of each cache."""
    chosen = [place for place in (*user_caches(), *project_caches()) if only in (None, place.name)]
    about = [{"name": place.name, "directory": str(place.directory), **asdict(place.remove(**how))} for place in chosen]
    return [(place.title, "entry", each) for place, each in zip(chosen, about, strict=True)]


def _print_removed(removed: list[tuple[str, str, dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        print_json({"caches": [about for _, _, about in removed]})
        return
    for title, noun, about in removed:
        freed, left = format_bytes(about["bytes"]), format_bytes(about["bytes_left"])
        gone = pluralize(about["removed"], noun)
        click.echo(f"{title}: {about['directory']}: removed {gone}, {freed}; {left} left")
