"""Matrices: JSON documents whose modified Cartesian product is a list of combinations.

A document is compiled into nodes: of an object all items are combined, of an array one is chosen. Branches that are in
no combination are cut. As the JSON parser, this recurses into what is nested, and not by the number of items.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import ClassVar, TypeAlias

from jitlto.base import files
from jitlto.base.diagnostic import Diagnostic, Location, Severity
from jitlto.base.errors import MatrixError
from jitlto.base.places import find_places, join

#: The most combinations of a matrix from which a family is made.
MOST_COMBINATIONS = 1_000_000

Value: TypeAlias = str | int | float | bool | None


class _DuplicateMembers(dict[str, object]):
    """An object with two members named ``duplicate``, of which :class:`Matrix` knows the place."""

    def __init__(self, value: dict[str, object], duplicate: str) -> None:
        super().__init__(value)
        self.duplicate = duplicate


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A value and the name that it is written under."""

    pair: tuple[str, Value]
    pointer: str  # its place in the document, a JSON pointer (RFC 6901)
    count: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class _Node:
    """An object or an array."""

    is_object: bool
    pointer: str
    items: "Sequence[_Node | _Leaf]"  # an object's in the order of their names
    count: int  # of its combinations

    @classmethod
    def of(cls, is_object: bool, pointer: str, items: "Sequence[_Node | _Leaf]") -> "_Node":
        """Return a node without branches that give no combination, unless it gives none itself: errors need them."""
        count = (math.prod if is_object else sum)(item.count for item in items)
        return cls(is_object, pointer, [item for item in items if item.count] if count else items, count)


class Matrix:
    """A checked matrix; all errors of a document are raised on construction.

    Args:
        value: The JSON document, as ``json.loads`` returns it.
        lenient: Plain semantics: any JSON value is a leaf, and of two members that write one name the later wins.
        place: Returns the place of a part, given its JSON pointer; None if all that is known is that.

    Attributes:
        count: The number of combinations, computed without making them. It may have thousands of digits.
        names: The parameters, in the order of the product; none if lenient.
        warnings: Breaches of the naming convention, each with its place and a better name.

    Raises:
        MatrixError: If the document breaks a rule. ``where`` has place and JSON pointer, as in
            ``matrix.json:2:8 (/a/0)``, or without a file only the pointer.
    """

    def __init__(self, value: object, *, lenient: bool = False, place: Callable[[str], Location] | None = None) -> None:
        self._lenient, self._place = lenient, place
        self.warnings: tuple[Diagnostic, ...] = ()
        # In an array, so that the top is no special case.
        self._root = _Node.of(False, "", [self._compile(value, None, "")])
        self.count = self._root.count
        self.names: tuple[str, ...] = ()
        if not lenient:
            self._check_not_empty()
            self.names = tuple(self._check_written_once(self._root))
            if self.count <= MOST_COMBINATIONS:  # of more no family can be made
                self._check_distinct()

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield the combinations in order, each as a new dict. Memory does not grow with their number."""
        return (dict([leaf.pair for leaf in leaves]) for leaves in _ways(self._root))

    def find(self, name: str, value: str | None = None) -> Location | str | None:
        """Return the place of the first value that is written under a name, or of a given one; None without one."""
        leaves = (leaf for leaf in _leaves(self._root) if leaf.pair[0] == name and value in (None, leaf.pair[1]))
        return next((self._locate(leaf.pointer) for leaf in leaves), None)

    def _compile(self, value: object, name: str | None, pointer: str) -> _Node | _Leaf:
        """Compile a part below its nearest name, and note breaches of the naming convention."""
        if isinstance(value, list):
            return _Node.of(False, pointer, [self._compile(e, name, f"{pointer}/{n}") for n, e in enumerate(value)])
        if not isinstance(value, dict):
            return _Leaf(self._check_leaf(value, name, pointer), pointer)
        if isinstance(value, _DuplicateMembers) and not self._lenient:
            what, hint = f"duplicate member {value.duplicate!r}", "merge the two into one array"
            raise self._error(what, join(pointer, value.duplicate), "duplicate-member", hint)
        if not all(isinstance(each, str) for each in value):
            raise self._error("the name of a member is not a string", pointer, "not-json")
        places = {each: join(pointer, each) for each in sorted(value)}
        breaches = ((place, _check_name(each, value)) for each, place in places.items())
        self.warnings += tuple(
            Diagnostic.at(self._locate(place), breach, "matrix-name", Severity.WARNING)
            for place, breach in breaches
            if breach
        )
        return _Node.of(True, pointer, [self._compile(value[each], each, place) for each, place in places.items()])

    def _check_leaf(self, value: object, name: str | None, pointer: str) -> tuple[str, Value]:
        if not (value is None or isinstance(value, str | int | float)):
            raise self._error(f"not a JSON value: {type(value).__name__}", pointer, "not-json")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(f"not a JSON number: {value}", pointer, "not-json", "write it as a string")
        if name is None:
            hint = 'make it the value of a member: {"name": ["value"]}'
            raise self._error("value without a name", pointer, "unnamed-value", hint)
        if not (isinstance(value, str) or self._lenient):
            text = json.dumps(value)
            raise self._error(f"value {text} is not a string", pointer, "not-a-string", f'write "{text}"')
        try:
            str(value).encode()
        except UnicodeEncodeError:
            hint = "write a complete surrogate pair, or the character itself"
            raise self._error(f"value {value!a} has an unpaired surrogate", pointer, "not-json", hint) from None
        return name, value

    # --- the strict rules ---

    def _check_not_empty(self) -> None:
        node: _Node | _Leaf = self._root
        while not node.count and isinstance(node, _Node) and node.items:  # descend to the empty array that causes it
            node = next(item for item in node.items if not item.count)
        if not node.count:
            hint = "add an element, or use {} for a dimension that adds nothing"
            raise self._error("the product is empty because this array is", node.pointer, "empty", hint)

    def _check_written_once(self, node: _Node | _Leaf) -> dict[str, str]:
        """Check that no combination gets a name from two members; return the names with the place of a leaf of each.

        Members of an object are chosen independently, so two of them write the same name in some combination exactly if
        both of their branches contain a leaf of that name.
        """
        if isinstance(node, _Leaf):
            return {node.pair[0]: node.pointer}
        found: dict[str, str] = {}
        for more in map(self._check_written_once, node.items):
            if node.is_object and (both := found.keys() & more.keys()):
                name = min(both)
                what = f"{name!r} is written twice in one combination, by {found[name]} and {more[name]}"
                raise self._error(what, node.pointer, "written-twice", "rename one of them")
            found |= more
        return found

    def _check_distinct(self) -> None:
        seen: dict[frozenset[tuple[str, Value]], list[_Leaf]] = {}
        for leaves in _ways(self._root):
            first = seen.setdefault(frozenset([leaf.pair for leaf in leaves]), leaves)
            if first is not leaves:
                text = " ".join(f"{name}={value}" for name, value in (leaf.pair for leaf in leaves)) or "{}"
                both = ((one.pointer, other.pointer) for one in first for other in leaves if one.pair == other.pair)
                one, other = next(((one, other) for one, other in both if one != other), ("", ""))
                what = f"two combinations are {text}{f', by {one} and {other}' if other else ''}"
                raise self._error(what, other, "identical-combinations", "remove one of them")

    # --- messages ---

    def _error(self, what: str, pointer: str, code: str, hint: str | None = None) -> MatrixError:
        return MatrixError(what, code=f"matrix-{code}", where=self._locate(pointer) or None, hint=hint)

    def _locate(self, pointer: str) -> Location | str:
        """Return a place in the document, or without a file only the JSON pointer."""
        if self._place is None:
            return pointer
        place = self._place(pointer)
        return replace(place, about=f"{place.about} ({pointer})".lstrip()) if pointer else place


def _leaves(node: _Node | _Leaf) -> Iterator[_Leaf]:
    return iter([node]) if isinstance(node, _Leaf) else chain.from_iterable(map(_leaves, node.items))


def _ways(node: _Node | _Leaf) -> Iterator[list[_Leaf]]:
    """Return the leaves of each combination."""
    if isinstance(node, _Leaf):
        return iter([[node]])
    if not node.is_object:
        return chain.from_iterable(map(_ways, node.items))
    return _product(node.items) if node.count and node.items else iter([[]] * node.count)


def _product(items: Sequence[_Node | _Leaf]) -> Iterator[list[_Leaf]]:
    """Combine items, of which the first is the outermost loop; unlike in itertools' product, nothing is kept."""
    if len(items) == 1:
        return _ways(items[0])
    half = len(items) // 2  # the depth of generators does not grow with the number of items
    return (one + other for one in _product(items[:half]) for other in _product(items[half:]))


