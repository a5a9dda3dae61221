"""The grouping by cause of all that was found in the kernels and fragments of families.

A bug in a template is reported once, and not for every combination: what varies with the combination is left out when
messages are compared.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from jitlto.base.diagnostic import Diagnostic
from jitlto.base.errors import JitltoError
from jitlto.base.mangling import base_name

#: What was found, and the values of the kernel or fragment in which it was.
Found: TypeAlias = tuple[Diagnostic, Mapping[str, str]]

_WORD = re.compile(r"[^\W\d_]+")
_MANGLED = re.compile(r"\b_Z\w+")
# Files, the hash that is a program's name (see nvrtc.program_name), and values.
_PLACE = re.compile(r"(?:/[\w.+-]+){2,}|\b[0-9a-f]{20}\b|=[^,;\s\]]+")
# A typedef among the values appears in messages as the type that it names.
_TYPES = re.compile("unsigned|signed|long|short|char|bool|u?int|float|double|half|nv|bfloat|[tuxlfe]")


def found_in(
    found: Diagnostic | JitltoError, subject: str, values: Mapping[str, str], arch: str | None = None
) -> Found:
    """Return what was found in a kernel or fragment, with that as a note.

    Args:
        subject: The key of the fragment, or what else it was found in.
        values: Its values.
        arch: The target of the link.
    """
    if isinstance(found, JitltoError):
        log = found.log.strip()
        is_told = not log or log.splitlines()[-1].strip() in found.what
        found = found.diagnostic if is_told else replace(found.diagnostic, message=f"{found.diagnostic.message}\n{log}")
    parts = (f"at {subject.partition('[')[0]}:", *(f"{name}={value}" for name, value in values.items()))
    note = " ".join([*parts, *([f"for {arch}"] if arch else [])]).rstrip(":")
    return replace(found, notes=(*found.notes, Diagnostic.note(None, note))), values


def group_causes(found: Iterable[Found]) -> tuple[Diagnostic, ...]:
    """Group what was found by cause, the most frequent first; the first of a cause stands for it, with all notes.

    Messages of one cause may differ in values, numbers, scalar types, names of files and the types in names of
    functions. A ``T`` that is a value in one configuration may be a constant in another: it is left out of both.
    """
    found = list(found)
    varying = {word for _, values in found for value in values.values() for word in _WORD.findall(value)}
    groups: dict[object, list[Diagnostic]] = {}
    for each, _ in found:
        text = _PLACE.sub(" ", each.message.partition("\n")[0])
        text = _MANGLED.sub(lambda match: base_name(match[0]), text)
        words = tuple(word for word in _WORD.findall(text) if not (word in varying or _TYPES.fullmatch(word)))
        groups.setdefault((each.severity, each.code, words), []).append(each)
    return tuple(
        replace(first, notes=(*first.notes, *dict.fromkeys(each.notes[-1] for each in others)))
        for first, *others in sorted(groups.values(), key=len, reverse=True)
    )
