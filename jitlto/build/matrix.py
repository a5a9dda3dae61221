"""Matrices: a JSON document whose modified Cartesian product is a list of combinations.

A document is compiled once into a tree of two kinds of node, *every* (an object: all its members
together) and *either* (an array: one of its elements), with leaves between. The strict rules are decided
on that tree, before the first combination is made:

- A count is a sum over arrays and a product over objects. Branches that count zero are cut, so that every
  node that remains takes part in some combination.
- Members of an object are chosen independently. So two members write one name in some combination exactly
  when the branches of both hold a leaf of that name.
- Where no object does that, a combination splits into its members' parts in one way only. So there are
  identical combinations exactly when two alternatives of one array share one. That is decided array by
  array: alternatives are parted by the value they give some name, until no two are left together. Memory
  is bounded by the document, never by the count. (Time is not, for the question is NP-hard in general.
  But one name that tells alternatives apart settles it at once, and matrices that people write have one.)

Nothing here recurses: how deep a document may be is the JSON parser's business alone.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from jitlto.errors import MatrixError

Value: TypeAlias = str | int | float | bool | None
_Leaf: TypeAlias = tuple[str, Value]
_Path: TypeAlias = "tuple[_Path, str | int] | None"  # linked, for a path per node would cost depth x nodes
_Queue: TypeAlias = "tuple[_Item, _Queue] | None"  # linked: every alternative shares what comes after it

_LENIENT = "or expand it leniently (`--lenient`, `lenient=True`)"


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
    _root: _Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compile the document and check it."""
        try:
            root, members = _compile(self.value, self.lenient)
            if not self.lenient:
                _check(root)
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
        return _combinations(self._root)


def product(value: object, *, lenient: bool = False) -> Iterator[dict[str, Value]]:
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


def load(path: Path, *, lenient: bool = False) -> Matrix:
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
        data = path.read_bytes()
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


class _Repeating(dict[str, object]):
    """An object that gives one name twice, kept for :func:`_compile`, which knows where it stands."""

    def __init__(self, value: dict[str, object], repeated: str) -> None:
        super().__init__(value)
        self.repeated = repeated


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                return _Repeating(result, name)
            seen.add(name)
    return result


class _Node:
    """An object (``every``) or an array, its items in the order of the traversal."""

    __slots__ = ("count", "every", "items", "labels", "path")

    def __init__(self, every: bool, labels: Sequence[str | int], path: _Path) -> None:
        self.every = every
        self.labels = labels
        self.path = path
        self.items: list[_Item] = []
        self.count = 0


@dataclass(slots=True)
class _Member:
    """A member of an object, and what its name is used for."""

    name: str
    path: _Path
    siblings: Mapping[str, object]
    writes: bool = False
    groups: bool = False


_Item: TypeAlias = _Node | _Leaf
_Child: TypeAlias = tuple[object, _Member | None, _Path]


def _compile(value: object, lenient: bool) -> tuple[_Node, list[_Member]]:
    root = _Node(False, (), None)  # an array around the document, so that the top is no special case
    members: list[_Member] = []
    nodes = [root]
    pending: list[tuple[_Node, list[_Child]]] = [(root, [(value, None, None)])]
    while pending:
        parent, children = pending.pop()
        below: list[tuple[_Node, list[_Child]]] = []
        for child, member, path in children:
            if isinstance(child, dict):
                names = _sorted_names(child, path, lenient)
                node = _Node(True, names, path)
                own = [_Member(name, (path, name), child) for name in names]
                below.append((node, [(child[m.name], m, m.path) for m in own]))
                members += own
                if member:
                    member.groups = True
            elif isinstance(child, list):
                node = _Node(False, range(len(child)), path)
                below.append((node, [(element, member, (path, i)) for i, element in enumerate(child)]))
            else:
                parent.items.append(_leaf(child, member, path, lenient))
                continue
            parent.items.append(node)
            nodes.append(node)
        pending += reversed(below)
    for node in reversed(nodes):  # children before their parents
        counts = [item.count if isinstance(item, _Node) else 1 for item in node.items]
        node.count = math.prod(counts) if node.every else sum(counts)
        if node.count and not all(counts):
            node.labels = [label for label, count in zip(node.labels, counts, strict=True) if count]
            node.items = [item for item, count in zip(node.items, counts, strict=True) if count]
    return root, members


def _sorted_names(value: dict[object, object], path: _Path, lenient: bool) -> list[str]:
    if isinstance(value, _Repeating) and not lenient:
        raise MatrixError(
            f"the name {value.repeated!r} stands twice in one object",
            where=_pointer(path),
            hint=f"join the two as one array, {_LENIENT}",
        )
    names = [name for name in value if isinstance(name, str)]
    if len(names) < len(value):
        raise MatrixError("a name in an object is not a string", where=_pointer(path))
    return sorted(names)


