"""Warnings of Python, issued at the line of the code that called jitlto."""

import sys
import warnings


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
