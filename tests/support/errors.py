"""What tests assert of an error: its class, its code, where it is and the names in its message."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jitlto.base.errors import JitltoError


@contextmanager
def raises(
    error: type[JitltoError],
    code: str | None = None,
    *names: str,
    where: str | None = None,
    hint: str | None = None,
) -> Iterator[pytest.ExceptionInfo[JitltoError]]:
    """Expect an error of exactly this class and code.

    Parameters
    ----------
    error : type
        The class, not one above it.
    code : str, optional
        By default the class's own.
    *names : str
        What the message names: parameters, values, files, symbols. Each occurs in the text, hint and location included.
    where : str, optional
        The end of :attr:`JitltoError.where`; without a line, whatever its line is.
    hint : str, optional
        A name or a command that the hint has.
    """
    with pytest.raises(error) as caught:
        yield caught
    raised = caught.value
    assert type(raised) is error, f"{type(raised).__name__}: {raised}"
    assert raised.code == (code or error.code), str(raised)
    missing = [name for name in names if name not in str(raised)]
    assert not missing, f"{missing} not in: {raised}"
    if where is not None:
        assert raised.where is not None
        ends = raised.where, re.sub(r"(:\d+)+(?=$| )", "", raised.where)
        assert any(end.endswith(where) for end in ends), raised.where
    if hint is not None:
        assert raised.hint is not None
        assert hint in raised.hint, raised.hint
