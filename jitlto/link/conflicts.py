"""Functions that a caller's input and a fragment define differently under one name, of which a link keeps one.

SASS, archives and fatbins without LTO-IR cannot be inspected.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import ToolchainError
from jitlto.base.mangling import is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.cuda.bodies import Bodies, hash_weak
from jitlto.cuda.compatibility import LinkTarget
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.cuda.ptx import parse_ptx
from jitlto.link.definitions import Conflict, ConflictSearch
from jitlto.plan.user_code.inputs import UserInput, make_stub
from jitlto.record.fragment import Fragment, SymbolKind
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
    mode, target = link_target.link_mode, link_target.architecture
    theirs = [(user, i) for user in supplied if not user.symbols.opaque for kind, i in user.images if kind == mode]
    texts = [item for _, item in theirs if item.kind is InputKind.PTX]
    inline = [(user, item) for user, item in theirs if item.has_inline]
    ltoir = [(item, user.symbols.provides) for user, item in inline if item.kind is not InputKind.PTX]
    own = [(item, fragment.provides) for fragment, item in fragments]
    try:
        if mode == "ptx":
            conflict = _find_in_texts(texts, [(item, dict(fragment.bodies)) for fragment, item in fragments])
        else:
            inputs = [item for item, _ in (*own, *ltoir)]
            provided = [provides for _, provides in (*own, *ltoir)]
            how = target, options, store, _WORKERS
            conflict = ConflictSearch(inputs, provided, *how).find() if ltoir else None
            conflict = conflict or _find_in_texts(texts, ())
            for text in texts:
                conflict = conflict or _find_beside_ltoir(text, inputs, target, options, store)
    except ToolchainError as error:  # PTX and LTO-IR are linked where no compiler is installed, too
        _log.warning("inline functions of %s are not compared: %s", ", ".join(i.name for _, i in theirs), error.what)
        return
    if conflict is not None:
        raise conflict.error()


def _find_beside_ltoir(
    text: LinkInput, ltoir: Sequence[LinkInput], target: Architecture, options: LinkOptions, store: CacheDir | None
) -> Conflict | None:
    """Find a function of PTX that LTO-IR defines differently; one that is inlined stays with each."""
    module = parse_ptx(text.data.decode())
    names = sorted(s.name for s in module.provides if s.kind is SymbolKind.FUNCTION and not is_toolkit_name(s.name))
    if not names:
        return None
    stub, flags, bodies = make_stub(names, store), ("-lto", *options.flags()), Bodies(module)
    for item in ltoir:
        other = parse_ptx(link([item, stub], target, flags, ptx=True).data.decode())
        both, theirs = [n for n in names if n in other.declarations and other.declarations[n].defined], Bodies(other)
        if differing := tuple(name for name in both if bodies.hash(name) != theirs.hash(name)):
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
