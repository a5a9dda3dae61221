"""Modules that take seconds to import, such as PyTorch: what collects tests often runs none that need them."""

from typing import Any

import pytest

#: What pytest asks everything that a file of tests holds.
_ASKED = {"_mock_name", "__wrapped__", "__bases__", "__test__"}


class Lazy:
    """A module that is imported when a test first asks it for something, which is skipped if it is not installed."""

    __slots__ = ("_name",)  # so that its attributes are those of the module, for monkeypatch too

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED:
            raise AttributeError(name)
        return getattr(pytest.importorskip(self._name), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(pytest.importorskip(self._name), name, value)
