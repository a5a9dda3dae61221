"""Functions that a caller's input and a fragment define differently under one name, of which a link keeps one.

LTO-IR is compared as ``definitions`` does. PTX is compared with the PTX that the compiler made of fragments, of whose
definitions the database has the hashes. Machine code, and PTX in a fatbin, is not compared.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import LinkError, ToolchainError
from jitlto.base.mangling import is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.cuda.bodies import hash_weak
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.cuda.ptx import parse_ptx
from jitlto.link.definitions import ConflictSearch, conflict
from jitlto.plan.user_code.inputs import UserInput
from jitlto.record.fragment import Fragment
from jitlto.record.options import LinkOptions

_WORKERS = 4  # links at once, where cores are free
_log = logging.getLogger(__name__)


def check_conflicts(
    fragments: Sequence[tuple[Fragment, LinkInput]],
    supplied: Sequence[UserInput],
    target: Architecture,
    mode: str,
    options: LinkOptions,
    store: CacheDir | None,
) -> None:
    """Check that no input of a caller and another input of a link define a function differently.

    Args:
        fragments: The fragments, with what is linked of them.
        supplied: The caller's inputs.
        target, mode, options: Those of the link.
        store: The user's cache, where there is one.

    Raises:
        LinkError: For the first two that do.
    """
    theirs = [(user, i) for user in supplied for i in user.for_mode(mode)]
    texts = [item for _, item in theirs if item.kind is InputKind.PTX]
    ltoir = [(i, user.symbols.provides) for user, i in theirs if i.has_inline and i.kind is not InputKind.PTX]
    try:
        # Without a PTX image no more than names are known, and count as other definitions.
        named = ((item, f, {s.name: "" for s in f.provides if s.weak}) for f, item in fragments)
        error = _find_in_texts(texts, [(item, names | dict(f.bodies)) for item, f, names in named])
        if error is None and ltoir and mode == "lto":
            every = [*((item, fragment.provides) for fragment, item in fragments), *ltoir]
            inputs, provided = [item for item, _ in every], [symbols for _, symbols in every]
            error = ConflictSearch(inputs, provided, target, options, store, _WORKERS).find()
    except ToolchainError as missing:  # PTX and LTO-IR are linked where no compiler is installed, too
        _log.warning("inline functions of %s are not compared: %s", ", ".join(i.name for _, i in theirs), missing.what)
        return
    if error is not None:
        raise error


def _find_in_texts(
    texts: Sequence[LinkInput], fragments: Iterable[tuple[LinkInput, Mapping[str, str]]]
) -> LinkError | None:
    """Find a function or variable that PTX of a caller and earlier PTX define differently, fragments' being first."""
    before = list(fragments)
    for text in texts:
        bodies = dict(hash_weak(parse_ptx(text.data.decode())))
        for earlier, theirs in before:
            both = bodies.keys() & theirs.keys()
            if differing := tuple(sorted(n for n in both if bodies[n] != theirs[n] and not is_toolkit_name(n))):
                return conflict(earlier.name, text.name, differing)
        before.append((text, bodies))
    return None
