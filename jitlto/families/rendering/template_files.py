"""The files of templates."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path


class OutsideError(Exception):
    """A template is reached through a symbolic link that leads out of the family."""

    def __init__(self, path: Path, real: str) -> None:
        super().__init__(f"{path} is a symbolic link to {real}, outside the folders of the family")


def read_template(path: Path, folders: Sequence[str]) -> bytes:
    """Read a template that lies in one of the ``folders``, wherever symbolic links in its path lead."""
    real = os.path.realpath(path)
    inside = (os.path.join(os.path.realpath(folder), "") for folder in folders)  # noqa: PTH118 - with a slash at the end
    if not real.startswith(tuple(inside)):
        raise OutsideError(path, real)
    return path.read_bytes()