def _leaf(value: object, member: _Member | None, path: _Path, lenient: bool) -> _Leaf:
    if not (value is None or isinstance(value, str | int | float)):
        raise MatrixError(f"a {type(value).__name__} is not a JSON value", where=_pointer(path))
    if isinstance(value, float) and not math.isfinite(value):
        hint = "write it as a string"
        raise MatrixError(f"{value} is not a number that JSON can express", where=_pointer(path), hint=hint)
    if member is None:
        hint = 'put it under a name, as in {"name": ["value"]}'
        raise MatrixError("a value has no name to be written under", where=_pointer(path), hint=hint)
    if not (isinstance(value, str) or lenient):
        text = json.dumps(value)
        hint = f'write it as "{text}", {_LENIENT}'
        raise MatrixError(f"the value {text} is not a string", where=_pointer(path), hint=hint)
    member.writes = True
    return member.name, value


def _naming(member: _Member) -> MatrixWarning | None:
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
    return MatrixWarning(_pointer(member.path), f"`{member.name}` {what}: {advice}")


def _pointer(path: _Path) -> str:
    labels = []
    while path is not None:
        path, label = path
        labels.append("/" + str(label).replace("~", "~0").replace("/", "~1"))
    return "".join(reversed(labels))


def _combinations(root: _Node) -> Iterator[dict[str, Value]]:
    if not root.count:
        return
    written: list[_Leaf] = []
    choices: list[tuple[Iterator[_Item], _Queue, int]] = []  # what is left of an array, what follows it, and undo
    queue: _Queue = (root, None)
    while True:
        while queue is not None:
            item, queue = queue
            if not isinstance(item, _Node):
                written.append(item)
            elif item.every:
                for member in reversed(item.items):
                    queue = (member, queue)
            else:
                alternatives = iter(item.items)
                choices.append((alternatives, queue, len(written)))
                queue = (next(alternatives), queue)
        yield dict(written)
        while choices:
            alternatives, rest, undo = choices[-1]
            alternative = next(alternatives, None)
            if alternative is not None:
                del written[undo:]
                queue = (alternative, rest)
                break
            choices.pop()
        else:
            return


# The strict rules, on the tree. A leaf is a string by now, so None is free to mean "does not write the name".


@dataclass(slots=True)
class _Survey:
    """How many combinations a branch has, and the values that each name takes in them."""

    count: int
    values: dict[str, set[Value]]


_Suspects: TypeAlias = tuple[dict[str, Value], list[_Node]]  # alternatives that may agree, given some values


def _check(root: _Node) -> None:
    if not root.count:
        node = root
        while node.items:  # down to the empty array that is to blame
            node = next(item for item in node.items if isinstance(item, _Node) and not item.count)
        raise MatrixError(
            "the product is empty: this array has no element, which leaves no combination",
            where=_pointer(node.path),
            hint=f"give it an element, use {{}} for a dimension that adds nothing, {_LENIENT}",
        )
    _survey(root, {})  # finds two writers of one name
    nodes = [root]
    for node in nodes:
        nodes += [item for item in node.items if isinstance(item, _Node)]
    for node in reversed(nodes):  # inner arrays first: the test of an outer one relies on theirs
        shared = None if node.every or len(node.items) < 2 else _shared(node)
        if shared is not None:
            raise _identical(node, shared)


def _identical(array: _Node, shared: dict[str, Value]) -> MatrixError:
    survey = _survey(array, {})
    exact = (dict.fromkeys(survey.values) if survey else {}) | shared  # nothing else is written either
    labels = [label for label, item in zip(array.labels, array.items, strict=True) if _gives(item, exact)]
    what = " ".join(f"{name}={value}" for name, value in shared.items() if value is not None) or "{}"
    return MatrixError(
        f"identical combinations: elements {labels[0]} and {labels[1]} of this array give {what}",
        where=_pointer(array.path),
        hint=f"remove one of them, {_LENIENT}",
    )


def _survey(root: _Item, fixed: Mapping[str, Value]) -> _Survey | None:
    """Survey the combinations of a branch that give names their ``fixed`` values; None if there are none."""
    top = _Node(True, (), None)
    top.items = [root]
    stack: list[tuple[_Node, Iterator[_Item], list[_Leaf | _Survey | None]]] = [(top, iter(top.items), [])]
    while True:
        node, rest, found = stack[-1]
        for item in rest:
            if isinstance(item, _Node):
                stack.append((item, iter(item.items), []))
                break
            found.append(item if fixed.get(item[0], item[1]) == item[1] else None)
        else:
            survey = _join(node, found) if node.every else _unite(found, fixed)
            stack.pop()
            if not stack:
                return survey
            stack[-1][2].append(survey)


def _join(node: _Node, found: list[_Leaf | _Survey | None]) -> _Survey | None:
    count, values = 1, dict[str, set[Value]]()
    for last, part in enumerate(found):
        if part is None:
            return None
        if isinstance(part, _Survey):
            count *= part.count
            more = part.values
        else:
            more = {part[0]: {part[1]}}
        if not values.keys().isdisjoint(more.keys()):
            name = min(values.keys() & more.keys())
            paths = (_writer(node, index, name) for index in range(last + 1))
            first, *_, second = (_pointer(path) for path in paths if path is not None)
            raise MatrixError(
                f"two members write the name {name!r} in one combination: {first} and {second}",
                where=_pointer(node.path),
                hint=f"rename one of them, {_LENIENT}",
            )
        if len(more) > len(values):  # the smaller into the larger, or deep documents cost their depth squared
            values, more = more, values
        values.update(more)
    return _Survey(count, values)


