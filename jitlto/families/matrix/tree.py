"""A matrix as a tree: the document compiled, counted, and walked for its combinations.

A node is an object (all of its members are combined) or an array (one of its elements is chosen). Its count is the
product or sum of its items' counts. Branches that count zero are cut, so that every remaining node takes part in some
combination. Private to :mod:`jitlto.families.matrix`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None
Leaf: TypeAlias = tuple[str, Value]
Label: TypeAlias = str | int  # the name of a member, or the index of an element
Trail: TypeAlias = "tuple[Trail, Label] | None"  # a path as a linked list: one list per node would cost depth x nodes
_Queue: TypeAlias = "tuple[Item, _Queue] | None"  # linked: alternatives share the rest

LENIENT_HINT = "or preview the matrix with `jitlto expand --lenient`"


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


class Node:
    """An object or an array: its items in the order of the traversal, and the number of its combinations."""

    __slots__ = ("count", "is_object", "items", "labels", "trail")

    def __init__(self, is_object: bool, labels: Sequence[Label] = (), trail: Trail = None) -> None:
        self.is_object = is_object
        self.labels = labels
        self.trail = trail
        self.items: list[Item] = []
        self.count = 0


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


def compile_tree(value: object, lenient: bool) -> tuple[Node, list[Member]]:
    """Compile a document into its tree, counted and cut.

    Returns:
        An array around the document, so that the top is not a special case, and every member of every object, including
        those of cut branches.

    Raises:
        DocumentError: If the document has a leaf without a name, or an invalid value, name or duplicate.
    """
    root = Node(False)
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
        _count(node)
    return root, members


def _count(node: Node) -> None:
    """Count a node's combinations and cut its empty branches, which an empty node keeps for the error message."""
    counts = [item.count if isinstance(item, Node) else 1 for item in node.items]
    node.count = math.prod(counts) if node.is_object else sum(counts)
    if node.count and not all(counts):
        node.labels = [label for label, count in zip(node.labels, counts, strict=True) if count]
        node.items = [item for item, count in zip(node.items, counts, strict=True) if count]


def _sort_names(value: dict[object, object], trail: Trail, lenient: bool) -> list[str]:
    if isinstance(value, DuplicateMembers) and not lenient:
        what, hint = f"duplicate member {value.duplicate!r}", f"merge the two into one array, {LENIENT_HINT}"
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
        hint = f'write "{text}", {LENIENT_HINT}'
        raise DocumentError(f"value {text} is not a string", trail, code="matrix-not-a-string", hint=hint)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            hint = "write a complete surrogate pair, or the character itself"
            what = f"value {value!a} has an unpaired surrogate"
            raise DocumentError(what, trail, code="matrix-not-json", hint=hint) from None
    member.writes = True
    return member.name, value


def list_labels(trail: Trail) -> tuple[Label, ...]:
    """List the names and indices of a path, outermost first."""
    labels = []
    while trail is not None:
        trail, label = trail
        labels.append(label)
    return tuple(reversed(labels))


def format_pointer(trail: Trail) -> str:
    """Format a path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(label).replace("~", "~0").replace("/", "~1") for label in list_labels(trail))


def iterate_combinations(root: Node) -> Iterator[dict[str, Value]]:
    """Yield the combinations of a tree as new dicts; the first sorted name is the outermost loop."""
    if not root.count:
        return
    written: list[Leaf] = []
    # For each array passed: its remaining elements, the queue behind it, and the length of ``written`` before it.
    choices: list[tuple[Iterator[Item], _Queue, int]] = []
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
                alternatives = iter(item.items)
                choices.append((alternatives, queue, len(written)))
                queue = (next(alternatives), queue)
        yield dict(written)
        while choices:
            alternatives, rest, length = choices[-1]
            alternative = next(alternatives, None)
            if alternative is not None:
                del written[length:]
                queue = (alternative, rest)
                break
            choices.pop()
        else:
            return
