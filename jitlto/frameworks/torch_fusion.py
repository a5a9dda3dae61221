"""A pass of Inductor that fuses element-wise operations into operators with seams.

It runs on the graph of ATen operations, before Inductor's own fusion. A chain that the table of ``functions`` holds
becomes a function, and operator and chain one call of ``jitlto::fused``. That is given the function's text, so that a
compiled graph from Inductor's cache needs nothing but the declared operator.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config  # the documented place of custom passes
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_map

from jitlto.base.config import current
from jitlto.base.errors import JitltoError, OperatorError
from jitlto.frameworks import torch_operator
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.functions import OPERATIONS, Function, Input, Printer, UnsupportedError, Value, filled
from jitlto.frameworks.fusion import fuse_epilogue, fuse_prologue
from jitlto.frameworks.parts import Array
from jitlto.frameworks.torch_kernel import Implementation

_log = logging.getLogger("jitlto.fusion")
_NAMES = {"convert_element_type": "to", "clone": "to", "clamp_min": "maximum", "clamp_max": "minimum"}


class Fusion(CustomGraphPass):  # type: ignore[misc]
    """The pass, with the operator to which it turns calls."""

    def __init__(self) -> None:
        library = self._library = torch.library.Library("jitlto", "FRAGMENT")  # operators live as long as theirs
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
        library.define("fused(str function, Tensor?[] arrays, SymInt[] sizes) -> Tensor", tags=tags)
        library.impl("fused", _run, torch_operator.make_backend().key)
        torch.library.register_fake("jitlto::fused", _fake, lib=library)

    def __call__(self, graph: Graph) -> None:
        """Fuse what can be fused; said at ``JITLTO_LOG=fusion``."""
        if current().log == "fusion" and not _log.handlers:
            _log.addHandler(logging.StreamHandler())
            _log.setLevel(logging.INFO)
        ways = (("epilogue", "prologue"), ("epilogue",), ("prologue",))
        for node in list(graph.nodes):
            is_call = isinstance(node.target, OpOverload)
            operator = torch_operator.declared(node.target.name()) if is_call else None
            if operator is None or not (operator.prologue or operator.epilogue):
                continue
            if config.cpp_wrapper:  # code that runs without Python's part of an operator, as AOTInductor's
                _say(node, "compiled for C++")
                continue
            any(_fuse(graph, node, operator, sides) for sides in ways)  # with less, if not with all

    def uuid(self) -> bytes:
        """Return what tells this pass from others."""
        folder = Path(__file__).parent
        names = ("torch_fusion.py", "functions.py", "fusion.py", "fused.cuh")
        return bytes(get_hash_for_files(tuple(str(folder / name) for name in names)))


class _Chain:
    """The operations that become one function, with the nodes that it reads."""

    def __init__(self, side: str, shape: Sequence[Any]) -> None:
        self._side, self._shape = side, shape
        self._printer = Printer()
        self.given: dict[str, Any] = {}  # by name: nodes of arrays and numbers
        self._values: dict[Node, Value] = {}

    def print(self, members: Sequence[Node], start: Node | None = None) -> Function:
        """Print nodes, the last of which is the result, and ``start`` the element that the kernel has."""
        for node in members:
            if node is start:
                self._values[node] = Value("v", _dtype(node))
            elif _is_gather(node, self._shape):
                self._values[node] = self._gathered(node)
            else:
                name, operands = _operation(node) or ("", [])
                values = [self._value(each) if isinstance(each, Node) else each for each in operands]
                if "alpha" in node.kwargs:
                    values[1] = self._printer.apply("mul", [values[1], node.kwargs["alpha"]], _dtype(node))
                self._values[node] = self._printer.apply(name, values, _dtype(node))
        result = self._values[members[-1]]
        return self._printer.load(result) if start is None else self._printer.store(result, _dtype(start))

    def _value(self, node: Node) -> Any:
        if node not in self._values:
            number = node.args[-1] if _name(node) in ("full", "scalar_tensor") else None
            if isinstance(number, int | float):
                return filled(number, _dtype(node), has_dimensions=_shape(node) != ())
            self._values[node] = self._read(node, self._access(node))
        return self._values[node]

    def _read(self, node: Node, access: str) -> Value:
        name = f"fused_{self._side}{len(self.given)}"
        self.given[name] = node
        return self._printer.read(Input(name, _dtype(node), access), has_dimensions=_shape(node) != ())

    def _gathered(self, node: Node) -> Value:
        data, index = node.all_input_nodes
        self._read(index, "row")
        value = self._read(data, "gathered")
        name = f"{self._printer.inputs[-1].name}_rows"
        self.given[name] = _shape(data)[0]
        self._printer.number(name)
        return value

    def _access(self, node: Node) -> str:
        if not _is_tensor(node):
            raise UnsupportedError(f"{node} is a number that varies")
        if not node.meta["val"].is_contiguous():
            raise UnsupportedError(f"{node} is not contiguous")
        shape, whole = _shape(node), self._shape
        if all(_same(size, 1) for size in shape):
            return "one"
        if _is_same(shape, whole):
            return "element"
        if _is_same(shape, (*whole[:-1], 1)):
            return "row"
        if _same(shape[-1], whole[-1]) and all(_same(size, 1) for size in shape[:-1]):
            return "column"
        raise UnsupportedError(f"{node} is broadcast along other dimensions than rows or columns")


def _fuse(graph: Graph, node: Node, operator: Operator, sides: Sequence[str]) -> bool:
    """Fuse what is before or behind one call of an operator; return whether there was something, and it is done."""
    names = [argument.name for argument in operator.arguments]
    given: dict[str, Any] = {argument.name: argument.default for argument in operator.arguments}
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    what: dict[str, Any] = {"operator": operator.qualname, "arguments": names}
    members, last = [node], node
    if operator.epilogue and "epilogue" in sides and (found := _behind(node)):
        members, chain, function = found
        last, given = members[-1], given | chain.given
        what["epilogue"] = asdict(function)
    seam = operator.prologue if "prologue" in sides else None
    start = given[seam.array] if seam else None
    is_once = isinstance(start, Node) and sum(value is start for value in given.values()) == 1
    if seam and is_once and (found := _before(start)):
        before, chain, function = found
        extents = {f"{seam.array}_size{number}": size for number, size in enumerate(_shape(start))}
        members, given = [*before, *members], given | chain.given | extents
        what |= {"prologue": asdict(function), "rank": len(extents)}
    if len(members) == 1:
        return False
    what["values"] = {a.name: given[a.name] for a in operator.arguments if not isinstance(a, Array)}
    try:
        if any(isinstance(value, Node) for value in what["values"].values()):
            raise UnsupportedError("a number varies")
        text = json.dumps(what)
        arrays, sizes = ([given[name] for name in names] for names in _known(operator, text)[2])
        if any(each.meta["val"].is_conj() or each.meta["val"].is_neg() for each in arrays if each is not None):
            raise UnsupportedError("an array is conjugated or negated when it is read")
        with graph.inserting_before(last.next):
            sizes = [_size(graph, size, arrays) for size in sizes]
            new = graph.call_function(torch.ops.jitlto.fused.default, (text, arrays, sizes))
    except (OperatorError, UnsupportedError) as error:
        _say(node, str(error))
        return False
    new.meta.update(last.meta)
    try:
        with last.meta["val"].fake_mode:  # compiles the function, and checks it against the kernel
            new.target(*tree_map(lambda each: each.meta["val"] if isinstance(each, Node) else each, new.args))
    except JitltoError as error:
        _say(node, str(error))
        graph.erase_node(new)
        return False
    last.replace_all_uses_with(new)
    for each in reversed(members):
        graph.erase_node(each)
    _log.info("%s: fused with %s", node, ", ".join(str(each) for each in members if each is not node))
    return True


def _size(graph: Graph, size: Any, known: Sequence[Any]) -> Any:
    """Return a size as an argument: where it is a symbol, that of a tensor which is one too."""
    if isinstance(size, int):
        return size
    for node in known:
        if isinstance(node, Node):
            for dimension, other in enumerate(_shape(node)):
                if _same(size, other):
                    found = graph.call_function(torch.ops.aten.sym_size.int, (node, dimension))
                    found.meta["val"] = size
                    return found
    raise UnsupportedError(f"no tensor has the size {size}")


def _behind(node: Node) -> tuple[list[Node], _Chain, Function] | None:
    """Find the longest chain behind a call that ends in one value: the call and its nodes, in order."""
    shape, reached = _shape(node), {node: None}
    for each in islice(dropwhile(lambda other: other is not node, node.graph.nodes), 1, None):
        if _is_elementwise(each, shape) and any(operand in reached for operand in each.all_input_nodes):
            reached[each] = None
    for last in list(reached)[:0:-1]:
        members = {last}
        for each in reversed(reached):
            if any(user in members for user in each.users):
                members.add(each)
        if any(user not in members for each in members - {last} for user in each.users):
            _say(node, f"{last} is not all that its operands are used for")
            continue
        ordered = _absorb(members, shape, node)
        chain = _Chain("epilogue", shape)
        try:
            return ordered, chain, chain.print(ordered, node)
        except UnsupportedError as error:
            _say(node, f"{last}: {error}")
    return None


def _before(node: Node) -> tuple[list[Node], _Chain, Function] | None:
    """Find the chain that makes an argument: its nodes, in order."""
    shape = _shape(node)
    if len(node.users) > 1 or not (_is_elementwise(node, shape) or _is_gather(node, shape)):
        return None
    ordered, chain = _absorb({node}, shape), _Chain("prologue", shape)
    try:
        return ordered, chain, chain.print(ordered)
    except UnsupportedError as error:
        _say(node, f"before it: {error}")
    return None


def _absorb(members: set[Node], shape: Sequence[Any], start: Node | None = None) -> list[Node]:
    """Add what is only computed for some nodes, but for ``start``, and return all in order."""
    pending = [each for each in members if each is not start]
    while pending:
        for each in pending.pop().all_input_nodes:
            fits = _is_elementwise(each, shape) or _is_gather(each, shape)
            if each not in members and fits and all(user in members and user is not start for user in each.users):
                members.add(each)
                pending.append(each)
    return [each for each in next(iter(members)).graph.nodes if each in members]


def _operation(node: Node) -> tuple[str, list[Any]] | None:
    """Return an operation's name in the table and its operands; None if it is none of tensors and numbers."""
    if not isinstance(node.target, OpOverload) or node.target.namespace not in ("aten", "prims"):
        return None
    name, operands = _name(node), list(node.args)
    if name in ("convert_element_type", "clone"):
        operands = operands[:1]
    elif name == "div" and (mode := node.kwargs.get("rounding_mode")):
        name = f"div_{mode}"
    elif name == "pow" and not isinstance(operands[0], Node):
        return None
    if not operands or not all(isinstance(each, Node | bool | int | float | complex) for each in operands):
        return None
    return _NAMES.get(name, name), operands


