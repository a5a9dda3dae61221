"""A pass of Inductor that fuses element-wise operations into operators with seams.

It runs on the graph of ATen operations, before Inductor's own fusion. A chain of operations that can be printed becomes
a function, and operator and chain one call of ``jitlto::fused``. That is given the function's text, so that a compiled
graph from Inductor's cache needs nothing but the declared operator.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
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

from jitlto.base.config import current
from jitlto.base.errors import JitltoError, OperatorError
from jitlto.frameworks import torch_operator
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.functions import COMPUTED, Function, Input, Printer, UnsupportedError, Value, constant, rounded
from jitlto.frameworks.fusion import fuse, is_read
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
        for node in list(graph.nodes):
            is_call = isinstance(node.target, OpOverload)
            operator = torch_operator.declared(node.target.name()) if is_call else None
            if operator is None or not (operator.prologue or operator.epilogue):
                continue
            if config.cpp_wrapper:  # code that runs without Python's part of an operator, as AOTInductor's
                _log.info("%s: not fused: compiled for C++", node)
                continue
            given = {argument.name: argument.default for argument in operator.arguments}
            given |= dict(zip(given, node.args, strict=False)) | dict(node.kwargs)
            call = _Call(operator, node, given)
            if operator.epilogue and (chain := _behind(node)):
                call.fuse("epilogue", chain)
            if operator.prologue and (chain := _before(given, operator.prologue.array)):
                call.fuse("prologue", chain)

    def uuid(self) -> bytes:
        """Return what tells this pass from others."""
        names = ("torch_fusion.py", "functions.py", "fusion.py", "fused.cuh")
        return bytes(get_hash_for_files(tuple(str(Path(__file__).with_name(name)) for name in names)))


# --- chains of operations ---


def _behind(call: Node) -> _Chain | None:
    """Return the longest chain behind a call that ends in one value."""
    shape, awaited, last = _shape(call), dict.fromkeys(call.users), None
    for node in islice(dropwhile(lambda each: each is not call, call.graph.nodes), 1, None):
        if node in awaited:
            refusal = "it gathers" if _find_gather(node, shape) else _refusal(node, shape)
            if refusal:
                _log.info("%s: no further than %s: %s", call, node, refusal)
                break
            del awaited[node]
            last = last if awaited else node  # nothing else uses what was computed so far
            awaited |= node.users
    return _print("epilogue", last, call) if last else None


def _before(given: Mapping[str, Any], name: str) -> _Chain | None:
    """Return the chain that makes an argument and nothing else."""
    node = given[name]
    is_alone = isinstance(node, Node) and len(node.users) == 1 and list(given.values()).count(node) == 1
    return _print("prologue", node) if is_alone and not _refusal(node, _shape(node)) else None


def _print(side: str, last: Node, start: Node | None = None) -> _Chain:
    """Print an operation that is not refused, with all that is only there for it, behind ``start``."""
    shape, kept, nodes = _shape(last), set[Node](), {last: None}
    for node in reversed(last.graph.nodes):  # what uses a node is behind it
        is_alone = node.users and node.users.keys() <= nodes.keys() and node not in kept
        if node is last or (is_alone and not _refusal(node, shape)):
            nodes[node] = None
            kept.update(_find_gather(node, shape) or ())
    chain = _Chain(side, shape)
    if start:
        chain.values[start] = Value("v", _dtype(start))
    for node in reversed(nodes):
        chain.add(node)
    result = chain.values[last]
    chain.function = chain.printer.store(result, _dtype(start)) if start else chain.printer.load(result)
    return chain


def _refusal(node: Node, shape: Sequence[Any]) -> str:
    """Return why a node cannot be printed for elements of a shape; nothing if it can."""
    try:
        if _access(node, shape) != "element":
            raise UnsupportedError("it has another shape")
        _Chain("", shape).add(node)
    except UnsupportedError as error:
        return str(error)
    return ""


class _Chain:
    """Operations of a graph that are printed for elements of a shape, in order."""

    function: Function

    def __init__(self, side: str, shape: Sequence[Any]) -> None:
        self._side, self._shape = side, shape
        self.printer, self.values = Printer(), dict[Node, Value]()
        self.nodes: list[Node] = []
        self.arrays: dict[str, Node] = {}  # what they read, by names

    def add(self, node: Node) -> None:
        """Print an operation; one that cannot be printed is an UnsupportedError."""
        self.nodes.append(node)
        if gather := _find_gather(node, self._shape):
            self._read(gather[1], "row")
            self.values[node] = self._read(gather[0], "gathered")
            return
        name, operands, kwargs = _name(node), list(node.args), dict(node.kwargs)
        if name in ("convert_element_type", "clone"):
            operands = operands[:1]
        if mode := kwargs.pop("rounding_mode", None):
            name = f"{name}_{mode}"
        alpha = kwargs.pop("alpha", 1)
        is_known = all(isinstance(each, Node | bool | int | float | complex) for each in operands)
        is_power = name == "pow" and not isinstance(operands[0], Node)  # of a number
        if not is_known or is_power or isinstance(alpha, Node) or kwargs.keys() - {"memory_format"}:
            raise UnsupportedError(f"{node.target}")
        values = [self._find(each) if isinstance(each, Node) else each for each in operands]
        if alpha != 1:
            values[1] = self.printer.apply("mul", [values[1], alpha], _dtype(node))
        self.values[node] = self.printer.apply(_NAMES.get(name, name), values, _dtype(node))

    def _find(self, node: Node) -> Value:
        if node not in self.values:
            number = node.args[-1] if _name(node) in ("full", "scalar_tensor") else None
            if isinstance(number, int | float) and _dtype(node) in COMPUTED:
                return Value(rounded(constant(number).text, _dtype(node)), _dtype(node), _shape(node) != ())
            self.values[node] = self._read(node, _access(node, self._shape))
        return self.values[node]

    def _read(self, node: Node, access: str) -> Value:
        name = f"fused_{self._side}{len(self.arrays)}"
        self.arrays[name] = node
        return self.printer.read(Input(name, _dtype(node), access), has_dimensions=_shape(node) != ())


def _find_gather(node: Node, shape: Sequence[Any]) -> tuple[Node, Node] | None:
    """Return the array of which a node takes rows, and the index; None if it does something else."""
    match _name(node), node.args:
        case (
            ("index", (Node() as data, [Node() as index]))
            | ("index_select", (Node() as data, 0, Node() as index))
            | ("embedding", (Node() as data, Node() as index, *_))
        ):
            sizes = (*_shape(index), *_shape(data)[1:])
            is_rows = len(shape) == 2 and len(_shape(index)) == 1 and is_read("element", sizes, shape, _same)
            if is_rows and _dtype(index) in ("int32", "int64") and data.meta["val"].is_contiguous():
                return data, index
    return None


def _access(node: Node, whole: Sequence[Any]) -> str:
    """Return where an array is read for the elements of a whole; what is read otherwise is an UnsupportedError."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_contiguous():
        raise UnsupportedError(f"{node} is no contiguous array")
    shape = (*[1] * (len(whole) - value.dim()), *value.shape)
    for access in ("element", "one", "row", "column"):
        if is_read(access, shape, whole, _same):
            return access
    raise UnsupportedError(f"{node} is broadcast along other dimensions than rows or columns")


