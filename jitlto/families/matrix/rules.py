"""The strict rules for the combinations of a matrix, checked on its tree before the first combination is handed out.

Rules for a single member or value (a duplicate member, a value that is not a string) are checked in ``tree`` while the
tree is built; warnings about names come from ``document``. The rules here:

- There is at least one combination. Branches without one have been cut, so the count of the root decides.
- No combination gets a name from two members. Members of an object are chosen independently, so two of them write the
  same name in some combination exactly if both of their branches contain a leaf of that name.
- No two combinations are identical: all are made and compared. Of more than a million no family can be made, so that
  these are not compared.
"""

from __future__ import annotations

from jitlto.families.matrix.tree import (
    LENIENT_HINT,
    DocumentError,
    Item,
    Label,
    Node,
    Trail,
    format_pointer,
    iterate_combinations,
)

#: The most combinations of a matrix from which a family is made.
MOST_COMBINATIONS = 1_000_000


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
    _check_written_once(root)
    if root.count <= MOST_COMBINATIONS:
        _check_distinct(root)


def _check_written_once(root: Node) -> None:
    nodes = [root]
    for node in nodes:  # which grows
        nodes += [item for item in node.items if isinstance(item, Node)]
    names: dict[int, set[str]] = {}  # by node: those that are written in its combinations
    for node in reversed(nodes):
        found: set[str] = set()
        for last, item in enumerate(node.items):
            more = names.pop(id(item)) if isinstance(item, Node) else {item[0]}
            if node.is_object and (both := found & more):
                name = min(both)
                trails = (_find_leaf(node, index, name) for index in range(last + 1))
                first, second = (format_pointer(trail) for trail in trails if trail is not None)
                what = f"{name!r} is written twice in one combination, by {first} and {second}"
                raise DocumentError(what, node.trail, "matrix-written-twice", f"rename one of them, {LENIENT_HINT}")
            if len(more) > len(found):  # the smaller into the larger, or deep documents cost their depth squared
                found, more = more, found
            found |= more
        names[id(node)] = found


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


def _check_distinct(root: Node) -> None:
    seen: dict[frozenset[tuple[str, object]], int] = {}
    for number, combination in enumerate(iterate_combinations(root)):
        first = seen.setdefault(frozenset(combination.items()), number)
        if first == number:
            continue
        ways = zip(_choices(root, first), _choices(root, number), strict=False)
        (array, one), (_, other) = next((a, b) for a, b in ways if a[1] != b[1])
        text = " ".join(f"{name}={value}" for name, value in combination.items()) or "{}"
        what = f"identical combinations: elements {one} and {other} of this array both give {text}"
        raise DocumentError(what, array.trail, "matrix-identical-combinations", f"remove one of them, {LENIENT_HINT}")


def _choices(root: Node, number: int) -> list[tuple[Node, Label]]:
    """Return the arrays that lead to a combination, each with the element that is chosen, in the order of traversal."""
    chosen: list[tuple[Node, Label]] = []
    queue: list[Item] = [*root.items]  # the next one last
    left = root.count  # combinations of the queue
    while queue:
        item = queue.pop()
        if not isinstance(item, Node):
            continue
        if item.is_object:
            queue += reversed(item.items)
            continue
        rest = left // item.count
        for label, alternative in zip(item.labels, item.items, strict=True):
            left = rest * (alternative.count if isinstance(alternative, Node) else 1)
            if number < left:
                chosen.append((item, label))
                queue.append(alternative)
                break
            number -= left
    return chosen
