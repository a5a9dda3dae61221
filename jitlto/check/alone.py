"""Which inputs of a link define functions otherwise than the link keeps them, told by a link of each input alone.

To put each input of a link first takes time that grows with the square of their number. Alone, an input keeps its own
definitions, in time that does not depend on the others. Where what it compiles to is the same as in the link of all,
they mean what the link's do. That holds without optimisation for all inputs, ``__forceinline__`` functions included,
whose names no link tells; with optimisation for those that call no other, for which nothing else is inlined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from jitlto.base.versions import Architecture
from jitlto.compile.nvrtc_program import Step, run_step
from jitlto.cuda.bodies import Bodies
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.link.definitions import link_flags
from jitlto.link.parallel import default_workers
from jitlto.plan.user_code.inputs import stub_text
from jitlto.record.fragment import Fragment, Symbol, SymbolKind
from jitlto.record.headers import Source
from jitlto.record.options import LinkOptions

_BATCH = 16  # inputs that share a stub
_INTERNAL = re.compile(r"\$|_INTERNAL_|_GLOBAL__N_|^jitlto_stub$")


class Suspects(NamedTuple):
    """Positions of inputs that may define something otherwise than the link keeps it.

    Args:
        differing: Those of which more may differ than what only the optimiser shows; they may hold as inline functions
            what others define otherwise.
        unclear: The others that a link of each alone does not clear.
    """

    differing: tuple[int, ...]
    unclear: tuple[int, ...]


def find_suspects(
    inputs: Sequence[LinkInput],
    fragments: Sequence[Fragment],
    target: Architecture,
    options: LinkOptions,
) -> Suspects:
    """Find the inputs of a link that linking each alone does not clear.

    Args:
        inputs: What is linked of the fragments.
        fragments: All of a kernel.
        target: The architecture to link for.
        options: Those of the link.

    Raises:
        LinkError: Or a subclass, if an input cannot be linked.
        ToolchainError, CompileError: As :func:`~jitlto.plan.user_code.inputs.make_stub`.
    """
    own = [_functions(fragment) for fragment in fragments]
    batches = [own[first : first + _BATCH] for first in range(0, len(own), _BATCH)]
    with ThreadPoolExecutor(default_workers()) as pool:
        of_all, *stubs = pool.map(_make_stub, (own, *batches))
    whole = [*inputs, of_all]
    unoptimised, optimised = link_flags(options)
    strong = {name for names in own for name in names}

    def differing(flags: Sequence[str], asked: Iterable[int], *, frames: bool) -> tuple[int, ...]:
        def compiled(items: Sequence[LinkInput]) -> Mapping[str, str]:
            return _hash(parse_ptx(link(items, target, flags, ptx=True).data.decode()), frames=frames)

        def alone(position: int) -> Mapping[str, str]:
            return compiled([inputs[position], stubs[position // _BATCH]])

        def differs(position: int, found: Mapping[str, str]) -> bool:
            # What another input defines without inline, too, wins in the link.
            hides = not strong.isdisjoint(found.keys() - own[position])
            return hides or any(kept.get(name) != value for name, value in found.items())

        asked = list(asked)
        with ThreadPoolExecutor(default_workers()) as pool:
            of_whole = pool.submit(compiled, whole)
            each = list(pool.map(alone, asked))
            kept = of_whole.result()
        return tuple(position for position, found in zip(asked, each, strict=True) if differs(position, found))

    different = differing(unoptimised, range(len(inputs)), frames=False)
    provided = {symbol.name for fragment in fragments for symbol in fragment.provides}
    leaves = [
        n
        for n, fragment in enumerate(fragments)
        if n not in different and provided.isdisjoint(symbol.name for symbol in fragment.requires)
    ]
    cleared = set(leaves).difference(differing(optimised, leaves, frames=True))
    return Suspects(different, tuple(n for n in range(len(inputs)) if n not in cleared.union(different)))


def _functions(fragment: Fragment) -> dict[str, Symbol]:
    return {s.name: s for s in fragment.provides if s.kind is SymbolKind.FUNCTION and not s.weak}


def _make_stub(several: Iterable[Mapping[str, Symbol]]) -> LinkInput:
    text = stub_text(sorted({name for names in several for name in names}))
    step = Step.from_options("ltoir", Architecture(75), ("--std=c++17",))
    return LinkInput(InputKind.LTOIR, run_step(Source(text.encode(), {}), step).data, "stub")


def _hash(module: Module, *, frames: bool) -> dict[str, str]:
    """Return the hashes of what a module defines under names that other modules may define too."""
    names = [name for name in module.declarations if not _INTERNAL.search(name)]
    bodies = Bodies(module, frames=frames, named=names)
    return {name: bodies.hash(name) for name in names if module.declarations[name].defined}
