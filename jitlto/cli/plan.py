"""``jitlto plan``: resolve a configuration, link it, and inspect the result, with or without a GPU."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture
from jitlto.cli.output import check_output, print_result, write_output
from jitlto.cli.parameters import PATH, as_callback, json_option, parse_pairs, parse_target
from jitlto.cli.selection import DATABASE, DB_HELP, find_family
from jitlto.cuda.nvdisasm import disassemble
from jitlto.link.kernel_cache import LAYERS
from jitlto.plan.configuration import LINK_MODES, normalize_configuration
from jitlto.plan.plan import Plan


@click.command(
    epilog="Example: jitlto plan search.fragdb data_type=float out_type=float idx_type=uint32_t "
    "optimized_name=optimized veclen=4 distance_name=euclidean filter_name=filter_none --arch sm_90 --dump sass"
)
@click.argument("target", metavar=DATABASE, type=PATH)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option("--arch", callback=as_callback(parse_target), help="Target, e.g. sm_90 [default: the current device's].")
@click.option(
    "--link-mode", type=click.Choice(LINK_MODES), default="lto", show_default=True,
    help="Which images to link; all but lto leave calls between fragments.",
)  # fmt: skip
@click.option("--library", "libraries", multiple=True, help="Link this library of the toolkit too, e.g. cudadevrt.")
@click.option("--dump", type=click.Choice(["json", "ptx", "sass", "cubin"]), help="Print the plan, or link and print.")
@click.option("-o", "--output", type=PATH, help="Write the dump to this file.")
@json_option
@click.option("--resources", is_flag=True, help="Also print registers, spills and stack, as ptxas reports them.")
def plan(
    target: Path,
    settings: tuple[str, ...],
    database: Path | None,
    arch: Architecture | None,
    link_mode: str,
    libraries: tuple[str, ...],
    dump: str | None,
    output: Path | None,
    as_json: bool,
    resources: bool,
) -> None:
    """Plan the kernel of a family that the settings select, and link it; entry=GROUP names one of several entrypoints.

    Of a directory with a family.toml, what the kernel is made of is compiled first.

    Without --dump, print what the kernel is made of and whether it links, or where it has been found linked.
    """
    if dump is None and output is not None:
        raise click.UsageError("-o needs --dump")
    if resources and (dump is not None or link_mode == "sass"):  # ptxas tells them, and has made cubins at the build
        raise click.UsageError("--resources goes neither with --dump nor with --link-mode sass")
    check_output(output, (database, target))
    configuration = dict(parse_pairs(settings))
    if len(configuration) < len(settings):
        raise click.UsageError("a parameter is given twice")
    family = find_family(target, database)
    several = tuple(dict.fromkeys((*family.record.link.libraries, *libraries)))
    options = {"libraries": several} if libraries else None
    how: dict[str, Any] = {"entry": configuration.pop("entry", None), "arch": arch, "link_mode": link_mode}
    given = normalize_configuration(configuration, family.parameters, family.name)  # in which no such name is left
    resolved = family.plan(**how, link_options=options, **given)
    if as_json:
        print_result({"diagnostics": ()} | resolved.as_dict(), (), as_json=True)
        return
    if dump is None:
        _summarise(resolved)
        if resources:
            _print_resources(resolved)
        return
    data = _dump(resolved, dump)
    if output is not None:
        write_output(output, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _summarise(plan: Plan) -> None:
    linked = plan.link()
    click.echo(str(plan.as_dict()["entry"]))
    for parameter in plan.entry.signature:
        click.echo(f"  {parameter}")
    for fragment, image in zip(plan.fragments, plan.images, strict=True):
        click.echo(f"  {fragment.key}  {image}, {image.size} bytes")
    click.echo(f"digest {plan.digest}")
    how = LAYERS[linked.layer][1] + (f" in {1000 * linked.seconds:.0f} ms" if linked.layer == "link" else "")
    click.echo(f"links for {linked.target} ({plan.link_mode}): {len(linked.cubin)} bytes, {how}")
    if plan.link_mode == "lto":
        left = plan.calls_left()
        calls = f"calls between fragments that were not inlined: {', '.join(left)}"
        click.echo(calls if left else "no call between fragments is left")


def _print_resources(plan: Plan) -> None:
    options = plan.options.merge({"ptxas": tuple(dict.fromkeys((*plan.options.ptxas, "-v")))})
    log = replace(plan, options=options).link(use_cache=False).log
    found = re.findall(r"^ptxas (?:info\s*:|\s*\.) *(?!Compile time|Overriding)(.*)", log, re.M)
    for text in found or ["no resources are known: the driver compiles this kernel"]:
        click.echo("  " + re.sub(r"\b_Z\w+", lambda name: demangle(name[0]), text))


def _dump(plan: Plan, what: str) -> bytes:
    if what == "json":
        return json.dumps(plan.as_dict(), indent=2).encode() + b"\n"
    if what == "ptx":
        return plan.link_ptx().encode()
    cubin = plan.link().cubin
    return cubin if what == "cubin" else disassemble(cubin)
