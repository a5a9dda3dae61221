"""The strict rules of a matrix, decided on its tree before the first combination is made.

- Some combination is left. Branches without one are cut already, so only the count of the root can tell.
- No combination has two writers of one name. Members of an object are chosen independently. So two members
  write one name in some combination exactly when the branches of both hold a leaf of that name.
- No two combinations are identical. Where no object writes a name twice, a combination splits into its
  members' parts in one way only. So there are identical combinations exactly when two alternatives of one
  array share one. That is decided array by array: alternatives are parted by the value they give some name,
  until no two are left together. Memory is bounded by the document, never by the count. (Time is not, for the
  question is NP-hard in general. But one name that tells alternatives apart settles it at once, and matrices
  that people write have one.)

A leaf is a string here, for the tree was compiled strictly. So None is free to mean "does not write the name".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from jitlto.build.matrix.tree import OR_LENIENTLY, Item, Leaf, Node, Trail, Value, pointer
from jitlto.errors import MatrixError


@dataclass(slots=True)
class _Survey:
    """How many combinations a branch has, and the values that each name takes in them."""

    count: int
    values: dict[str, set[Value]]


_Found: TypeAlias = Leaf | _Survey | None  # a leaf, what a branch holds, or that it holds nothing
_Suspects: TypeAlias = tuple[dict[str, Value], list[Node]]  # alternatives that may agree, given some values


def check(root: Node) -> None:
    """Check the strict rules on a tree that was compiled strictly.

    Parameters
    ----------
    root : Node
        The root of the tree.

    Raises
    ------
    MatrixError
        A rule is broken. ``where`` is the JSON pointer of the object or array to blame.
    """
    if not root.count:
        node = root
        while node.items:  # down to the empty array that is to blame
            node = next(item for item in node.items if isinstance(item, Node) and not item.count)
        raise MatrixError(
            "the product is empty: this array has no element, which leaves no combination",
            where=pointer(node.path),
            hint=f"give it an element, use {{}} for a dimension that adds nothing, {OR_LENIENTLY}",
        )
    _survey(root, {})  # finds two writers of one name, which the search for identical combinations relies on
    _survey(root, {}, _refuse_identical)


def _refuse_identical(array: Node, found: list[_Found]) -> None:
    shared = _shared(array, found)
    if shared is not None:
        raise _identical(array, shared)


def _identical(array: Node, shared: dict[str, Value]) -> MatrixError:
    survey = _survey(array, {})
    exact = (dict.fromkeys(survey.values) if survey else {}) | shared  # nothing else is written either
    labels = [label for label, item in zip(array.labels, array.items, strict=True) if _gives(item, exact)]
    what = " ".join(f"{name}={value}" for name, value in shared.items() if value is not None) or "{}"
    return MatrixError(
        f"identical combinations: elements {labels[0]} and {labels[1]} of this array give {what}",
        where=pointer(array.path),
        hint=f"remove one of them, {OR_LENIENTLY}",
    )


def _survey(
    root: Item, fixed: Mapping[str, Value], visit: Callable[[Node, list[_Found]], None] | None = None
) -> _Survey | None:
    """Survey the combinations of a branch that give names their ``fixed`` values; None if there are none.

    Arrays are visited with what was found of their elements, inner ones first.
    """
    top = Node(True, (), None)
    top.items = [root]
    stack: list[tuple[Node, Iterator[Item], list[_Found]]] = [(top, iter(top.items), [])]
    while True:
        node, rest, found = stack[-1]
        for item in rest:
            if isinstance(item, Node):
                stack.append((item, iter(item.items), []))
                break
            found.append(item if fixed.get(item[0], item[1]) == item[1] else None)
        else:
            if visit and not node.every:
                visit(node, found)
            survey = _join(node, found) if node.every else _unite(found, fixed)
            stack.pop()
            if not stack:
                return survey
            stack[-1][2].append(survey)


def _join(node: Node, found: list[_Found]) -> _Survey | None:
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
            first, second = (pointer(path) for path in paths if path is not None)
            raise MatrixError(
                f"two members write the name {name!r} in one combination: {first} and {second}",
                where=pointer(node.path),
                hint=f"rename one of them, {OR_LENIENTLY}",
            )
        if len(more) > len(values):  # the smaller into the larger, or deep documents cost their depth squared
            values, more = more, values
        values.update(more)
    return _Survey(count, values)


def _unite(found: list[_Found], fixed: Mapping[str, Value]) -> _Survey | None:
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


def _writer(parent: Node, index: int, name: str) -> Trail:
    """Find a leaf of that name in an item of a node."""
    stack: list[tuple[Item, Trail]] = [(parent.items[index], (parent.path, parent.labels[index]))]
    while stack:
        item, path = stack.pop()
        if isinstance(item, Node):
            stack += [(below, (item.path, label)) for below, label in zip(item.items, item.labels, strict=True)]
        elif item[0] == name:
            return path
    return None


def _gives(item: Item, fixed: Mapping[str, Value]) -> _Survey | None:
    """Survey an alternative under fixed values, all of which it must write itself."""
    survey = _survey(item, fixed)
    if survey and all(value is None or name in survey.values for name, value in fixed.items()):
        return survey
    return None


def _shared(array: Node, found: list[_Found]) -> dict[str, Value] | None:
    """Find a combination that two alternatives of an array have in common; its inner arrays have none."""
    bundles: dict[str, Node] = {}  # leaves of one name: told apart by a set, then one alternative
    seen: set[Leaf] = set()
    alive: list[tuple[Node, _Survey]] = []
    for item, survey in zip(array.items, found, strict=True):
        if isinstance(item, Node):
            if isinstance(survey, _Survey):
                alive.append((item, survey))
        elif item in seen:
            return dict([item])
        else:
            seen.add(item)
            bundles.setdefault(item[0], Node(False, (), None)).items.append(item)
    alive += [(item, survey) for item in bundles.values() if (survey := _gives(item, {}))]
    fixed: dict[str, Value] = {}
    together: list[_Suspects] = []
    while True:
        if len(alive) > 1:
            common = _common(alive[0][1], alive[1][1])
            if common is not None:
                return fixed | common
            together += _split(alive, fixed)
        if not together:
            return None
        fixed, items = together.pop()
        alive = [(item, survey) for item in items if (survey := _gives(item, fixed))]


def _common(one: _Survey, other: _Survey) -> dict[str, Value] | None:
    """Give what two alternatives share if it shows: if each has every mixture of its names' values."""
    if any(survey.count != math.prod(map(len, survey.values.values())) for survey in (one, other)):
        return None
    result: dict[str, Value] = {}
    for name in sorted(one.values.keys() | other.values.keys()):
        both = one.values.get(name, {None}) & other.values.get(name, {None})
        if not both:
            return None
        result[name] = min(both, key=str)
    return result


def _split(alive: list[tuple[Node, _Survey]], fixed: dict[str, Value]) -> list[_Suspects]:
    """Part alternatives by the names they always write or by one name's value; keep those not left alone."""
    if not any(None in values for _, survey in alive for values in survey.values.values()):
        by_names: defaultdict[frozenset[str], list[Node]] = defaultdict(list)
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
    by_value: defaultdict[Value, list[Node]] = defaultdict(list)
    for item, survey in alive:
        for value in survey.values.get(best, {None}):
            by_value[value].append(item)
    return [({**fixed, best: value}, items) for value, items in by_value.items() if len(items) > 1]
