"""A pass of Inductor that fuses element-wise operations into operators with seams.

It runs on the graph of ATen operations, before Inductor's own fusion. A chain of operations that can be printed becomes
a function, and operator and chain one call of ``jitlto::fused``. That is given the function's text, so that a compiled
graph from Inductor's cache needs nothing but the declared operator.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import cache
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
from jitlto.frameworks.declaration import Operator, declared
from jitlto.frameworks.functions import COMPUTED, Function, Input, Printer, UnsupportedError, Value, constant, rounded
from jitlto.frameworks.fusion import fuse, is_read
from jitlto.frameworks.torch_kernel import Implementation

_log = logging.getLogger("jitlto.fusion")
_NAMES = {"convert_element_type": "to", "clone": "to", "clamp_min": "maximum", "clamp_max": "minimum"}


class Fusion(CustomGraphPass):  # type: ignore[misc]
    """The pass."""

    def __call__(self, graph: Graph) -> None:
        """Fuse what can be fused; said at ``JITLTO_LOG=fusion``."""
        if current().log == "fusion" and not _log.handlers:
            _log.addHandler(logging.StreamHandler())
            _log.setLevel(logging.INFO)
        for node in list(graph.nodes):
            operator = torch_operator.declared(node.target.name()) if isinstance(node.target, OpOverload) else None
            if operator:
                _fuse(operator, node)

    def uuid(self) -> bytes:
        """Return what tells this pass from others: Inductor keeps the graphs that it left, for other processes too."""
        files = tuple(str(each) for each in sorted(Path(__file__).parent.iterdir()) if each.is_file())
        known = [(o.qualname, o.arguments, bool(o.prologue), bool(o.epilogue)) for o in declared if not o.sources]
        return bytes(get_hash_for_files(files, "".join(sorted(map(str, known)))))


def _fuse(operator: Operator, call: Node) -> None:
    """Replace a call, and the chains that its kernel takes, by one call."""
    given: dict[str, Any] = {argument.name: argument.default for argument in operator.arguments}
    given |= dict(zip(given, call.args, strict=False)) | dict(call.kwargs)
    found = {"epilogue": _behind(call)} if operator.epilogue else {}
    made = given[operator.prologue.array] if operator.prologue else None
    if made and len(made.users) == 1 and list(given.values()).count(made) == 1 and not _refusal(made, _shape(made)):
        found["prologue"] = _collect("prologue", made)
    chains, arguments, nodes = dict[str, _Chain](), None, [call]
    for side, chain in found.items():
        try:
            if chain:
                arguments = _describe(operator, call, given, {**chains, side: chain})
                chains[side] = chain
                nodes = [*nodes, *chain.nodes] if side == "epilogue" else [*chain.nodes, *nodes]
        except (JitltoError, UnsupportedError) as error:
            _log.info("%s: not fused: %s", call, error)
    if arguments:
        _log.info("fused: %s", ", ".join(map(str, nodes)))
        with call.graph.inserting_after(nodes[-1]):
            new = call.graph.call_function(torch.ops.jitlto.fused.default, arguments)
        new.meta.update(nodes[-1].meta)
        nodes[-1].replace_all_uses_with(new)
        for node in reversed(nodes):
            call.graph.erase_node(node)


def _describe(operator: Operator, call: Node, given: dict[str, Any], chains: dict[str, _Chain]) -> tuple[Any, ...]:
    """Return the arguments of the call of ``jitlto::fused`` that takes the place of a call and chains."""
    arrays = {each.name: given[each.name] for each in operator.arrays if given[each.name] is not None}
    values = {name: None if name in arrays else value for name, value in given.items()}
    if config.cpp_wrapper:
        raise UnsupportedError("compiled for C++, as by AOTInductor, where Python's part of an operator does not run")
    if any(isinstance(value, Node) for value in values.values()):
        raise UnsupportedError("a number varies")
    for chain in chains.values():
        arrays |= chain.arrays
    made, places = None, dict[str, tuple[str, int]]()
    if operator.prologue and (before := chains.get("prologue")):
        del arrays[operator.prologue.array]
        for name, node in arrays.items():
            places |= {str(size): (name, n) for n, size in enumerate(_shape(node))}
        sizes = [size if isinstance(size, int) else places.get(str(size)) for size in _shape(before.nodes[-1])]
        if None in sizes:
            raise UnsupportedError(f"no array has a size of {operator.prologue.array}")
        made = operator.prologue.array, before.function.dtype, sizes
    functions = {side: chain.function for side, chain in chains.items()}
    text = json.dumps({"values": values, "arrays": list(arrays), "made": made, "functions": functions})
    with call.meta["val"].fake_mode:  # compiles the functions, and checks them against the kernel
        _fake(text, [node.meta["val"] for node in arrays.values()], operator.qualname)
    return text, list(arrays.values()), operator.qualname


# --- chains of operations ---


def _behind(call: Node) -> _Chain | None:
    """Return the longest chain behind a call that ends in one value."""
    awaited, last = set(call.users), None
    for node in call.graph.nodes:
        if node in awaited:
            refusal = "it gathers" if _find_gather(node) else _refusal(node, _shape(call))
            if refusal:
                _log.info("%s: no further than %s: %s", call, node, refusal)
                break
            awaited.remove(node)
            last = last if awaited else node  # nothing else uses what was computed so far
            awaited |= node.users.keys()
    return _collect("epilogue", last, call) if last else None


def _collect(side: str, last: Node, start: Node | None = None) -> _Chain:
    """Return the chain of an operation that is not refused, and of all that is only there for it, behind ``start``."""
    kept, nodes = set[Node](), {last: None}
    for node in reversed(last.graph.nodes):  # what uses a node is behind it
        is_alone = node.users and node.users.keys() <= nodes.keys() and node not in kept
        if node is last or (is_alone and not _refusal(node, _shape(last))):
            nodes[node] = None
            kept.update(_find_gather(node) or ())
    return _Chain(side, [*reversed(nodes)], start)


def _refusal(node: Node, shape: Sequence[Any]) -> str:
    """Return why a node cannot be printed for elements of a shape; nothing if it can."""
    try:
        if _access(node, shape) != "element":
            return "it has another shape"
        _Chain("", [node])
    except UnsupportedError as error:
        return str(error)
    return ""


class _Chain:
    """Operations of a graph, printed in order as a function; an UnsupportedError if one of them cannot be printed."""

    def __init__(self, side: str, nodes: Sequence[Node], start: Node | None = None) -> None:
        self.nodes, self._side, self._shape = nodes, side, _shape(nodes[-1])
        self._printer, self._values = Printer(), {start: Value("v", _dtype(start))} if start else {}
        self.arrays: dict[str, Node] = {}  # what they read, by names
        for node in nodes:
            self._values[node] = self._print(node)
        self.function = self._printer.finish(self._values[nodes[-1]], _dtype(start) if start else None)

    def _print(self, node: Node) -> Value:
        if gather := _find_gather(node):
            self._read(gather[0], "row")
            return self._read(gather[1], "gathered")
        name, kwargs = _name(node), dict(node.kwargs)
        operands = [each for each in node.args if not isinstance(each, torch.dtype)]
        if mode := kwargs.pop("rounding_mode", None):
            name = f"{name}_{mode}"
        is_known = all(isinstance(each, Node | bool | int | float | complex) for each in operands)
        if not (name and is_known) or kwargs.keys() - {"memory_format"}:
            raise UnsupportedError(f"{node.target}")
        values = [self._find(each) if isinstance(each, Node) else each for each in operands]
        return self._printer.apply(_NAMES.get(name, name), values, _dtype(node))

    def _find(self, node: Node) -> Value:
        if node not in self._values:
            number = node.args[-1] if _name(node) in ("full", "scalar_tensor") else None
            if isinstance(number, int | float) and _dtype(node) in COMPUTED:
                return Value(rounded(constant(number).text, _dtype(node)), _dtype(node), _shape(node) != ())
            self._values[node] = self._read(node, _access(node, self._shape))
        return self._values[node]

    def _read(self, node: Node, access: str) -> Value:
        name = f"fused_{self._side}{len(self.arrays)}"
        self.arrays[name] = node
        return self._printer.read(Input(name, _dtype(node), access), has_dimensions=_shape(node) != ())


def _find_gather(node: Node) -> tuple[Node, Node] | None:
    """Return the index by which a node takes rows of an array, and the array; None if it does something else."""
    match (_name(node), *node.args):
        case ("index", data, [index]) | ("index_select", data, 0, index) | ("embedding", data, index, *_):
            is_rows = len(_shape(data)) == 2 and len(_shape(index)) == 1 and data.meta["val"].is_contiguous()
            return (index, data) if is_rows and _dtype(index) in ("int32", "int64") else None
    return None


def _access(node: Node, whole: Sequence[Any]) -> str:
    """Return where an array is read for the elements of a whole; what is read otherwise is an UnsupportedError."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.is_contiguous() and not (value.is_conj() or value.is_neg()):
        shape = (*[1] * (len(whole) - value.dim()), *value.shape)
        for access in ("element", "one", "row", "column"):
            if is_read(access, shape, whole, lambda one, other: statically_known_true(one == other)):
                return access
    raise UnsupportedError(f"{node} is no contiguous array that is read by element, row or column")


