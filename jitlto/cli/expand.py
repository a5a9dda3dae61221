"""``jitlto expand``: the combinations of a matrix."""

import json
import os
import sys
from pathlib import Path

import click

from jitlto.base.text import word
from jitlto.cli.ending import print_diagnostics
from jitlto.cli.parameters import PATH, json_option
from jitlto.families import declaration
from jitlto.families.matrix import load_matrix


@click.command()
@click.argument("target", metavar="MATRIX|DIR|FAMILY", type=PATH)
@json_option
@click.option(
    "--lenient", is_flag=True,
    help="Accept values that are not strings, an empty product, identical combinations and duplicate names.",
)  # fmt: skip
def expand(target: Path, as_json: bool, lenient: bool) -> None:
    """Print the combinations of the JSON file MATRIX, or of each group of a family, in order.

    Members of an object multiply, elements of an array are alternatives, and a value is written under its
    nearest name. Warnings about names go to stderr.

    \b
    Example:
      $ cat matrix.json
      {"_type": [{"data_type": "float", "abbrev": "f"}, {"data_type": "__half", "abbrev": "h"}],
       "veclen": ["1", "4"]}
      $ jitlto expand matrix.json
      abbrev=f data_type=float veclen=1
      abbrev=f data_type=float veclen=4
      abbrev=h data_type=__half veclen=1
      abbrev=h data_type=__half veclen=4
    """
    is_name = str(target).isidentifier() and not os.path.lexists(target)
    if is_name or os.path.isdir(target) or target.name == "family.toml":  # noqa: PTH112
        if lenient:
            raise click.UsageError("--lenient goes with MATRIX")
        family = declaration.load_family(declaration.find_family(target))
        matrices = {group.name: declaration.read_matrix(group) for group in family.groups if not group.supplied}
    else:
        matrices = {"": load_matrix(target, lenient=lenient)}  # raises all errors before anything is printed
    out = sys.stdout  # click.echo flushes every line, which would be most of the time of a long listing
    for name, loaded in matrices.items():
        print_diagnostics(loaded.warnings)
        before = "["
        if as_json and name:
            out.write(f"{',' if name != next(iter(matrices)) else '{'}{json.dumps(name)}: ")
        for combination in loaded.combinations():
            if as_json:
                out.write(f"{before}\n{json.dumps(combination)}")
                before = ","
            else:
                words = (f"{word(each)}={word(value)}" for each, value in combination.items())
                out.write(f"{name}{': ' if name else ''}{' '.join(words) or '{}'}\n")
        if as_json:
            out.write("\n]\n" if loaded.count else "[]\n")
    if as_json and "" not in matrices:
        out.write("}\n")
    out.flush()
