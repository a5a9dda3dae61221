"""Fragment keys as people type them: whole, by group and some parameters, or by the beginning of the text form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from urllib.parse import unquote

from jitlto.base.errors import JitltoError
from jitlto.base.text import suggest
from jitlto.record.fragment import FragmentKey

_PARTS = re.compile(r"(?:(?P<family>[^/\[\]]+)/)?(?P<group>[^/\[\]]+)(?:\[(?P<parameters>[^\[\]]*)\]?)?")
_SHOWN = 8  # candidates


def find_key(text: str, keys: Iterable[FragmentKey]) -> FragmentKey | None:
    """Return the one key that a text means; None if it means none.

    Args:
        text: A key, or ``group[name=value]`` with some of the parameters, with or without the family; or the beginning
            of a key.
        keys: The keys that there are; read once, and only those that match are kept.

    Raises:
        JitltoError: If several match.
    """
    found = _match(text, keys)
    if len(found) > 1:
        listed = ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
        raise JitltoError(
            f"{len(found)} fragments match {text!r}: {listed}",
            code="jitlto-ambiguous-fragment-key",
            hint="give more of the parameters",
        )
    return found[0] if found else None


def describe_nearest(text: str, keys: Collection[FragmentKey], command: str) -> str:
    """Return a hint for a text that means no key: the nearest group or key, and the command that lists the keys."""
    near = suggest(text, sorted({key.group for key in keys}), suggest(text, map(str, keys)))
    return f"{near} `{command}` lists the keys".lstrip()


def _match(text: str, keys: Iterable[FragmentKey]) -> list[FragmentKey]:
    if not text:
        return []
    parts = _PARTS.fullmatch(text)
    given: set[tuple[str, ...]] = set()
    if parts is not None:
        given = {tuple(unquote(word) for word in part.split("=", 1)) for part in (parts["parameters"] or "").split(",")}
        given.discard(("",))
    begin, named = [], []
    for key in keys:
        if key.text == text:
            return [key]
        if key.text.startswith(text):
            begin.append(key)
        in_group = parts and key.group == parts["group"] and parts["family"] in (None, key.family)
        if in_group and given <= {*key.parameters}:
            named.append(key)
    return sorted(named or begin)
