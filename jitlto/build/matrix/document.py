"""Matrices: a JSON document whose modified Cartesian product is a list of combinations.

This is the public face: a matrix is read, checked when it is made, and gives its combinations. The document
is compiled once into a tree (:mod:`~jitlto.build.matrix.tree`), and the strict rules are decided on that tree
before the first combination is made (:mod:`~jitlto.build.matrix.rules`). Nothing in the three recurses: how
deep a document may be is the JSON parser's business alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jitlto.build.matrix.rules import check
from jitlto.build.matrix.tree import (
    Member,
    Node,
    Repeating,
    Value,
    combinations,
    compile_document,
    pointer,
)
from jitlto.errors import MatrixError
from jitlto.storage import files

__all__ = ["Matrix", "MatrixWarning", "Value", "expand", "load_matrix"]


@dataclass(frozen=True, slots=True)
class MatrixWarning:
    """A breach of the naming convention; it does not change the product.

    Attributes
    ----------
    path : str
        JSON pointer of the member concerned.
    message : str
        What is amiss, and the better name.
    """

    path: str
    message: str


@dataclass(frozen=True, eq=False)
class Matrix:
    """A checked matrix. It raises what is wrong with a document when it is made, and nothing later.

    Parameters
    ----------
    value : object
        The JSON document, as ``json.loads`` gives it. It is read once, here.
    source : str, optional
        Where the document comes from, for messages.
    lenient : bool
        Plain semantics: any JSON value is a leaf, and of two members that write one name the later wins.

    Attributes
    ----------
    count : int
        How many combinations there are, computed without making them.
    warnings : tuple of MatrixWarning
        Breaches of the naming convention.

    Raises
    ------
    MatrixError
        The document breaks a rule. ``where`` is the source and the JSON pointer within it.
    """

    value: object = field(repr=False)
    source: str | None = None
    lenient: bool = False
    count: int = field(init=False, repr=False)  # may have thousands of digits, more than repr() takes
    warnings: tuple[MatrixWarning, ...] = field(init=False, repr=False)
    _root: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compile the document and check it."""
        try:
            root, members = compile_document(self.value, self.lenient)
            if not self.lenient:
                check(root)
        except MatrixError as error:
            where = f"{self.source or ''}#{error.where}" if error.where else self.source
            raise MatrixError(error.what, where=where, hint=error.hint) from None
        object.__setattr__(self, "count", root.count)
        object.__setattr__(self, "warnings", tuple(filter(None, map(_naming, members))))
        object.__setattr__(self, "_root", root)

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield the combinations in order: the first sorted name is the outermost loop.

        Yields
        ------
        dict of str to Value
            A new dict each time. Memory in use does not depend on how many there are.
        """
        return combinations(self._root)


def expand(value: object, *, lenient: bool = False) -> Iterator[dict[str, Value]]:
    """Return the combinations of a JSON document, as a generator.

    Parameters
    ----------
    value : object
        The document, as ``json.loads`` gives it.
    lenient : bool
        Plain semantics, see :class:`Matrix`.

    Raises
    ------
    MatrixError
        At the call, not at the first ``next``: the document breaks a rule.
    """
    return Matrix(value, lenient=lenient).combinations()


def load_matrix(path: Path, *, lenient: bool = False) -> Matrix:
    """Read and check a matrix file: JSON in UTF-8, with or without a byte order mark.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    lenient : bool
        Plain semantics, see :class:`Matrix`. A duplicate name in an object then means its last value.

    Raises
    ------
    MatrixError
        The file cannot be read, is not JSON (``where`` gives line and column), or breaks a rule.
    """
    try:
        data = files.read(path)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise MatrixError(f"the matrix cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MatrixError(
            f"the matrix is not UTF-8 ({error.reason})", where=f"{path}:{line}", hint="save it as UTF-8"
        ) from error
    if not text.strip():
        raise MatrixError("the matrix is empty", where=str(path), hint='write a JSON object, such as {"n": ["1"]}')
    try:
        value: object = json.loads(text, object_pairs_hook=None if lenient else _object)
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise MatrixError(f"the matrix is not JSON: {error.msg}", where=where) from error
    except RecursionError as error:
        hint = "an array in an array can be one array, an object in an object one object"
        raise MatrixError("the matrix is nested too deeply for the JSON parser", where=str(path), hint=hint) from error
    except ValueError as error:  # only int() raises it here: it refuses literals of thousands of digits
        hint = "write long numbers as strings"
        raise MatrixError("a number in the matrix has too many digits", where=str(path), hint=hint) from error
    return Matrix(value, str(path), lenient)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                return Repeating(result, name)
            seen.add(name)
    return result


def _naming(member: Member) -> MatrixWarning | None:
    if member.writes and member.name.startswith("_"):
        better = member.name.lstrip("_")
        what = "appears in combinations but starts with `_`, as names that only group do"
    elif member.groups and not member.writes and not member.name.startswith("_"):
        better = "_" + member.name
        what = "only groups other names"
    else:
        return None
    while better in member.siblings:
        better += "_"
    advice = f"call it `{better}`" if better else "call it something that does not"
    return MatrixWarning(pointer(member.path), f"`{member.name}` {what}: {advice}")