def _check_name(name: str, members: dict[str, object]) -> str | None:
    """Describe a breach of the naming convention, with a better name; None if there is none."""
    groups = _find_groups(members[name])
    if False in groups and name.startswith("_"):
        better = name.lstrip("_")
        breach = "is part of combinations, but starts with `_` like a name that only groups"
    elif groups == {True} and not name.startswith("_"):
        better = "_" + name
        breach = "only groups other names, and should start with `_`"
    else:
        return None
    while better in members:
        better += "_"
    return f"`{name}` {breach}: rename it to " + (f"`{better}`" if better else "a name without `_`")


def _find_groups(value: object) -> set[bool]:
    """Return whether a member's alternatives are objects, which its name groups, or values, which it names, or both."""
    return set().union(*map(_find_groups, value)) if isinstance(value, list) else {isinstance(value, dict)}


# --- files ---


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
        raise MatrixError(what, code="matrix-unreadable", where=Location(str(path)), hint="name a JSON file") from why
    except UnicodeDecodeError as why:
        where, hint = Location(str(path), data.count(10, 0, why.start) + 1), "save the file as UTF-8"
        raise MatrixError(f"invalid UTF-8: {why.reason}", code="matrix-not-json", where=where, hint=hint) from why
    return parse_matrix(text, str(path), lenient=lenient)


def parse_matrix(text: str, name: str, *, lenient: bool = False) -> Matrix:
    """Parse and check a matrix that is given as JSON text.

    Args:
        text: The document.
        name: What messages call it.
        lenient: As of :class:`Matrix`.

    Raises:
        MatrixError: If it is not JSON, or breaks a rule.
    """
    where, code, hint = Location(name), "matrix-not-json", None
    try:
        if text.strip():
            value: object = json.loads(text, object_pairs_hook=None if lenient else _make_object)
            places = cache(find_places)  # of messages
            return Matrix(value, lenient=lenient, place=lambda at: Location(name, *places(text).get(at, (None, None))))
        what, hint = "the matrix is empty", 'write a JSON object, such as {"n": ["1"]}'
    except json.JSONDecodeError as why:
        what, where = f"invalid JSON: {why.msg}", Location(name, why.lineno, why.colno)
    except RecursionError:
        what, hint = "nested too deeply", "flatten arrays within arrays, and objects within objects"
        code = "matrix-too-large"
    except ValueError:  # from int(), which limits the number of digits
        what, hint = "number with too many digits", "write long numbers as strings"
        code = "matrix-too-large"
    raise MatrixError(what, code=code, where=where, hint=hint)


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    names = [name for name, _ in pairs]
    return _DuplicateMembers(result, next(name for n, name in enumerate(names) if name in names[:n]))
