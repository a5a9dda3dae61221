"""Whose a directory is: whether others than its owner could have put another in its place."""

from __future__ import annotations

import os
import stat

_ROOT = 0
_LINKS = 40  # as many as Linux follows (path_resolution(7))


def require_own(path: str) -> None:
    """Check that no user but this one and root decides what a directory's path leads to.

    On the way to it, a directory that everybody may write to has the sticky bit, as ``/tmp`` has, and what stands in
    such a one, links too, belongs to this user or root. Owners of the other directories above are trusted so far:
    what they put in the place of entries is not used, for it does not belong to this user.

    Parameters
    ----------
    path : str
        Absolute. What is not there yet is no matter.

    Raises
    ------
    PermissionError
        If that does not hold.
    OSError
        If the links on the way are too many.
    """
    if not hasattr(os, "getuid"):
        return
    own = (_ROOT, os.getuid())
    place, open_to_all, links = "/", False, 0
    left = [part for part in path.split("/") if part][::-1]
    while left:
        part = left.pop()
        if part == "..":  # of a link's target
            place, open_to_all = os.path.dirname(place), False  # noqa: PTH120
            continue
        below = os.path.join(place, part)  # noqa: PTH118
        try:
            status = os.lstat(below)
        except FileNotFoundError:
            return
        if open_to_all and status.st_uid not in own:
            raise PermissionError(f"{below} belongs to user {status.st_uid}, and {place} can be written by all")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(f"{path} is a circle of links")
            target = os.readlink(below)  # noqa: PTH115
            if target.startswith("/"):
                place, open_to_all = "/", False
            left += [part for part in target.split("/") if part not in ("", ".")][::-1]
            continue
        place, open_to_all = below, bool(status.st_mode & stat.S_IWOTH)
        if open_to_all and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(
                f"{place} can be written by others, who could put another in the place of what is in it"
            )


def make(path: str) -> None:
    """Make a directory and those above it that are missing, for this user alone."""
    if os.path.isdir(path):  # noqa: PTH112
        return
    above = os.path.dirname(path)  # noqa: PTH120
    if above != path:
        make(above)
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112 - not a directory that another process has just made
            raise
