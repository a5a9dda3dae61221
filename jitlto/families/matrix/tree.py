"""A matrix as a tree: the document compiled, counted, checked by the strict rules, and walked for its combinations.

A node is an object (all of its members are combined) or an array (one of its elements is chosen). Its count is the
product or sum of its items' counts. Branches that count zero are cut, so that every remaining node takes part in some
combination. Nothing recurses, so only the JSON parser limits the depth of a document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

#: The most combinations of a matrix from which a family is made.
MOST_COMBINATIONS = 1_000_000

Value: TypeAlias = str | int | float | bool | None
Leaf: TypeAlias = tuple[str, Value]
Label: TypeAlias = str | int  # the name of a member, or the index of an element
Trail: TypeAlias = "tuple[Trail, Label] | None"  # a path as a linked list: one list per node would cost depth x nodes

_LENIENT = "or preview the matrix with `jitlto expand --lenient`"


@dataclass
class DocumentError(Exception):
    """An error at a place in a document; :class:`jitlto.families.matrix.Matrix` adds the file and line to it."""

    what: str
    trail: Trail
    code: str
    hint: str | None = None


class DuplicateMembers(dict[str, object]):
    """An object with two members named ``duplicate``; its place is known only in :func:`compile_tree`."""

    def __init__(self, value: dict[str, object], duplicate: str) -> None:
        super().__init__(value)
        self.duplicate = duplicate


@dataclass(slots=True, eq=False)
class Node:
    """An object or an array: its items in the order of the traversal, and the number of its combinations."""

    is_object: bool
    labels: Sequence[Label] = ()
    trail: Trail = None
    items: list[Item] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class Member:
    """A member of an object: whether leaves are written under its name, and whether the name groups other names.

    Also those of branches that are in no combination, for an empty product has a convention too.
    """

    name: str
    trail: Trail
    siblings: Mapping[str, object]
    writes: bool = False
    groups: bool = False


Item: TypeAlias = Node | Leaf
_Child: TypeAlias = tuple[object, Member | None, Trail]
_Queue: TypeAlias = "tuple[Item, _Queue] | None"  # linked: alternatives share the rest


def compile_tree(value: object, lenient: bool) -> tuple[Node, list[Member]]:
    """Compile a document into its tree, counted and cut, and check the strict rules unless it is ``lenient``.

    Returns:
        An array around the document, so that the top is not a special case, and every member of every object, including
        those of cut branches.

    Raises:
        DocumentError: If the document has a leaf without a name, or an invalid value, name or duplicate, or breaks a
            rule.
    """
    root = Node(False, (0,))
    members: list[Member] = []
    nodes = [root]
    pending: list[tuple[Node, list[_Child]]] = [(root, [(value, None, None)])]
    while pending:
        parent, children = pending.pop()
        below: list[tuple[Node, list[_Child]]] = []
        for child, member, trail in children:
            if isinstance(child, dict):
                names = _sort_names(child, trail, lenient)
                node = Node(True, names, trail)
                own = [Member(name, (trail, name), child) for name in names]
                below.append((node, [(child[m.name], m, m.trail) for m in own]))
                members += own
                if member:
                    member.groups = True
            elif isinstance(child, list):
                node = Node(False, range(len(child)), trail)
                below.append((node, [(element, member, (trail, i)) for i, element in enumerate(child)]))
            else:
                parent.items.append(_make_leaf(child, member, trail, lenient))
                continue
            parent.items.append(node)
            nodes.append(node)
        pending += reversed(below)
    for node in reversed(nodes):  # children before their parents
        counts = [item.count if isinstance(item, Node) else 1 for item in node.items]
        node.count = math.prod(counts) if node.is_object else sum(counts)
        if node.count and not all(counts):  # an empty node keeps its branches for the error message
            node.labels = [label for label, count in zip(node.labels, counts, strict=True) if count]
            node.items = [item for item, count in zip(node.items, counts, strict=True) if count]
    if not lenient:
        _check_not_empty(root)
        _check_written_once(root)
        if root.count <= MOST_COMBINATIONS:  # of more no family can be made
            _check_distinct(root)
    return root, members


def _sort_names(value: dict[object, object], trail: Trail, lenient: bool) -> list[str]:
    if isinstance(value, DuplicateMembers) and not lenient:
        what, hint = f"duplicate member {value.duplicate!r}", f"merge the two into one array, {_LENIENT}"
        raise DocumentError(what, (trail, value.duplicate), "matrix-duplicate-member", hint)
    names = [name for name in value if isinstance(name, str)]
    if len(names) < len(value):
        raise DocumentError("the name of a member is not a string", trail, code="matrix-not-json")
    return sorted(names)


def _make_leaf(value: object, member: Member | None, trail: Trail, lenient: bool) -> Leaf:
    if not (value is None or isinstance(value, str | int | float)):
        raise DocumentError(f"not a JSON value: {type(value).__name__}", trail, code="matrix-not-json")
    if isinstance(value, float) and not math.isfinite(value):
        raise DocumentError(f"not a JSON number: {value}", trail, code="matrix-not-json", hint="write it as a string")
    if member is None:
        hint = 'make it the value of a member: {"name": ["value"]}'
        raise DocumentError("value without a name", trail, code="matrix-unnamed-value", hint=hint)
    if not (isinstance(value, str) or lenient):
        text = json.dumps(value)
        hint = f'write "{text}", {_LENIENT}'
        raise DocumentError(f"value {text} is not a string", trail, code="matrix-not-a-string", hint=hint)
    try:
        str(value).encode()
    except UnicodeEncodeError:
        hint = "write a complete surrogate pair, or the character itself"
        what = f"value {value!a} has an unpaired surrogate"
        raise DocumentError(what, trail, code="matrix-not-json", hint=hint) from None
    member.writes = True
    return member.name, value


# --- the strict rules ---


def _check_not_empty(root: Node) -> None:
    if not root.count:
        node = root
        while node.items:  # descend to the empty array that causes it
            node = next(item for item in node.items if isinstance(item, Node) and not item.count)
        hint = f"add an element, use {{}} for a dimension that adds nothing, {_LENIENT}"
        raise DocumentError("the product is empty because this array is", node.trail, "matrix-empty", hint)


def _check_written_once(root: Node) -> None:
    """Check that no combination gets a name from two members.

    Members of an object are chosen independently, so two of them write the same name in some combination exactly if
    both of their branches contain a leaf of that name.
    """
    nodes = [root]
    for node in nodes:  # which grows
        nodes += [item for item in node.items if isinstance(item, Node)]
    written: dict[int, dict[str, Trail]] = {}  # by node: the names in its combinations, each with a leaf
    for node in reversed(nodes):
        found: dict[str, Trail] = {}
        for item, label in zip(node.items, node.labels, strict=True):
            trail: Trail = (node.trail, label)
            more = written.pop(id(item)) if isinstance(item, Node) else {item[0]: trail}
            if node.is_object and (both := found.keys() & more.keys()):
                name = min(both)
                first, second = format_pointer(found[name]), format_pointer(more[name])
                what = f"{name!r} is written twice in one combination, by {first} and {second}"
                raise DocumentError(what, node.trail, "matrix-written-twice", f"rename one of them, {_LENIENT}")
            if len(more) > len(found):  # the smaller into the larger, or deep documents cost their depth squared
                found, more = more, found
            found |= more
        written[id(node)] = found


def _check_distinct(root: Node) -> None:
    seen: dict[frozenset[Leaf], int] = {}
    for number, (leaves, _) in enumerate(_walk(root)):
        first = seen.setdefault(frozenset(leaves), number)
        if first == number:
            continue
        ways = zip(_choices(root, first), _choices(root, number), strict=False)
        (array, one), (_, other) = next((a, b) for a, b in ways if a[1] != b[1])
        text = " ".join(f"{name}={value}" for name, value in leaves) or "{}"
        what = f"identical combinations: elements {one} and {other} of this array both give {text}"
        raise DocumentError(what, array.trail, "matrix-identical-combinations", f"remove one of them, {_LENIENT}")


def _choices(root: Node, number: int) -> list[tuple[Node, Label]]:
    """Return the arrays that lead to a combination, each with the element that is chosen, in the order of traversal."""
    _, choices = next(islice(_walk(root), number, None))
    return [(each.array, each.array.labels[each.index]) for each in choices if each.array is not root]


# --- the combinations ---


@dataclass(slots=True)
class _Choice:
    """An array that was passed: the element chosen, the queue behind it, and how many leaves were written before."""

    array: Node
    rest: _Queue
    written: int
    index: int = 0


def iterate_combinations(root: Node) -> Iterator[dict[str, Value]]:
    """Yield the combinations of a tree as new dicts; the first sorted name is the outermost loop."""
    return (dict(leaves) for leaves, _ in _walk(root))


def _walk(root: Node) -> Iterator[tuple[list[Leaf], list[_Choice]]]:
    """Yield the leaves of each combination and the choices that lead to it; both change when it goes on."""
    if not root.count:
        return
    written: list[Leaf] = []
    choices: list[_Choice] = []
    queue: _Queue = (root, None)
    while True:
        while queue is not None:
            item, queue = queue
            if not isinstance(item, Node):
                written.append(item)
            elif item.is_object:
                for member in reversed(item.items):
                    queue = (member, queue)
            else:
                choices.append(_Choice(item, queue, len(written)))
                queue = (item.items[0], queue)
        yield written, choices
        while choices and choices[-1].index + 1 == len(choices[-1].array.items):
            choices.pop()
        if not choices:
            return
        last = choices[-1]
        last.index += 1
        del written[last.written :]
        queue = (last.array.items[last.index], last.rest)


# --- places ---


def format_pointer(trail: Trail) -> str:
    """Format a path as a JSON pointer (RFC 6901)."""
    labels = []
    while trail is not None:
        trail, label = trail
        labels.append("/" + str(label).replace("~", "~0").replace("/", "~1"))
    return "".join(reversed(labels))
