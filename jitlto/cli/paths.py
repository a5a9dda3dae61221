"""Paths as commands take them. Whether a file can be read is told where it is read, like all that fails: status 1."""

from __future__ import annotations

from pathlib import Path

import click

#: A file, a directory, or a name.
PATH = click.Path(readable=False, path_type=Path)
#: A file, to be read or written.
FILE = click.Path(dir_okay=False, readable=False, path_type=Path)