# --- calls ---


class _Call:
    """A call of an operator in a graph, with the functions that are fused into it."""

    def __init__(self, operator: Operator, node: Node, given: Mapping[str, Any]) -> None:
        self._operator, self._node = operator, node
        self._arrays = {each.name: given[each.name] for each in operator.arrays}
        self._values = {name: value for name, value in given.items() if name not in self._arrays}
        self._functions: dict[str, Function] = {}

    def fuse(self, side: str, chain: _Chain) -> None:
        """Replace call and chain by one call, if that is possible."""
        operator, call, nodes, sizes = self._operator, self._node, [self._node, *chain.nodes], list[Any]()
        arrays, functions = self._arrays | chain.arrays, self._functions | {side: chain.function}
        if side == "prologue" and operator.prologue:
            sizes, nodes = list(_shape(arrays.pop(operator.prologue.array))), [*chain.nodes, call]
        last, names = nodes[-1], [argument.name for argument in operator.arguments]
        what = {"operator": operator.qualname, "declared": names, "values": self._values, "arrays": list(arrays)}
        tensors = [None if node is None else node.meta["val"] for node in arrays.values()]
        try:
            if any(isinstance(value, Node) for value in self._values.values()):
                raise UnsupportedError("a number varies")
            if any(each.is_conj() or each.is_neg() for each in tensors if each is not None):
                raise UnsupportedError("an array is conjugated or negated when it is read")
            places: list[Any] = [size if isinstance(size, int) else _find_size(size, arrays.values()) for size in sizes]
            text = json.dumps({**what, "functions": functions})
            with last.meta["val"].fake_mode:  # compiles the function, and checks it against the kernel
                _fake(text, tensors, sizes)
        except (JitltoError, UnsupportedError) as error:
            _log.info("%s: not fused: %s", call, error)
            return
        with call.graph.inserting_before(last.next):
            for number, place in enumerate(places):
                if not isinstance(place, int):
                    places[number] = made = call.graph.call_function(torch.ops.aten.sym_size.int, place)
                    made.meta["val"] = sizes[number]
            new = call.graph.call_function(torch.ops.jitlto.fused.default, (text, list(arrays.values()), places))
        _log.info("%s: fused with %s", call, ", ".join(map(str, chain.nodes)))
        new.meta.update(last.meta)
        last.replace_all_uses_with(new)
        for each in reversed(nodes):
            call.graph.erase_node(each)
        self._node, self._arrays, self._functions = new, arrays, functions


