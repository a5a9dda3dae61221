"""The strict rules for the combinations of a matrix, checked on its tree before the first combination is made.

Rules for a single member or value (a duplicate member, a value that is not a string) are checked in ``tree`` while the
tree is built; warnings about names come from ``document``. The rules here:

- There is at least one combination. Branches without one have been cut, so the count of the root decides.
- No combination gets a name from two members. Members of an object are chosen independently, so two of them write the
  same name in some combination exactly if both of their branches contain a leaf of that name.
- No two combinations are identical. If no object writes a name twice, each combination splits into its members' parts
  in exactly one way, so identical combinations exist exactly if two alternatives of one array have a combination in
  common. Each array is checked separately: its alternatives are partitioned by the value that they give to a name,
  until each partition holds one. Memory is bounded by the size of the document, not by the count. (Time is not bounded:
  the problem is NP-hard. In practice one name distinguishes all alternatives, so that one partition decides.)

Every leaf is a string here, because the tree was compiled strictly, so None can mean "does not write the name".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from jitlto.families.matrix.tree import LENIENT_HINT, DocumentError, Item, Node, Trail, Value, format_pointer


@dataclass(slots=True)
class _Survey:
    """The number of combinations of a branch, and the values that each name takes in them."""

    count: int
    values: dict[str, set[Value]]


_Alternative: TypeAlias = tuple[Item, _Survey]
_Candidates: TypeAlias = tuple[dict[str, Value], list[Item]]  # alternatives that may agree, given some values


def check_rules(root: Node) -> None:
    """Check the strict rules on a tree that was compiled strictly.

    Raises:
        DocumentError: If a rule is broken, with the place of the offending object or array.
    """
    if not root.count:
        node = root
        while node.items:  # descend to the empty array that causes it
            node = next(item for item in node.items if isinstance(item, Node) and not item.count)
        hint = f"add an element, use {{}} for a dimension that adds nothing, {LENIENT_HINT}"
        raise DocumentError("the product is empty because this array is", node.trail, "matrix-empty", hint)
    _survey(root, {})  # checks that names are written once, on which the search for identical combinations relies
    _survey(root, {}, _check_alternatives)


def _check_alternatives(array: Node, parts: list[_Survey | None]) -> None:
    shared = _find_shared(array, parts)
    if shared is None:
        return
    survey = _survey(array, {})
    exact = (dict.fromkeys(survey.values) if survey else {}) | shared  # and no other name is written
    labels = [label for label, item in zip(array.labels, array.items, strict=True) if _survey_alternative(item, exact)]
    combination = " ".join(f"{name}={value}" for name, value in shared.items() if value is not None) or "{}"
    what = f"identical combinations: elements {labels[0]} and {labels[1]} of this array both give {combination}"
    hint = f"remove one of them, {LENIENT_HINT}"
    raise DocumentError(what, array.trail, "matrix-identical-combinations", hint)


def _survey(
    root: Item, fixed: Mapping[str, Value], visit: Callable[[Node, list[_Survey | None]], None] | None = None
) -> _Survey | None:
    """Survey the combinations of a branch that give names their ``fixed`` values; None if there are none.

    ``visit`` gets each array and its surveyed elements, inner arrays first.
    """
    top = Node(True)
    top.items = [root]
    stack: list[tuple[Node, Iterator[Item], list[_Survey | None]]] = [(top, iter(top.items), [])]
    while True:
        node, rest, parts = stack[-1]
        for item in rest:
            if isinstance(item, Node):
                stack.append((item, iter(item.items), []))
                break
            name, value = item
            parts.append(_Survey(1, {name: {value}}) if fixed.get(name, value) == value else None)
        else:
            if visit and not node.is_object:
                visit(node, parts)
            survey = _survey_object(node, parts) if node.is_object else _survey_array(parts, fixed)
            stack.pop()
            if not stack:
                return survey
            stack[-1][2].append(survey)


def _survey_object(node: Node, parts: list[_Survey | None]) -> _Survey | None:
    count, values = 1, dict[str, set[Value]]()
    for last, part in enumerate(parts):
        if part is None:
            return None
        count *= part.count
        more = part.values
        if not values.keys().isdisjoint(more.keys()):
            name = min(values.keys() & more.keys())
            trails = (_find_leaf(node, index, name) for index in range(last + 1))
            first, second = (format_pointer(trail) for trail in trails if trail is not None)
            what = f"{name!r} is written twice in one combination, by {first} and {second}"
            raise DocumentError(what, node.trail, "matrix-written-twice", f"rename one of them, {LENIENT_HINT}")
        if len(more) > len(values):  # the smaller into the larger, or deep documents cost their depth squared
            values, more = more, values
        values.update(more)
    return _Survey(count, values)


def _survey_array(parts: list[_Survey | None], fixed: Mapping[str, Value]) -> _Survey | None:
    surveys = [part for part in parts if part is not None]
    # A name that some element writes is written nowhere else, so elements that do not write a name with a fixed value
    # have no such combination.
    names = {name for name, value in fixed.items() if value is not None and any(name in s.values for s in surveys)}
    surveys = [part for part in surveys if names <= part.values.keys()]
    if len(surveys) < 2:
        return surveys[0] if surveys else None
    values: defaultdict[str, set[Value]] = defaultdict(set)
    writers: defaultdict[str, int] = defaultdict(int)
    for part in surveys:
        for name, more in part.values.items():
            values[name] |= more
            writers[name] += 1
    for name, number in writers.items():
        if number < len(surveys):
            values[name].add(None)
    return _Survey(sum(part.count for part in surveys), dict(values))


def _find_leaf(parent: Node, index: int, name: str) -> Trail:
    """Find a leaf with the given name in an item of a node."""
    stack: list[tuple[Item, Trail]] = [(parent.items[index], (parent.trail, parent.labels[index]))]
    while stack:
        item, trail = stack.pop()
        if isinstance(item, Node):
            stack += [(below, (item.trail, label)) for below, label in zip(item.items, item.labels, strict=True)]
        elif item[0] == name:
            return trail
    return None


def _survey_alternative(item: Item, fixed: Mapping[str, Value]) -> _Survey | None:
    """Survey an alternative under fixed values; None if it does not write all of them."""
    survey = _survey(item, fixed)
    if survey and all(value is None or name in survey.values for name, value in fixed.items()):
        return survey
    return None


def _find_shared(array: Node, parts: list[_Survey | None]) -> dict[str, Value] | None:
    """Find a combination that two alternatives of an array have in common, given that its inner arrays have none."""
    alive = [(item, survey) for item, survey in zip(array.items, parts, strict=True) if survey]
    fixed: dict[str, Value] = {}
    together: list[_Candidates] = []
    while True:
        if len(alive) > 1:
            common = _find_common(alive[0][1], alive[1][1])
            if common is not None:
                return fixed | common
            together += _split(alive, fixed)
        if not together:
            return None
        fixed, items = together.pop()
        alive = [(item, survey) for item in items if (survey := _survey_alternative(item, fixed))]


def _find_common(one: _Survey, other: _Survey) -> dict[str, Value] | None:
    """Find a combination of two alternatives that each contain the full product of their names' values, else None."""
    if any(survey.count != math.prod(map(len, survey.values.values())) for survey in (one, other)):
        return None
    result: dict[str, Value] = {}
    for name in sorted(one.values.keys() | other.values.keys()):
        both = one.values.get(name, {None}) & other.values.get(name, {None})
        if not both:
            return None
        result[name] = min(both, key=str)
    return result


def _split(alive: list[_Alternative], fixed: dict[str, Value]) -> list[_Candidates]:
    """Partition alternatives by the names they always write or by one name's value; leave out single ones."""
    if not any(None in values for _, survey in alive for values in survey.values.values()):
        by_names: defaultdict[frozenset[str], list[Item]] = defaultdict(list)
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
    # The name that leaves the fewest together; a name with the same single value in all alternatives separates none.
    left = {name: sum(n for n in tally.values() if n > 1) for name, tally in tallies.items() if len(+tally) > 1}
    best = min(left, key=lambda name: left[name])
    by_value: defaultdict[Value, list[Item]] = defaultdict(list)
    for item, survey in alive:
        for value in survey.values.get(best, {None}):
            by_value[value].append(item)
    return [({**fixed, best: value}, items) for value, items in by_value.items() if len(items) > 1]