# --- calls ---


@cache
def _make(operator: Operator | None, name: str, text: str) -> tuple[Implementation, dict[str, Any]]:
    """Return what runs a call of ``jitlto::fused``, and what its text says."""
    what = json.loads(text)
    if operator is None or [argument.name for argument in operator.arguments] != list(what["values"]):
        error = "the operator is not registered with the arguments that it had when this code was compiled"
        hint = "make it by jitlto.torch_operator before, or compile the code again: torch.compiler.reset()"
        raise OperatorError(error, code="operator-framework", where=name, hint=hint)
    for side, (source, inputs, dtype) in what["functions"].items():
        function = Function(source, [Input(*each) for each in inputs], dtype)
        operator = fuse(operator, side, function.inputs, lambda _, made=function: made, text)  # type: ignore[misc]
    return Implementation(operator, torch_operator.make_backend()), what


def _bind(text: str, arrays: Sequence[Any], name: str) -> tuple[Implementation, list[Any]]:
    """Return what runs a call of ``jitlto::fused``, and the arguments of its operator."""
    made, what = _make(torch_operator.declared(name), name, text)
    values = what["values"] | dict(zip(what["arrays"], arrays, strict=True))
    if what["made"]:
        array, dtype, sizes = what["made"]
        shape = [size if isinstance(size, int) else values[size[0]].shape[size[1]] for size in sizes]
        values[array] = tuple(shape), dtype
    return made, [values[argument.name] for argument in made.operator.arguments]


def _run(text: str, arrays: Sequence[Any], name: str) -> Any:
    made, arguments = _bind(text, arrays, name)
    return made.call(*arguments)


def _fake(text: str, arrays: Sequence[Any], name: str) -> Any:
    made, arguments = _bind(text, arrays, name)
    return torch_operator.fake(made.operator, *arguments)


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def _dtype(node: Node) -> str:
    return str(node.meta["val"].dtype).rpartition(".")[2]


def _name(node: Node) -> str:
    is_own = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
    return node.target.name().partition("::")[2].partition(".")[0] if is_own else ""


_library = torch.library.Library("jitlto", "FRAGMENT")  # operators live as long as theirs
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_library.define("fused(str functions, Tensor[] arrays, str operator) -> Tensor", tags=_tags)
_library.impl("fused", _run, torch_operator.make_backend().key)
torch.library.register_fake("jitlto::fused", _fake, lib=_library)