def _find_size(size: Any, nodes: Iterable[Node | None]) -> tuple[Node, int]:
    """Return an array, and its dimension that has a size which is a symbol."""
    for node in filter(None, nodes):
        for dimension, other in enumerate(_shape(node)):
            if _same(size, other):
                return node, dimension
    raise UnsupportedError(f"no array has the size {size}")


_loads = cache(json.loads)


@cache
def _make(operator: Operator, text: str) -> Implementation:
    what = _loads(text)
    if [argument.name for argument in operator.arguments] != what["declared"]:
        error = "the operator was declared anew, with other arguments, since this code was compiled"
        raise operator.error(error, "compile the code again: torch.compiler.reset()", "framework")
    for side, (source, inputs, dtype) in what["functions"].items():
        function = Function(source, [Input(*each) for each in inputs], dtype)
        operator = fuse(operator, side, function.inputs, lambda _, made=function: made, text)  # type: ignore[misc]
    return Implementation(operator, torch_operator.make_backend())


def _bind(text: str, arrays: Sequence[Any], sizes: Sequence[Any]) -> tuple[Implementation, list[Any]]:
    """Return what runs a call of ``jitlto::fused``, and the arguments of its operator."""
    what = _loads(text)
    operator = torch_operator.declared(what["operator"])
    if operator is None:
        error, hint = "the operator is not registered", "make it with jitlto.torch_operator before compiled code runs"
        raise OperatorError(error, code="operator-framework", where=what["operator"], hint=hint)
    made, values = _make(operator, text), what["values"] | dict(zip(what["arrays"], arrays, strict=True))
    if operator.prologue and "prologue" in what["functions"]:
        values[operator.prologue.array] = tuple(sizes), what["functions"]["prologue"][2]
    return made, [values[argument.name] for argument in made.operator.arguments]


def _run(text: str, arrays: Sequence[Any], sizes: Sequence[int]) -> Any:
    made, arguments = _bind(text, arrays, sizes)
    return made.call(*arguments)


def _fake(text: str, arrays: Sequence[Any], sizes: Sequence[Any]) -> Any:
    made, arguments = _bind(text, arrays, sizes)
    return torch_operator.fake(made.operator, *arguments)


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def _dtype(node: Node) -> str:
    return str(node.meta["val"].dtype).rpartition(".")[2]


def _name(node: Node) -> str:
    """Return the name of an operation of PyTorch, without namespace and overload."""
    is_own = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
    return node.target.name().partition("::")[2].partition(".")[0] if is_own else ""


def _same(one: Any, other: Any) -> bool:
    return bool(statically_known_true(one == other))


@cache
def make() -> Fusion:
    """Return the pass; there is one."""
    return Fusion()
