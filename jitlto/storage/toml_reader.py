"""TOML documents as authors write them: read, and complained about by file, table and key."""

from __future__ import annotations

import difflib
import os.path
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from jitlto.errors import JitltoError


class Tables:
    """Takes the tables of a TOML document apart; every complaint names the file and the table.

    Parameters
    ----------
    path : Path
        The file.
    error : type of JitltoError
        What is raised.
    """

    def __init__(self, path: Path, error: type[JitltoError]) -> None:
        self._path = path
        self._raises = error

    def document(self) -> dict[str, object]:
        """The file, parsed."""
        path = self._path
        if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - Path's raise on long names
            raise self._error("", "cannot be read: it is no regular file")  # a FIFO would be waited for
        try:
            return tomllib.loads(path.read_text("utf-8-sig"))
        except RecursionError:
            raise self._error("", "is nested too deep") from None
        except OSError as error:
            raise self._error("", f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self._error("", "cannot be read: it is no text in UTF-8") from None
        except ValueError as error:  # TOMLDecodeError, and what int() refuses: literals of thousands of digits
            raise self._error("", f"not TOML: {error}") from None

    def _known(self, where: str, table: Mapping[str, object], names: Iterable[str]) -> None:
        for name in table:
            if name not in names:
                near = difflib.get_close_matches(name, list(names), 1)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
                raise self._error(where, f"unknown key {name!r}", hint)

    def _table(
        self,
        document: Mapping[str, object],
        name: str,
        default: Mapping[str, object] | None = None,
        where: str = "",
    ) -> Mapping[str, object]:
        value = document.get(name, default)
        if not isinstance(value, Mapping):
            inner = f"{where}.{name}" if where else name
            raise self._error("", f"there is no table [{inner}]")
        return value

    def _text(self, where: str, table: Mapping[str, object], key: str, default: str | None = None) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self._error(where, f"{key} is missing" if value is None else f"{key} is not a string")
        return value

    def _texts(self, where: str, table: Mapping[str, object], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = table.get(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._error(where, f"{key} is not a list of strings")
        return tuple(value)

    def _error(self, table: str, what: str, hint: str | None = None) -> JitltoError:
        return self._raises(what, where=f"{self._path} [{table}]" if table else str(self._path), hint=hint)
