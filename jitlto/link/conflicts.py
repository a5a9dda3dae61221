"""Functions that a caller's input and a fragment define differently under one name, of which a link keeps one.

SASS, archives and fatbins without LTO-IR cannot be inspected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import CompileError, LinkError, ToolchainError
from jitlto.base.mangling import is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.cuda.bodies import Bodies, hash_weak
from jitlto.cuda.compatibility import LinkTarget
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.link.definitions import Conflict, find_conflict, strong_names
from jitlto.plan.user_code.inputs import UserInput, make_stub
from jitlto.record.fragment import Fragment, Symbol, SymbolKind
from jitlto.record.options import LinkOptions

_WORKERS = 4  # links at once, where cores are free
_log = logging.getLogger(__name__)


def check_conflicts(
    fragments: Sequence[tuple[Fragment, LinkInput]],
    supplied: Sequence[UserInput],
    link_target: LinkTarget,
    options: LinkOptions,
    store: CacheDir | None,
) -> None:
    """Check that no input of a caller and another input of a link define a function differently.

    Args:
        fragments: The fragments, with what is linked of them.
        supplied: The caller's inputs.
        link_target: The target of the link.
        options: Those of the link.
        store: The user's cache, where there is one.

    Raises:
        LinkError: For the first two that do.
    """
    mode, target = link_target.link_mode, link_target.linked_for
    own = [item for _, item in fragments]
    readable = [user for user in supplied if not user.symbols.opaque]
    theirs = [(user, item) for user in readable for kind, item in user.images if kind == mode]
    ltoir = [item for _, item in theirs if item.kind is not InputKind.PTX]
    texts = [item for _, item in theirs if item.kind is InputKind.PTX]
    try:
        if mode == "ptx":
            conflict = _find_in_texts(texts, [(item, dict(fragment.bodies)) for fragment, item in fragments])
        else:
            symbols = [symbol for fragment, _ in fragments for symbol in (*fragment.provides, *fragment.requires)]
            symbols += [symbol for user in supplied for symbol in (*user.symbols.provides, *user.symbols.requires)]
            known = strong_names(symbols)
            inputs, users = [*own, *ltoir], range(len(own), len(own) + len(ltoir))
            pairs = [(one, user) for user in users for one in range(user)]
            lead = [make_stub([], store)]
            conflict = find_conflict(
                inputs, [0, *users], pairs, target, options, known, _WORKERS, lead=lead, several_toolkits=True
            )
            conflict = conflict or _find_strong(fragments, theirs, target, store)
            for item in [i for user, i in theirs if i.kind is not InputKind.PTX and user.version is None]:
                conflict = conflict or _find_unlisted(item, inputs, known, target, store)
            conflict = conflict or _find_in_texts(texts, ())
            for text in texts:
                conflict = conflict or _find_beside_ltoir(text, inputs, target, options, store)
    except ToolchainError as error:  # PTX and LTO-IR are linked where no compiler is installed, too
        _log.warning("inline functions of %s are not compared: %s", ", ".join(i.name for _, i in theirs), error.what)
        return
    if conflict is not None:
        raise conflict.error()


def _find_strong(
    fragments: Sequence[tuple[Fragment, LinkInput]],
    theirs: Sequence[tuple[UserInput, LinkInput]],
    target: Architecture,
    store: CacheDir | None,
) -> Conflict | None:
    """Find a function that is inline on one side and not on the other, which wins whatever the order."""
    ltoir = [(user.symbols.provides, item) for user, item in theirs if item.kind is not InputKind.PTX]
    own = _strong_functions(symbol for fragment, _ in fragments for symbol in fragment.provides)
    added = _strong_functions(symbol for provides, _ in ltoir for symbol in provides)
    stub = make_stub(sorted(own | added), store)
    sides = [
        (own, [(item, strong_names(provides)) for provides, item in ltoir]),
        (added, [(item, strong_names(fragment.provides)) for fragment, item in fragments]),
    ]
    for names, inputs in sides:
        for item, provided in inputs if names else ():
            hidden = sorted((names & _defined(_link_unoptimised([item, stub], target))) - provided)
            if hidden:
                others = [(f.provides, i) for f, i in fragments] if names is own else ltoir
                owner = next(i.name for provides, i in others if hidden[0] in strong_names(provides))
                return Conflict(item.name, owner, (hidden[0],))
    return None


def _find_unlisted(
    item: LinkInput, inputs: Sequence[LinkInput], known: Collection[str], target: Architecture, store: CacheDir | None
) -> Conflict | None:
    """Find a function that is not inline in LTO-IR that was not compiled here, whose symbols are not all known."""
    module = _link_unoptimised(inputs, target)
    called = {n for n in _defined(module) - set(known) if module.declarations[n].kind is SymbolKind.FUNCTION}
    names = sorted(name for name in called if "$" not in name and "_INTERNAL_" not in name)
    if not names:
        return None
    names = [name for name in names if name.startswith("_Z") or _can_declare(name, store)]
    stub = make_stub(names, store)
    mine = _defined(_link_unoptimised([item, stub], target)).intersection(names)
    for other in inputs if mine else ():
        both = sorted(mine & _defined(_link_unoptimised([other, stub], target))) if other is not item else []
        if both and _clashes(item, both, target, store):
            name = next(name for name in both if _clashes(item, [name], target, store))
            return Conflict(other.name, item.name, (name,))
    return None


def _can_declare(name: str, store: CacheDir | None) -> bool:
    """Return whether NVRTC does not declare a C function itself."""
    try:
        make_stub([name], store)
    except CompileError:
        return False
    return True


def _clashes(item: LinkInput, names: Sequence[str], target: Architecture, store: CacheDir | None) -> bool:
    """Return whether an input defines one of the functions so that no other input may."""
    try:
        _link_unoptimised([item, make_stub(names, store, define=True)], target)
    except LinkError as error:
        if error.code != "link-duplicate":
            raise
        return True
    return False


def _link_unoptimised(inputs: Sequence[LinkInput], target: Architecture) -> Module:
    return parse_ptx(link(inputs, target, ["-lto", "-O0"], ptx=True).data.decode())


def _find_beside_ltoir(
    text: LinkInput, ltoir: Sequence[LinkInput], target: Architecture, options: LinkOptions, store: CacheDir | None
) -> Conflict | None:
    """Find a function of PTX that LTO-IR defines differently; one that is inlined stays with each."""
    module = parse_ptx(text.data.decode())
    names = sorted(s.name for s in module.provides if s.kind is SymbolKind.FUNCTION)
    if not names:
        return None
    stub, flags = make_stub(names, store), ("-lto", *options.flags())
    for item in ltoir:
        other = parse_ptx(link([item, stub], target, flags, ptx=True).data.decode())
        if differing := _differing(module, other, names):
            return Conflict(item.name, text.name, differing)
    return None


def _find_in_texts(
    texts: Sequence[LinkInput], fragments: Iterable[tuple[LinkInput, Mapping[str, str]]]
) -> Conflict | None:
    """Find a function or variable that PTX of a caller and earlier PTX define differently, fragments' being first."""
    before = list(fragments)
    for text in texts:
        bodies = dict(hash_weak(parse_ptx(text.data.decode())))
        for earlier, theirs in before:
            both = bodies.keys() & theirs.keys()
            if differing := tuple(sorted(n for n in both if bodies[n] != theirs[n] and not is_toolkit_name(n))):
                return Conflict(earlier.name, text.name, differing)
        before.append((text, bodies))
    return None


def _differing(one: Module, other: Module, names: Iterable[str]) -> tuple[str, ...]:
    both = [name for name in names if name in _defined(other) and not is_toolkit_name(name)]
    bodies = (Bodies(one), Bodies(other)) if both else ()
    return tuple(name for name in both if len({each.hash(name) for each in bodies}) > 1)


def _defined(module: Module) -> set[str]:
    return {name for name, declaration in module.declarations.items() if declaration.defined}


def _strong_functions(symbols: Iterable[Symbol]) -> set[str]:
    return {s.name for s in symbols if not s.weak and s.kind is SymbolKind.FUNCTION}
