"""What is said beside results: messages to the log, and warnings of Python at the line of the code that called jitlto.

Importing logging takes 2 ms, and most processes have nothing to say.
"""

import sys
import warnings


def log(logger: str, level: str, message: str, *values: object) -> None:
    """Log a message by a method of a logger: ``debug``, ``info``, ``warning``, ``exception``."""
    import logging

    getattr(logging.getLogger(logger), level)(message, *values)


_warned: dict[object, object] = {}


def warn_once(logger: str, subject: object, message: str, *values: object) -> None:
    """Log a warning, unless one about the same subject was logged before, even by another thread."""
    mine = object()
    if _warned.setdefault((logger, subject), mine) is mine:  # atomic, and without a lock that a fork could lose
        log(logger, "warning", message, *values)


class LinkWarning(UserWarning):
    """What nvJitLink or ptxas warns of about a kernel.

    Args:
        kernel: The kernel, and what it was linked for.
        text: What the tool says, after its name.
    """

    def __init__(self, kernel: str, text: str) -> None:
        super().__init__(kernel, text)
        self.kernel, self.text = kernel, text

    def __str__(self) -> str:
        return f"{self.kernel}: {self.text}"


def warn(warning: Warning) -> None:
    """Issue a warning at the line of the code that called jitlto."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(__name__.partition(".")[0] + "."):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