def _is_elementwise(node: Node, shape: Sequence[Any]) -> bool:
    name, _ = _operation(node) or ("", [])
    is_made = name in ("to", *OPERATIONS) and _is_tensor(node) and _is_same(_shape(node), shape)
    return is_made and bool(node.meta["val"].is_contiguous())


def _is_gather(node: Node, shape: Sequence[Any]) -> bool:
    """Return whether a node takes rows of a matrix, by an index along its first dimension."""
    match str(node.target), node.args:
        case "aten.index.Tensor", (Node() as data, [Node() as index]):
            pass
        case "aten.index_select.default", (Node() as data, 0, Node() as index):
            pass
        case "aten.embedding.default", (Node() as data, Node() as index, *_):
            pass
        case _:
            return False
    return (
        len(shape) == 2
        and _is_tensor(data, index)
        and _dtype(index) in ("int32", "int64")
        and _is_same(_shape(index), shape[:1])
        and _is_same(_shape(data)[1:], shape[1:])
        and bool(data.meta["val"].is_contiguous())
    )


def _is_tensor(*nodes: Node) -> bool:
    return all(isinstance(node.meta.get("val"), torch.Tensor) for node in nodes)


def _name(node: Node) -> str:
    """Return the name of an operation of PyTorch, without namespace and overload."""
    return node.target.name().partition("::")[2].partition(".")[0] if isinstance(node.target, OpOverload) else ""


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def _dtype(node: Node) -> str:
    return str(node.meta["val"].dtype).rpartition(".")[2]


