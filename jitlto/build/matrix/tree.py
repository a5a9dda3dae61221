"""A matrix as a tree: the document compiled, counted, and walked for its combinations.

There are two kinds of node, *every* (an object: all its members together) and *either* (an array: one of its
elements), with leaves between. A count is a sum over arrays and a product over objects. Branches that count
zero are cut, so that every node that remains takes part in some combination.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jitlto.errors import MatrixError

Value: TypeAlias = str | int | float | bool | None
Leaf: TypeAlias = tuple[str, Value]
Trail: TypeAlias = "tuple[Trail, str | int] | None"  # linked, for a path per node would cost depth x nodes
_Queue: TypeAlias = "tuple[Item, _Queue] | None"  # linked: every alternative shares what comes after it

OR_LENIENTLY = "or see what it means as it is: `jitlto expand --lenient`"


class Repeating(dict[str, object]):
    """An object that gives one name twice, kept for :func:`compile_document`, which knows where it stands.

    Parameters
    ----------
    value : dict of str to object
        The object, each name with its last value.
    repeated : str
        The name that stands twice.
    """

    def __init__(self, value: dict[str, object], repeated: str) -> None:
        super().__init__(value)
        self.repeated = repeated


class Node:
    """An object or an array, its items in the order of the traversal.

    Parameters
    ----------
    every : bool
        Whether all items are taken together (an object), rather than one of them (an array).
    labels : sequence of str or int
        The name or index of each item.
    path : Trail
        Where the node stands in the document.

    Attributes
    ----------
    items : list of Item
        Nodes and leaves.
    count : int
        How many combinations the branch has.
    """

    __slots__ = ("count", "every", "items", "labels", "path")

    def __init__(self, every: bool, labels: Sequence[str | int], path: Trail) -> None:
        self.every = every
        self.labels = labels
        self.path = path
        self.items: list[Item] = []
        self.count = 0


@dataclass(slots=True)
class Member:
    """A member of an object, and what its name is used for.

    Attributes
    ----------
    name : str
        Its name.
    path : Trail
        Where it stands in the document.
    siblings : mapping of str to object
        The object that it is a member of.
    writes : bool
        Whether a leaf is written under the name.
    groups : bool
        Whether an object stands under the name.
    """

    name: str
    path: Trail
    siblings: Mapping[str, object]
    writes: bool = False
    groups: bool = False


Item: TypeAlias = Node | Leaf
_Child: TypeAlias = tuple[object, Member | None, Trail]


def compile_document(value: object, lenient: bool) -> tuple[Node, list[Member]]:
    """Compile a document into its tree, counted and cut.

    Parameters
    ----------
    value : object
        The document, as ``json.loads`` gives it, an object with a repeated name as :class:`Repeating`.
    lenient : bool
        Whether any JSON value may be a leaf, and a name may stand twice in an object.

    Returns
    -------
    root : Node
        An array around the document.
    members : list of Member
        Every member of every object of the document, those of cut branches too.

    Raises
    ------
    MatrixError
        The document cannot be a tree. ``where`` is the JSON pointer.
    """
    root = Node(False, (), None)  # an array around the document, so that the top is no special case
    members: list[Member] = []
    nodes = [root]
    pending: list[tuple[Node, list[_Child]]] = [(root, [(value, None, None)])]
    while pending:
        parent, children = pending.pop()
        below: list[tuple[Node, list[_Child]]] = []
        for child, member, path in children:
            if isinstance(child, dict):
                names = _sorted_names(child, path, lenient)
                node = Node(True, names, path)
                own = [Member(name, (path, name), child) for name in names]
                below.append((node, [(child[m.name], m, m.path) for m in own]))
                members += own
                if member:
                    member.groups = True
            elif isinstance(child, list):
                node = Node(False, range(len(child)), path)
                below.append((node, [(element, member, (path, i)) for i, element in enumerate(child)]))
            else:
                parent.items.append(_leaf(child, member, path, lenient))
                continue
            parent.items.append(node)
            nodes.append(node)
        pending += reversed(below)
    for node in reversed(nodes):  # children before their parents
        _count(node)
    return root, members


def _count(node: Node) -> None:
    """Count a node's combinations, and cut what has none. A node that counts zero stays whole, for the message."""
    counts = [item.count if isinstance(item, Node) else 1 for item in node.items]
    node.count = math.prod(counts) if node.every else sum(counts)
    if node.count and not all(counts):
        node.labels = [label for label, count in zip(node.labels, counts, strict=True) if count]
        node.items = [item for item, count in zip(node.items, counts, strict=True) if count]


def _sorted_names(value: dict[object, object], path: Trail, lenient: bool) -> list[str]:
    if isinstance(value, Repeating) and not lenient:
        raise MatrixError(
            f"the name {value.repeated!r} stands twice in one object",
            where=pointer(path),
            hint=f"join the two as one array, {OR_LENIENTLY}",
        )
    names = [name for name in value if isinstance(name, str)]
    if len(names) < len(value):
        raise MatrixError("a name in an object is not a string", where=pointer(path))
    return sorted(names)


def _leaf(value: object, member: Member | None, path: Trail, lenient: bool) -> Leaf:
    if not (value is None or isinstance(value, str | int | float)):
        raise MatrixError(f"a {type(value).__name__} is not a JSON value", where=pointer(path))
    if isinstance(value, float) and not math.isfinite(value):
        hint = "write it as a string"
        raise MatrixError(f"{value} is not a number that JSON can express", where=pointer(path), hint=hint)
    if member is None:
        hint = 'put it under a name, as in {"name": ["value"]}'
        raise MatrixError("a value has no name to be written under", where=pointer(path), hint=hint)
    if not (isinstance(value, str) or lenient):
        text = json.dumps(value)
        hint = f'write it as "{text}", {OR_LENIENTLY}'
        raise MatrixError(f"the value {text} is not a string", where=pointer(path), hint=hint)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            hint = "write whole characters, not halves of surrogate pairs"
            raise MatrixError(f"the value {value!a} is not text", where=pointer(path), hint=hint) from None
    member.writes = True
    return member.name, value


def pointer(path: Trail) -> str:
    """Write a path as a JSON pointer.

    Parameters
    ----------
    path : Trail
        A path from the document's top.
    """
    labels = []
    while path is not None:
        path, label = path
        labels.append("/" + str(label).replace("~", "~0").replace("/", "~1"))
    return "".join(reversed(labels))


def combinations(root: Node) -> Iterator[dict[str, Value]]:
    """Yield the combinations of a tree in order: the first sorted name is the outermost loop.

    Parameters
    ----------
    root : Node
        The root that :func:`compile_document` gives.

    Yields
    ------
    dict of str to Value
        A new dict each time.
    """
    if not root.count:
        return
    written: list[Leaf] = []
    choices: list[tuple[Iterator[Item], _Queue, int]] = []  # what is left of an array, what follows it, and undo
    queue: _Queue = (root, None)
    while True:
        while queue is not None:
            item, queue = queue
            if not isinstance(item, Node):
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
