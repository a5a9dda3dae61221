"""``jitlto render`` and ``jitlto build``: from a family's declaration to sources and to a database."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

import click

from jitlto import family
from jitlto.cli.output import print_json, progress
from jitlto.errors import RenderError

_LONGEST_NAME = 200  # file systems take 255 bytes


@click.command(epilog="Example: jitlto render search -o rendered/")
@click.argument("name", metavar="FAMILY")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON: key, path, combination.")
def render(name: str, output: Path, as_json: bool) -> None:
    """Render FAMILY's templates into DIR, one .cu file for each combination.

    FAMILY is a name (looked up under ./fragments and among the shipped families) or a path.
    """
    from jitlto.build.render import render_family

    listing = []
    for rendered in render_family(family.load(family.find(name))):
        stem = quote(",".join(f"{n}={v}" for n, v in rendered.key.parameters), safe="=, ") or rendered.group.name
        if len(stem) > _LONGEST_NAME:
            stem = hashlib.sha256(stem.encode()).hexdigest()
        path = output / rendered.group.name / f"{stem}.cu"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rendered.text, "utf-8")
        except OSError as error:
            raise RenderError(
                f"cannot be written: {error.strerror}",
                where=str(path),
                hint="give a directory that you may write with -o",
            ) from error
        listing.append({"key": str(rendered.key), "path": str(path), "combination": dict(rendered.combination)})
    if as_json:
        print_json(listing)
    else:
        click.echo(f"{len(listing)} sources in {output}")


@click.command(epilog="Example: jitlto build search -o search.fragdb")
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The database.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once [default: as cores and memory bear].")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def build(names: tuple[str, ...], output: Path, jobs: int | None, as_json: bool) -> None:
    """Compile FAMILYs into one fragment database; without any, all under ./fragments.

    Needs no GPU and no driver. The database appears when everything has held, or not at all.
    """
    from jitlto.build.pipeline import build as build_families

    paths = [family.find(name) for name in names] or sorted(Path("fragments").glob("*/family.toml"))
    if not paths:
        raise click.UsageError(
            f"name a family: there is no fragments/ here. Shipped: {', '.join(family.available()) or 'none'}"
        )
    families = [family.load(path) for path in paths]
    with progress("compiling") as (started, done):
        report = build_families(families, output, jobs=jobs, started=started, done=done)
    for advice in report.advice:
        click.secho("warning: ", fg="yellow", nl=False, err=True)
        click.echo(advice, err=True)
    if as_json:
        print_json(
            {
                "database": str(report.path),
                "digest": report.digest,
                "fragments": [str(fragment.key) for fragment in report.fragments],
                "advice": list(report.advice),
                "seconds": round(report.seconds, 3),
            }
        )
    else:
        click.echo(f"{len(report.fragments)} fragments in {report.path} ({report.seconds:.1f} s)")
        click.echo(f"digest {report.digest}")