def _same(one: Any, other: Any) -> bool:
    return bool(statically_known_true(one == other))


def _is_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _say(node: Node, what: str) -> None:
    _log.info("%s: not fused: %s", node, what)


# --- the operator that takes a function's text ---


@cache
def _known(operator: Operator, text: str) -> tuple[Operator, Implementation, tuple[list[str], list[str]]]:
    """Return what a call of ``jitlto::fused`` means: the operator, how it runs, and the names of arrays and sizes."""
    what, fused = _loads(text), operator
    if [argument.name for argument in operator.arguments] != what["arguments"]:
        hint = "compile the code again: torch.compiler.reset()"
        error = "the operator was declared anew, with other arguments, since this code was compiled"
        raise operator.error(error, hint, "framework")
    if "epilogue" in what:
        function = _function(what["epilogue"])
        fused = fuse_epilogue(fused, function.inputs, function.numbers, lambda _: function, text)
    if "prologue" in what:
        fused = fuse_prologue(fused, _function(what["prologue"]), what["rank"], text)
    arrays = [argument.name for argument in fused.arguments if isinstance(argument, Array)]
    sizes = [argument.name for argument in fused.arguments if argument.name not in (*arrays, *what["values"])]
    return fused, Implementation(fused, torch_operator.make_backend()), (arrays, sizes)


_loads = cache(json.loads)


def _function(fields: Mapping[str, Any]) -> Function:
    inputs = tuple(Input(*each) for each in fields["inputs"])
    return Function(fields["text"], inputs, tuple(fields["numbers"]), fields["dtype"])


def _arguments(text: str, *given: Sequence[Any]) -> tuple[Operator, Implementation, list[Any]]:
    what = _loads(text)
    name = what["operator"]
    operator = torch_operator.declared(name)
    if operator is None:
        hint = "make it with jitlto.torch_operator before code that was compiled for it runs"
        raise OperatorError("the operator is not registered", code="operator-framework", where=name, hint=hint)
    fused, implementation, order = _known(operator, text)
    values = dict(what["values"])
    for names, part in zip(order, given, strict=True):
        values |= dict(zip(names, part, strict=True))
    return fused, implementation, [values[argument.name] for argument in fused.arguments]


def _run(text: str, *given: Any) -> Any:
    _, implementation, arguments = _arguments(text, *given)
    return implementation.call(*arguments)


def _fake(text: str, *given: Any) -> Any:
    operator, _, arguments = _arguments(text, *given)
    return torch_operator.fake(operator, *arguments)


@cache
def make() -> Fusion:
    """Return the pass; there is one."""
    return Fusion()
