"""Inline functions that inputs of a link define differently, found in what is compiled.

Of several weak definitions nvJitLink keeps the first. So the inputs are linked to PTX once with each of them first: if
the definitions agree, the results do. This is done as the link itself does it, where the optimiser has seen
``__builtin_assume`` and ``__restrict__``, and without optimisation, where a function shows whatever its callers make
of it.

The first input also decides on the data layout of all: in NVRTC 13.1 and later a pointer to shared memory has 32 bits,
in earlier releases and in libNVVM 64. So inputs of several compilers need another one before them, always the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct
from msgspec.structs import replace

from jitlto.base.errors import LinkError
from jitlto.base.mangling import demangle, is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.cuda.bodies import Bodies, outline
from jitlto.cuda.nvjitlink import LinkInput, link
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import Symbol, SymbolKind
from jitlto.record.options import LinkOptions

#: The code of the error for definitions that differ.
CONFLICT = "link-conflicting-definitions"
_NAMED = 3  # symbols in a message


class Conflict(Struct, frozen=True):
    """Two inputs whose definitions differ, and the mangled names of those definitions, as far as they can be told."""

    first: str
    second: str
    symbols: tuple[str, ...]

    def error(self) -> LinkError:
        """Return the error that reports it."""
        names = ", ".join(map(demangle, self.symbols[:_NAMED])) or "an inline function"
        one_of = "one of " if len(self.symbols) > 1 else ""
        return LinkError(
            f"{one_of}{names} is defined differently in {self.first} and in {self.second}",
            code=CONFLICT,
            hint="the link keeps one of them for both: give both the same text and options, "
            "make it static, or rename one",
        )


def find_conflict(
    inputs: Sequence[LinkInput],
    fronts: Sequence[int],
    pairs: Iterable[tuple[int, int]],
    target: Architecture,
    options: LinkOptions,
    strong: Collection[str],
    workers: int = 1,
    *,
    lead: Sequence[LinkInput] = (),
    several_toolkits: bool = False,
) -> Conflict | None:
    """Find two inputs of a link that define an inline function differently.

    Args:
        inputs: LTO-IR, bare or in fatbins. What they need need not be there.
        fronts: The positions of the inputs to put first, one after another.
        pairs: The positions of two inputs each, among which the cause is searched.
        target: The architecture to link for.
        options: Those of the link.
        strong: The symbols that only one input may define, which are not the cause.
        workers: Number of links at once.
        lead: What stands before the inputs in every order, and defines nothing that they define.
        several_toolkits: Whether the inputs may come from several releases of the toolkit, whose own functions may
            differ. Where they do, the optimised links are not compared: what is inlined there cannot be told apart.

    Raises:
        LinkError: Or a subclass, if an input cannot be linked.
    """
    if len(fronts) < 2:
        return None
    orders = [[*lead, *_first(inputs, inputs[position])] for position in fronts]
    links = [(order, flags) for flags in link_flags(options) for order in orders]
    with ThreadPoolExecutor(workers) as pool:
        texts = list(pool.map(lambda each: _ptx(each[0], target, each[1]), links))
    for number, flags in enumerate(link_flags(options)):
        frames = number > 0
        linked = texts[number * len(orders) : (number + 1) * len(orders)]
        if _agree(linked, frames):
            continue
        if several_toolkits and _agree(linked, frames, without_toolkit=True):
            return None
        for one, other in ((inputs[a], inputs[b]) for a, b in pairs):
            both = [*lead, *_first(inputs, one, other)], [*lead, *_first(inputs, other, one)]
            if not _agree([_ptx(order, target, flags) for order in both], frames, without_toolkit=several_toolkits):
                names = _find_differing(both, target, options, strong)
                mine = tuple(name for name in names if not (several_toolkits and is_toolkit_name(name)))
                return Conflict(one.name, other.name, mine)
    return None


def strong_names(symbols: Iterable[Symbol]) -> set[str]:
    """Return the names of the functions and variables that are not inline, and of kernels."""
    return {symbol.name for symbol in symbols if not symbol.weak or symbol.kind is SymbolKind.KERNEL}


def _first(inputs: Sequence[LinkInput], *front: LinkInput) -> list[LinkInput]:
    return [*front, *(item for item in inputs if not any(item is each for each in front))]


def link_flags(options: LinkOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return flags without optimisation, and those of the link or, if it has none, the default; none for ptxas."""
    plain = replace(options, max_registers=None, lineinfo=False, split_compile=None, ptxas=())
    unoptimised, optimised = (
        ("-lto", *replace(plain, optimization=o).flags()) for o in (0, plain.optimization or None)
    )
    return unoptimised, optimised


def _ptx(inputs: Sequence[LinkInput], target: Architecture, flags: Sequence[str]) -> str:
    return link(inputs, target, flags, ptx=True).data.decode()


def _agree(texts: Sequence[str], frames: bool, *, without_toolkit: bool = False) -> bool:
    """Return whether PTX of different orders means the same.

    Args:
        texts: One for each order.
        frames: As in :class:`Bodies`. Without optimisation the order decides which variables of ``__forceinline__``
            functions share a place in the frame of their caller (seen in nvJitLink 13.0 for sm_100).
        without_toolkit: Whether functions of the toolkit's headers may differ.
    """
    outlines = {outline(text) for text in texts} if len(set(texts)) > 1 else set()
    if len(outlines) <= 1 and None not in outlines:
        return True
    return len({_summary(parse_ptx(text), frames, without_toolkit) for text in texts}) == 1


def _summary(module: Module, frames: bool, without_toolkit: bool) -> tuple[tuple[str, str], ...]:
    named = list(filter(is_toolkit_name, module.declarations)) if without_toolkit else ()
    bodies = Bodies(module, frames=frames, named=named)
    return tuple((symbol.name, bodies.hash(symbol.name)) for symbol in module.provides if symbol.name not in named)


def _find_differing(
    orders: Iterable[Sequence[LinkInput]], target: Architecture, options: LinkOptions, strong: Collection[str]
) -> tuple[str, ...]:
    """Return the functions that differ between two orders; all that may where only the optimiser tells them apart."""
    flags, _ = link_flags(options)
    modules = [parse_ptx(_ptx(order, target, flags)) for order in orders]
    names: list[str] = []
    for frames in (False, True):
        one, other = (Bodies(module, frames=frames).texts() for module in modules)
        names = [n for n in one if n in other and n not in strong and "$" not in n and "_INTERNAL_" not in n]
        if differing := tuple(name for name in names if one[name] != other[name]):
            return differing
    return tuple(names)
