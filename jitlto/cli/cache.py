"""``jitlto cache``: what the caches hold, how to make room, and why a kernel is found or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jitlto import config
from jitlto.cli.families import DB_HELP, FAMILY, find_family
from jitlto.cli.output import print_json
from jitlto.cli.paths import PATH
from jitlto.config import Config
from jitlto.errors import JitltoError
from jitlto.model.text import pluralize
from jitlto.storage.cache_dir import CacheDir, Usage

if TYPE_CHECKING:  # what looking into a directory need not wait for
    from jitlto.runtime.linking.link_key import Recipe
    from jitlto.runtime.planning.plan import Plan

_EDITABLE = "databases of packages that are installed editable"
_OFF = "JITLTO_CACHE=off: nothing is looked up in it or added"


@dataclass(frozen=True, slots=True)
class Place:
    """One of the user's caches: its name, what it holds, where it lies, and the bytes that it may hold."""

    name: str
    holds: str
    directory: Path
    bound: int

    def open(self, *, readonly: bool = False) -> CacheDir:
        """The store in it.

        Raises
        ------
        FileNotFoundError
            If it is not there, and is only to be read.
        JitltoError
            If it cannot be used.
        """
        try:
            return CacheDir(self.directory, self.bound, readonly=readonly)
        except FileNotFoundError:
            if readonly:
                raise
            raise self._unusable("it cannot be made") from None
        except FileExistsError:
            raise self._unusable("it is no directory") from None
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def trouble(self, *, readonly: bool = False) -> str | None:
        """Why it cannot be read, or added to; None if it can."""
        nearest = next(path for path in (self.directory, *self.directory.absolute().parents) if os.path.lexists(path))
        if not os.path.isdir(nearest):  # noqa: PTH112 - Path.is_dir raises where it may not look
            return f"{nearest} is no directory"
        if not readonly and not os.access(nearest, os.W_OK | os.X_OK):
            return f"{nearest} cannot be written"
        try:
            CacheDir(self.directory, self.bound, readonly=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _unusable(self, why: str) -> JitltoError:
        return JitltoError(
            f"cannot be used as a cache: {why}",
            where=str(self.directory),
            hint="JITLTO_CACHE_DIR names another directory; it must be this user's own",
        )


def places(settings: Config | None = None) -> tuple[Place, Place]:
    """The cache of linked kernels, and the build cache, by the settings of this process or by others."""
    settings = settings or config.current()
    return (
        Place("cubins", "linked kernels and what leads to them", settings.cache_dir / "cubins", settings.cache_size),
        Place("build", "build cache", settings.cache_dir / "build", settings.build_cache_size),
    )


def _bytes(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else config.parse_size(value, "--size")
    except JitltoError as error:
        raise click.BadParameter(f"{error.what}; {error.hint}") from None


_only = click.option("--only", type=click.Choice(["cubins", "build"]), help="One of the two caches [default: both].")
_only_of_all = click.option(
    "--only", type=click.Choice(["cubins", "build", "editable"]), help="One of the three [default: all]."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.group(epilog="Example: jitlto cache info")
def cache() -> None:
    """Look into the caches of linked kernels and of builds, and make room in them."""


@cache.command(epilog="Example: jitlto cache info --json")
@_json
def info(as_json: bool) -> None:
    """Say where the caches lie, what they hold, and what they may hold."""
    states = [(place, _state(place)) for place in places()]
    mode = config.current().mode
    if as_json:
        listed = [
            {"name": place.name, "directory": str(place.directory), "bound": place.bound, **asdict(state)}
            for place, state in states
        ]
        print_json({"caches": [*listed, _editable()], "mode": mode})
        return
    for place, state in states:
        kinds = (pluralize(count, kind.removesuffix("s")) for kind, count in sorted(state.entries.items()))
        entries = ", ".join(kinds) or "empty"
        click.echo(f"{place.holds}: {place.directory}: {entries}, {size(state.bytes)} of {size(place.bound)}")
        if state.note:
            click.echo(f"  {state.note}")
    built = _editable()
    held = pluralize(built["entries"]["databases"], "database") if built["entries"] else "empty"
    click.echo(f"{_EDITABLE}: {built['directory']}: {held}, {size(built['bytes'])}")
    if mode == "cached":
        click.echo("JITLTO_MODE=cached: a kernel that is neither there nor in a pack is an error")


@cache.command(epilog="Example: jitlto cache prune --only cubins --size 500M")
@click.option(
    "--size", "bound", callback=_bytes, metavar="SIZE", help="What each may hold, e.g. 500M [default: its own bound]."
)
@_only
@_json
def prune(bound: int | None, only: str | None, as_json: bool) -> None:
    """Remove what was used longest ago, until the caches are within their bounds."""
    _remove(only, bound, as_json, all_of_it=False)


@cache.command(epilog="Example: jitlto cache clear --only cubins")
@_only_of_all
@_json
def clear(only: str | None, as_json: bool) -> None:
    """Remove every entry, and the databases of packages that are installed editable.

    What is needed again is linked or compiled again.
    """
    _remove(only, None, as_json, all_of_it=True)


@cache.command(
    epilog="Example: jitlto cache why search data_type=float out_type=float idx_type=uint32_t veclen=4 "
    "distance_name=euclidean filter_name=filter_none --db search.fragdb --arch sm_90"
)
@click.argument("name", metavar=FAMILY)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option("--arch", help="Target, e.g. sm_90 [default: the current device's].")
@click.option("--entry", help="The entrypoint's group, where the family has several.")
@click.option("--link-mode", type=click.Choice(["lto", "ptx"]), default="lto", show_default=True)
@_json
def why(
    name: str,
    settings: tuple[str, ...],
    database: Path | None,
    arch: str | None,
    entry: str | None,
    link_mode: str,
    as_json: bool,
) -> None:
    """Say where the linked kernel of a configuration is found, or in what the nearest one differs.

    Looks where a program would: in the packs beside the database, then in the cache of linked kernels. A miss is an
    answer too: exit status 0.
    """
    configuration: dict[str, str] = {}
    for parameter, value in pairs(settings):
        if parameter in configuration:
            raise click.UsageError(f"{parameter} is given twice")
        configuration[parameter] = value
    plan = find_family(name, database).planner(entry, **configuration).plan(arch=arch, link_mode=link_mode)
    place = places()[0]
    looked, trouble = _sources(plan, place)
    # A damaged entry is as good as none.
    hit = next((source for source in looked if plan.digest in source.files and source.holds(plan.digest)), None)
    nearest = None if hit else _nearest(plan, looked)
    if as_json:
        print_json(
            {
                "hit": hit is not None,
                "layer": hit.layer if hit else None,
                "file": str(hit.files[plan.digest]) if hit else None,
                "kernel": plan.recipe.kernel,
                "configuration": plan.configuration,
                "arch": plan.target.sm,
                "digest": plan.digest,
                "looked": [str(source.path) for source in looked],
                "trouble": trouble,
                "nearest": nearest.as_dict() if nearest else None,
            }
        )
        return
    if hit:
        click.echo(f"hit: {plan.recipe.kernel} for {plan.target.sm} is in {hit.words}: {hit.files[plan.digest]}")
    else:
        click.echo(f"miss: {plan.recipe.kernel} for {plan.target.sm}")
        for source in looked:
            click.echo(f"  not in {source.words}: {source.path} ({pluralize(len(source.files), 'kernel')})")
        if not any(source.layer == "pack" for source in looked):
            click.echo(f"  no pack lies beside {plan.database.path}")
    if trouble:
        click.echo(f"  {trouble}")
    click.echo(f"digest {plan.digest}")
    if nearest:
        click.echo(f"the nearest is {nearest.kernel} in {nearest.source.words}, {nearest.digest}; it differs in")
        for difference in nearest.differences:
            click.echo(f"  {difference.text}")


def pairs(settings: Iterable[str]) -> list[tuple[str, str]]:
    """Settings as names and values.

    Raises
    ------
    click.UsageError
        If one is not ``NAME=VALUE``.
    """
    found = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"{setting!r} is not NAME=VALUE")
        found.append((name, value))
    return found


def size(count: int) -> str:
    """A number of bytes, for reading: ``812 bytes``, ``4.1 MiB``."""
    scaled, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{scaled:.1f} {unit}"


@dataclass(frozen=True, slots=True)
class _State:
    """How one of the caches is: entries by kind, bytes, whether programs use it, and what is to be said of that."""

    entries: dict[str, int]
    bytes: int
    setting: str
    usable: bool
    note: str | None


def _state(place: Place) -> _State:
    try:
        usage = place.open(readonly=True).usage()
    except (FileNotFoundError, JitltoError):
        usage = Usage({}, 0)
    setting = config.current().cache if place.name == "cubins" else "on"
    if setting == "off":
        return _State(usage.entries, usage.size, setting, False, _OFF)
    trouble = place.trouble(readonly=setting == "readonly")
    note = "JITLTO_CACHE=readonly: nothing is added to it" if setting == "readonly" else None
    if trouble:
        note = f"cannot be used: {trouble}"
    return _State(usage.entries, usage.size, setting, trouble is None, note)


def _editable() -> dict[str, Any]:
    """What is kept of packages that are installed editable, in the words of the other caches; nothing bounds it."""
    from jitlto.runtime.discovery import editable

    kept = editable.kept()
    return {
        "name": editable.DIRECTORY,
        "directory": str(config.current().cache_dir / editable.DIRECTORY),
        "bound": None,
        "entries": {"databases": len(kept)} if kept else {},
        "bytes": sum(kept.values()),
    }


def _remove(only: str | None, bound: int | None, as_json: bool, *, all_of_it: bool) -> None:
    removed = []
    for place in places():
        if only not in (None, place.name):
            continue
        entries = freed = left = 0
        if os.path.lexists(place.directory):
            store = place.open()
            before = store.usage().size
            entries = store.clear() if all_of_it else store.prune(bound)
            left = store.usage().size
            freed = max(0, before - left)
        removed.append(
            {
                "name": place.name,
                "directory": str(place.directory),
                "removed": entries,
                "bytes": freed,
                "bytes_left": left,
            }
        )
        if not as_json:
            gone = pluralize(entries, "entry")
            click.echo(f"{place.holds}: {place.directory}: removed {gone}, {size(freed)}; {size(left)} are left")
    if all_of_it and only in (None, "editable"):
        from jitlto.runtime.discovery import editable

        built, entries = _editable(), editable.clear()
        left = _editable()["bytes"]
        freed = built["bytes"] - left
        about = {"name": built["name"], "directory": built["directory"]}
        removed.append({**about, "removed": entries, "bytes": freed, "bytes_left": left})
        if not as_json:
            gone = pluralize(entries, "database")
            click.echo(f"{_EDITABLE}: {about['directory']}: removed {gone}, {size(freed)}; {size(left)} are left")
    if as_json:
        print_json({"caches": removed})


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a linked kernel may be: a pack, or the user's cache."""

    layer: str
    words: str
    path: Path
    files: Mapping[str, Path]  # by digest
    get: Callable[[str], bytes | None]  # an entry, by digest

    def holds(self, digest: str) -> bool:
        """Whether a program would take the entry."""
        from jitlto.runtime.linking.kernel_cache import unpack

        payload = self.get(digest)
        return payload is not None and unpack(digest, payload, 0.0, self.layer) is not None

    def recipes(self) -> Iterator[Recipe]:
        from jitlto.runtime.linking.kernel_cache import unpack
        from jitlto.runtime.linking.link_key import Recipe

        for digest in sorted(self.files):
            payload = self.get(digest)
            if payload and unpack(digest, payload, 0.0, self.layer):
                yield Recipe.of_entry(payload)


@dataclass(frozen=True, slots=True)
class _Difference:
    """One thing in which two linked kernels differ; ``about`` names the fragment, where it is about one."""

    field: str
    there: object
    here: object
    about: str | None = None

    @property
    def text(self) -> str:
        if self.about:
            return f"{self.field}: another image of {self.about}"
        return f"{self.field}: {_plain(self.there)} there, {_plain(self.here)} here"


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The entry that differs least."""

    source: _Source
    digest: str
    kernel: str
    differences: tuple[_Difference, ...]

    def as_dict(self) -> dict[str, object]:
        return {
            "digest": self.digest,
            "layer": self.source.layer,
            "file": str(self.source.files[self.digest]),
            "kernel": self.kernel,
            "differences": [
                {"field": d.field, "there": d.there, "here": d.here, "fragment": d.about} for d in self.differences
            ],
        }


def _sources(plan: Plan, place: Place) -> tuple[list[_Source], str | None]:
    """Where a program would look, in that order; and why the user's cache is not among them, if so."""
    from jitlto.runtime.linking import kernel_cache, packs

    database = plan.database.location
    found = [
        _Source("pack", f"a pack of {database.name}", pack.path, dict.fromkeys(pack.digests, pack.path), pack.get)
        for pack in packs.beside(database)
    ]
    setting = config.current().cache
    if setting == "off":
        return found, f"the user's cache is not looked at: {_OFF}"
    if trouble := place.trouble(readonly=setting == "readonly"):
        return found, f"the user's cache cannot be used: {place.directory}: {trouble}"
    try:
        store = place.open(readonly=True)
    except FileNotFoundError:
        return found, f"{place.directory}: nothing is cached yet"
    kept = (store.directory / kernel_cache.ENTRIES).glob("??/*")
    files = {path.parent.name + path.name: path for path in kept if not path.name.startswith(".")}
    get = partial(store.get, kernel_cache.ENTRIES)
    return [*found, _Source("disk", "the user's cache", store.directory, files, get)], None


def _nearest(plan: Plan, sources: Iterable[_Source]) -> _Nearest | None:
    """The entry of the same kernel and configuration, or else of the same group, that differs in least."""
    mine = plan.recipe
    best: tuple[tuple[bool, bool, int, str], _Nearest] | None = None
    for source in sources:
        for recipe in source.recipes():
            if recipe.kernel.partition("[")[0] != mine.kernel.partition("[")[0]:
                continue
            differences = tuple(_differences(plan, recipe))
            other = recipe.kernel != mine.kernel, recipe.configuration != mine.configuration
            rank = (*other, len(differences), recipe.digest)
            if best is None or rank < best[0]:
                best = rank, _Nearest(source, recipe.digest, recipe.kernel, differences)
    return best[1] if best else None


def _differences(plan: Plan, there: Recipe) -> Iterator[_Difference]:
    chosen, other = dict(plan.recipe.configuration), dict(there.configuration)
    for name in sorted(chosen.keys() | other.keys()):
        if chosen.get(name) != other.get(name):
            yield _Difference(name, other.get(name), chosen.get(name))
    mine, theirs = plan.recipe.inputs, there.inputs
    for field in sorted(mine.keys() | theirs.keys()):
        ours, its = mine.get(field), theirs.get(field)
        # Another configuration has other fragments, and mostly another entry: that says nothing more.
        if ours == its or (chosen != other and field in ("images", "entry")):
            continue
        if field == "images" and isinstance(its, list):
            for fragment, image in zip(plan.fragments, plan.images, strict=True):
                if image.sha256 not in its:
                    yield _Difference(field, None, image.sha256, str(fragment.key))
            if len(its) != len(plan.images):
                yield _Difference(field, len(its), len(plan.images))
        else:
            yield _Difference(field, its, ours)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
