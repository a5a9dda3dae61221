"""A matrix document: read, checked on construction, and expanded into its combinations."""

import json
from collections.abc import Iterator
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import MatrixError
from jitlto.families.matrix.tree import (
    DocumentError,
    DuplicateMembers,
    Member,
    Trail,
    Value,
    compile_tree,
    format_pointer,
    iterate_combinations,
)


class Matrix:
    """A checked matrix; all errors of a document are raised on construction.

    Args:
        value: The JSON document, as ``json.loads`` returns it.
        lenient: Plain semantics: any JSON value is a leaf, and of two members that write one name the later wins.
        path: The document's file, or what messages call it.

    Attributes:
        count: The number of combinations, computed without making them. It may have thousands of digits.
        warnings: Breaches of the naming convention, each with its place and a better name.

    Raises:
        MatrixError: If the document breaks a rule. ``where`` has file and JSON pointer, as in ``matrix.json (/a/0)``,
            or without a file only the pointer.
    """

    def __init__(self, value: object, *, lenient: bool = False, path: Path | str | None = None) -> None:
        try:
            self._root, members = compile_tree(value, lenient)
        except DocumentError as error:
            where = _locate(path, error.trail)
            raise MatrixError(error.what, code=error.code, where=where or None, hint=error.hint) from None
        self.count = self._root.count
        breaches = ((member, message) for member in members if (message := _check_name(member)))
        self.warnings = tuple(f"{_locate(path, member.trail)}: {message}" for member, message in breaches)

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield the combinations in order, each as a new dict. Memory does not grow with their number."""
        return iterate_combinations(self._root)


def load_matrix(path: Path, *, lenient: bool = False) -> Matrix:
    """Read and check a matrix file: JSON in UTF-8, with or without a byte order mark.

    Raises:
        MatrixError: If the file cannot be read, is not JSON (``where`` has line and column), or breaks a rule.
    """
    try:
        data = files.read(path)
        text = data.decode("utf-8-sig")
    except OSError as why:
        what = f"cannot read the matrix: {why.strerror}"
        raise MatrixError(what, code="matrix-unreadable", where=str(path), hint="name a JSON file") from why
    except UnicodeDecodeError as why:
        where, hint = f"{path}:{data.count(10, 0, why.start) + 1}", "save the file as UTF-8"
        raise MatrixError(f"invalid UTF-8: {why.reason}", code="matrix-not-json", where=where, hint=hint) from why
    return Matrix(_parse(text, str(path), lenient), lenient=lenient, path=path)


def parse_matrix(text: str, name: str) -> tuple[object, Matrix]:
    """Parse and check a matrix that is given as JSON text.

    Args:
        name: What messages call it.

    Returns:
        The JSON value, and the matrix.

    Raises:
        MatrixError: If it is not JSON, or breaks a rule.
    """
    value = _parse(text, name, lenient=False)
    return value, Matrix(value, path=name)


def _parse(text: str, where: str, lenient: bool) -> object:
    code, hint = "matrix-not-json", None
    try:
        if text.strip():
            value: object = json.loads(text, object_pairs_hook=None if lenient else _make_object)
            return value
        what, hint = "the matrix is empty", 'write a JSON object, such as {"n": ["1"]}'
    except json.JSONDecodeError as why:
        what, where = f"invalid JSON: {why.msg}", f"{where}:{why.lineno}:{why.colno}"
    except RecursionError:
        what, hint = "nested too deeply", "flatten arrays within arrays, and objects within objects"
        code = "matrix-too-large"
    except ValueError:  # from int(), which limits the number of digits
        what, hint = "number with too many digits", "write long numbers as strings"
        code = "matrix-too-large"
    raise MatrixError(what, code=code, where=where, hint=hint)


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                return DuplicateMembers(result, name)
            seen.add(name)
    return result


def _check_name(member: Member) -> str | None:
    """Describe a breach of the naming convention, with a better name; None if there is none."""
    if member.writes and member.name.startswith("_"):
        better = member.name.lstrip("_")
        breach = "is part of combinations, but starts with `_` like a name that only groups"
    elif member.groups and not member.writes and not member.name.startswith("_"):
        better = "_" + member.name
        breach = "only groups other names, and should start with `_`"
    else:
        return None
    while better in member.siblings:
        better += "_"
    return f"`{member.name}` {breach}: rename it to " + (f"`{better}`" if better else "a name without `_`")


def _locate(path: Path | str | None, trail: Trail) -> str:
    """Describe a place in the document: ``matrix.json (/a/0)``, or without a file only the JSON pointer."""
    pointer = format_pointer(trail)
    if path is None:
        return pointer
    return f"{path} ({pointer})" if pointer else f"{path}"