def _unite(found: list[_Leaf | _Survey | None], fixed: Mapping[str, Value]) -> _Survey | None:
    parts = [part for part in found if isinstance(part, _Survey)]
    leaves: dict[str, _Survey] = {}
    for leaf in found:
        if isinstance(leaf, tuple):
            survey = leaves.setdefault(leaf[0], _Survey(0, {leaf[0]: set()}))
            survey.count += 1
            survey.values[leaf[0]].add(leaf[1])
    parts += leaves.values()
    # What an element of this array writes, nothing beside the array can write. So where a name's value is
    # fixed, elements that do not write it have no combination to offer.
    names = {name for name, value in fixed.items() if value is not None and any(name in p.values for p in parts)}
    parts = [part for part in parts if names <= part.values.keys()]
    if len(parts) < 2:
        return parts[0] if parts else None
    values: defaultdict[str, set[Value]] = defaultdict(set)
    writers: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        for name, more in part.values.items():
            values[name] |= more
            writers[name] += 1
    for name, number in writers.items():
        if number < len(parts):
            values[name].add(None)
    return _Survey(sum(part.count for part in parts), dict(values))


def _writer(parent: _Node, index: int, name: str) -> _Path:
    """Find a leaf of that name in an item of a node."""
    stack: list[tuple[_Item, _Path]] = [(parent.items[index], (parent.path, parent.labels[index]))]
    while stack:
        item, path = stack.pop()
        if isinstance(item, _Node):
            stack += [(below, (item.path, label)) for below, label in zip(item.items, item.labels, strict=True)]
        elif item[0] == name:
            return path
    return None


def _gives(item: _Item, fixed: Mapping[str, Value]) -> _Survey | None:
    """Survey an alternative under fixed values, all of which it must write itself."""
    survey = _survey(item, fixed)
    if survey and all(value is None or name in survey.values for name, value in fixed.items()):
        return survey
    return None


def _shared(array: _Node) -> dict[str, Value] | None:
    """Find a combination that two alternatives of an array have in common; its inner arrays have none."""
    bundles: dict[str, _Node] = {}  # leaves of one name are told apart by a set, and then stand as one alternative
    seen: set[_Leaf] = set()
    for item in array.items:
        if not isinstance(item, _Node):
            if item in seen:
                return dict([item])
            seen.add(item)
            bundles.setdefault(item[0], _Node(False, (), None)).items.append(item)
    branches = [item for item in array.items if isinstance(item, _Node)]
    together: list[_Suspects] = [({}, branches + list(bundles.values()))]
    while together:
        fixed, items = together.pop()
        if len(items) < 2:
            continue
        alive = [(item, survey) for item in items if (survey := _gives(item, fixed))]
        if len(alive) < 2:
            continue
        common = _common(alive[0][1], alive[1][1])
        if common is not None:
            return fixed | common
        together += _split(alive, fixed)
    return None


def _common(one: _Survey, other: _Survey) -> dict[str, Value] | None:
    """Give what two alternatives share if it shows: if each has every mixture of its names' values."""
    if any(survey.count != math.prod(map(len, survey.values.values())) for survey in (one, other)):
        return None
    result: dict[str, Value] = {}
    for name in one.values.keys() | other.values.keys():
        both = one.values.get(name, {None}) & other.values.get(name, {None})
        if not both:
            return None
        result[name] = min(both, key=str)
    return result


def _split(alive: list[tuple[_Node, _Survey]], fixed: dict[str, Value]) -> list[_Suspects]:
    """Part alternatives by the names they always write or by one name's value; keep those not left alone."""
    if not any(None in values for _, survey in alive for values in survey.values.values()):
        by_names: defaultdict[frozenset[str], list[_Node]] = defaultdict(list)
        for item, survey in alive:
            by_names[frozenset(survey.values)].append(item)
        if len(by_names) > 1:
            return [(fixed, items) for items in by_names.values() if len(items) > 1]
    tallies: defaultdict[str, Counter[Value]] = defaultdict(Counter)
    writers: Counter[str] = Counter()
    for _, survey in alive:
        writers.update(survey.values.keys())
        for name, values in survey.values.items():
            tallies[name].update(values)
    for name, number in writers.items():
        tallies[name][None] += len(alive) - number
    # The name that leaves the fewest together. One that everybody gives the same single value parts nobody.
    left = {name: sum(n for n in tally.values() if n > 1) for name, tally in tallies.items() if len(+tally) > 1}
    best = min(left, key=lambda name: left[name])
    by_value: defaultdict[Value, list[_Node]] = defaultdict(list)
    for item, survey in alive:
        for value in survey.values.get(best, {None}):
            by_value[value].append(item)
    return [({**fixed, best: value}, items) for value, items in by_value.items() if len(items) > 1]
