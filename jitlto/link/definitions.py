"""Inline functions that inputs of a link define differently, found in what is compiled.

Of several weak definitions nvJitLink keeps the first. An input that is linked alone keeps its own, so the inputs are
linked to PTX alone and together without optimisation, where a function shows whatever its callers make of it. Functions
with a name that several have are compared once more as the link itself makes them, where the optimiser has seen
``__builtin_assume`` and ``__restrict__``. This takes time in proportion to the number of inputs.

The first input decides on the data layout of all: in NVRTC 13.1 and later a pointer to shared memory has 32 bits, in
earlier releases and in libNVVM 64. So the same one, which defines nothing that the inputs do, is first in every link.
The last one takes the addresses of functions and declares them without their types.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jitlto.base.cache_dir import CacheDir
from jitlto.base.cached import SingleFlight
from jitlto.base.errors import LinkError
from jitlto.base.mangling import demangle, is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.cuda.bodies import Bodies
from jitlto.cuda.nvjitlink import LinkInput, link
from jitlto.cuda.ptx import parse_ptx
from jitlto.plan.user_code.inputs import make_stub
from jitlto.record.fragment import Symbol, SymbolKind
from jitlto.record.options import LinkOptions

T = TypeVar("T")

#: The code of the error for definitions that differ.
CONFLICT = "link-conflicting-definitions"
_NAMED = 3  # symbols in a message
_INTERNAL = re.compile(r"\$|_INTERNAL_|_GLOBAL__N_|^jitlto_stub")


def conflict(first: str, second: str, symbols: Sequence[str], *, is_hidden: bool = False) -> LinkError:
    """Return the error for two inputs whose definitions differ.

    Args:
        first, second: Their names.
        symbols: The mangled names of the definitions, as far as they can be told.
        is_hidden: Whether that of the first is inline, and that of the second is not, which therefore wins.
    """
    names = ", ".join(map(demangle, symbols[:_NAMED])) or "an inline function"
    if is_hidden:
        what = f"{names} is inline in {first}, but not in {second}"
        hint = "the link keeps the one that is not inline for both: define it inline in both, or rename one"
    else:
        one_of = "one of " if len(symbols) > 1 else ""
        what = f"{one_of}{names} is defined differently in {first} and in {second}"
        hint = "the link keeps one of them for both: give both the same text and options, make it static, or rename one"
    return LinkError(what, code=CONFLICT, hint=hint)


class _Linked:
    """The PTX of a link, with the hashes of its definitions."""

    def __init__(self, inputs: Sequence[LinkInput], target: Architecture, flags: Sequence[str]) -> None:
        self.module = parse_ptx(link(inputs, target, flags, ptx=True).data.decode())
        self._found: dict[tuple[bool, frozenset[str]], dict[str, str]] = {}

    def hashes(self, copied: Collection[str] = (), *, frames: bool = False) -> dict[str, str]:
        """Return the hashes of what it defines under names that other inputs may define too: not those ``copied``.

        Without optimisation the order decides which variables of ``__forceinline__`` functions share a place in the
        frame of their caller (seen in nvJitLink 13.0 for sm_100), so that ``frames`` do not count there.
        """
        declared = self.module.declarations
        names = frozenset(name for name in declared if not _INTERNAL.search(name) and name not in copied)
        if (frames, names) not in self._found:
            bodies = Bodies(self.module, frames=frames, named=names)
            self._found[frames, names] = {name: bodies.hash(name) for name in names if declared[name].defined}
        return self._found[frames, names]


class LinkedAlone:
    """Links of one input that several searches for one target have in common: each is made once."""

    def __init__(self) -> None:
        self._found: dict[Hashable, _Linked] = {}
        self._flights = SingleFlight()

    def get(self, key: Hashable, make: Callable[[], _Linked]) -> _Linked:
        """Return a link, made by the first thread that asks for it."""
        while (found := self._found.get(key)) is None:
            with self._flights.of(key) as flight:
                flight.value = self._found[key] = flight.value or make()
        return found


class ConflictSearch:
    """The search for two inputs of a link that define an inline function differently.

    Functions of the toolkit's headers may differ, since inputs may come from several releases.

    Args:
        inputs: LTO-IR, bare or in fatbins. What they need need not be there.
        provided: The symbols that each is known to define, perhaps not all of its inline functions.
        target: The architecture to link for.
        options: Those of the link.
        store: The user's cache, where there is one.
        workers: Number of links at once.
        linked_alone: What this search and others have in common.

    Raises:
        LinkError: Or a subclass, if an input cannot be linked.
        ToolchainError, CompileError: As :func:`~jitlto.plan.user_code.inputs.make_stub`.
    """

    def __init__(
        self,
        inputs: Sequence[LinkInput],
        provided: Sequence[Sequence[Symbol]],
        target: Architecture,
        options: LinkOptions,
        store: CacheDir | None,
        workers: int = 1,
        linked_alone: LinkedAlone | None = None,
    ) -> None:
        self._inputs, self._provided, self._target, self._store = inputs, provided, target, store
        self._workers, self._every = workers, range(len(inputs))
        self._strong = [{s.name for s in each if not s.weak and s.kind is SymbolKind.FUNCTION} for each in provided]
        self._known = set[str]().union(*self._strong)
        # What nobody uses is dropped by a link, and the inline functions that it calls too.
        kept = ({s.name for s in symbols if s.kind is SymbolKind.FUNCTION} for symbols in provided)
        self._kept = [tuple(sorted(each | self._known)) for each in kept]
        self._lead, self._links = make_stub([], store), linked_alone or LinkedAlone()
        self._unoptimised, self._optimised = _flags(options)
        of_all, *self._linked_alone = self._map(self._linked, [self._every, *([n] for n in self._every)])
        modules = [each.module for each in self._linked_alone]
        # Functions that are each input's own have other names where several inputs have them.
        self._copied = {name.partition("$")[0] for name in of_all.module.declarations if "$" in name}
        self._alone = [each.hashes(self._copied) for each in self._linked_alone]
        self._whole = of_all.hashes(self._copied)
        counts = Counter(name for found in self._alone for name in found if name not in self._known)
        self._shared = {name for name, count in counts.items() if count > 1}
        self._own_shared = {name for name in self._shared if not is_toolkit_name(name)}
        functions = {d.name for m in modules for d in m.declarations.values() if d.kind is SymbolKind.FUNCTION}
        self._functions = sorted(name for name in self._own_shared & functions if name.startswith("_Z"))

    def _map(self, work: Callable[[T], _Linked], items: Sequence[T]) -> list[_Linked]:
        """Call a function for each item, several at once."""
        try:
            with ThreadPoolExecutor(self._workers) as pool:
                return list(pool.map(work, items))
        except RuntimeError:  # the interpreter ends, and with it soon this thread; it lets none begin
            return list(map(work, items))

    def _linked(self, numbers: Sequence[int]) -> _Linked:
        return self._link(numbers, [self._kept[n] for n in numbers], self._unoptimised)

    def _link(self, numbers: Sequence[int], kept: Sequence[tuple[str, ...]], flags: Sequence[str]) -> _Linked:
        """Link inputs with stubs that keep functions."""

        def make() -> _Linked:
            stubs = [make_stub(names, self._store) for names in dict.fromkeys(kept) if names]
            return _Linked([self._lead, *(self._inputs[n] for n in numbers), *stubs], self._target, flags)

        return self._links.get((self._inputs[numbers[0]], *kept, *flags), make) if len(numbers) == 1 else make()

    def agree(self) -> bool:
        """Return whether nothing differs, so that nothing does in a link of some of the inputs either.

        False too if functions of the toolkit differ, or some of which an input has its own: others may share them.
        """
        hidden = (found.keys() & self._known - own for found, own in zip(self._alone, self._strong, strict=True))
        every = [each.hashes() for each in self._linked_alone]
        if any(hidden) or _differing(self._inputs, every, self._shared | self._copied):
            return False
        return all(_agree(found, self._whole) for found in self._alone) and not self._find_optimised()

    def find(self) -> LinkError | None:
        """Return the error for a function that differs; None if none does."""
        return self._find_named() or self._find_optimised()

    def _find_named(self) -> LinkError | None:
        """Find a function that differs without optimisation."""
        for item, found, own in zip(self._inputs, self._alone, self._strong, strict=True):
            if hidden := sorted((found.keys() & self._known).difference(own)):
                owner = next(o for o, names in zip(self._inputs, self._strong, strict=True) if hidden[0] in names)
                return conflict(item.name, owner.name, (hidden[0],), is_hidden=True)
        if error := _differing(self._inputs, self._alone, self._own_shared):
            return error
        for n in self._every:  # something that has no name is inlined everywhere
            if _agree(self._alone[n], self._whole):
                continue
            if error := self._find_hidden(n):
                return error
            if (other := self._find_other(n)) is not None:
                named = {s.name for each in self._provided for s in each}
                names = tuple(sorted(self._alone[other].keys() - self._alone[n].keys() - named))
                return conflict(self._inputs[other].name, self._inputs[n].name, names if len(names) <= _NAMED else ())
        return None

    def _find_hidden(self, n: int) -> LinkError | None:
        """Find a function that this input inlines everywhere, and that another defines, without a record of it."""
        kernels = {s.name for symbols in self._provided for s in symbols if s.kind is SymbolKind.KERNEL}
        for other in self._every:
            theirs = self._alone[other]
            names = sorted(x for x in theirs.keys() - self._alone[n].keys() - kernels if x.startswith("_Z"))
            if names and other != n:
                stub = make_stub(names, self._store)
                own = _Linked([self._lead, self._inputs[n], stub], self._target, self._unoptimised).hashes(self._copied)
                if differing := tuple(x for x in names if x in own and own[x] != theirs[x]):
                    return conflict(self._inputs[n].name, self._inputs[other].name, differing, is_hidden=True)
        return None

    def _find_other(self, n: int) -> int | None:
        """Find an input that means something else behind this one, as this one does behind it.

        A call with other pointers than the definition's changes its caller alone.
        """
        for other in (other for other in self._every if other != n):
            one, two = (self._linked(order).hashes(self._copied) for order in ((n, other), (other, n)))
            changed = {name for name, value in one.items() if two.get(name) != value and not is_toolkit_name(name)}
            if not changed.isdisjoint(self._alone[n]) and not changed.isdisjoint(self._alone[other]):
                return other
        return None

    def _find_optimised(self) -> LinkError | None:
        """Find a function with a name that only the optimiser tells apart."""
        if not self._functions or _differing(self._inputs, self._alone, self._shared):
            return None  # what is inlined of the toolkit's functions that differ cannot be told apart
        users = [n for n in self._every if not self._alone[n].keys().isdisjoint(self._functions)]
        kept = [tuple(name for name in self._functions if name in found) for found in self._alone]
        links = self._map(lambda n: self._link([n], [kept[n]], self._optimised), users)
        found = [each.hashes(self._copied, frames=True) for each in links]
        return _differing([self._inputs[n] for n in users], found, self._functions)


def _flags(options: LinkOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return flags without optimisation, and those of the link or, if it has none, the default; none for ptxas."""
    arithmetic = (options.fast_math, options.ftz, options.prec_div, options.prec_sqrt, options.fma)
    plain, as_linked = (LinkOptions(*arithmetic, optimization=each) for each in (0, options.optimization or None))
    return ("-lto", *plain.flags()), ("-lto", *as_linked.flags())


def _agree(found: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(others.get(name) == value for name, value in found.items() if not is_toolkit_name(name))


def _differing(
    inputs: Sequence[LinkInput], found: Sequence[Mapping[str, str]], names: Collection[str]
) -> LinkError | None:
    """Find two inputs of which one of the names differs."""
    first: dict[str, tuple[int, str]] = {}
    apart: dict[tuple[int, int], list[str]] = {}
    for number, hashes in enumerate(found):
        for name in sorted(hashes.keys() & names):
            earlier, value = first.setdefault(name, (number, hashes[name]))
            if value != hashes[name]:
                apart.setdefault((earlier, number), []).append(name)
    if not apart:
        return None
    (one, other), differing = next(iter(apart.items()))
    return conflict(inputs[one].name, inputs[other].name, tuple(differing))
