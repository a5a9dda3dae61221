"""``jitlto expand``: the combinations of a matrix."""

import json
import sys
from pathlib import Path

import click

from jitlto.base.text import word
from jitlto.cli.ending import print_warning
from jitlto.cli.parameters import PATH, json_option
from jitlto.families.matrix import load_matrix


@click.command()
@click.argument("file", metavar="MATRIX", type=PATH)
@json_option
@click.option(
    "--lenient", is_flag=True,
    help="Accept values that are not strings, an empty product, identical combinations and duplicate names.",
)  # fmt: skip
def expand(file: Path, as_json: bool, lenient: bool) -> None:
    """Print the combinations of the JSON file MATRIX, in order.

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
    loaded = load_matrix(file, lenient=lenient)  # raises all errors before anything is printed
    for warning in loaded.warnings:
        print_warning(str(warning))
    out = sys.stdout  # click.echo flushes every line, which would be most of the time of a long listing
    before = "["
    for combination in loaded.combinations():
        if as_json:
            out.write(f"{before}\n{json.dumps(combination)}")
            before = ","
        else:
            words = (f"{word(name)}={word(value)}" for name, value in combination.items())
            out.write((" ".join(words) or "{}") + "\n")
    if as_json:
        out.write("\n]\n" if loaded.count else "[]\n")
    out.flush()
