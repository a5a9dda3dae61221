"""nvJitLink: inputs and flags in, a cubin or PTX out, its messages turned into jitlto's errors. No GPU needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jitlto.cuda import toolkit
from jitlto.errors import ArchitectureError, JitltoError, LinkError, UnresolvedSymbolError, VersionError
from jitlto.model.compatibility import check_target
from jitlto.model.elf import find_undefined
from jitlto.model.mangling import demangle
from jitlto.model.ptx import parse_ptx
from jitlto.model.versions import Architecture, Version


class InputKind(StrEnum):
    """What nvJitLink takes (``nvJitLinkInputType``); ``fatbin`` holds LTO-IR, PTX or SASS."""

    LTOIR = "ltoir"
    PTX = "ptx"
    FATBIN = "fatbin"
    CUBIN = "cubin"
    OBJECT = "object"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class LinkInput:
    """One input of a link: its kind, its bytes, and the name that messages give it."""

    kind: InputKind
    data: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Linked:
    """What a link made: the bytes of a cubin, or of PTX, and nvJitLink's info log."""

    data: bytes
    log: str


_UNRESOLVED = re.compile(
    r"Unresolved extern (?:function|variable) '([^']+)'|Undefined reference to '([^']+)'(?: in '([^']*)')?"
)
_LETTERS = ord("~") - ord("!")
_LETTER = re.compile(r"(?<= in ')[!-}](?=')|^[!-}](?=: link error)|(?<=bad input: )[!-}]$", re.M)
_DUPLICATE = re.compile(r"Linking globals named '([^']+)': symbol multiply defined|Multiple definition of '([^']+)'")

_OTHER_ARCHITECTURE = (
    "newer than target arch",
    "cannot be compiled for architecture",
    "future architecture",
    "SM version specified by .target is higher",
)


def link(inputs: Sequence[LinkInput], target: Architecture, flags: Sequence[str], *, ptx: bool = False) -> Linked:
    """Link.

    Parameters
    ----------
    inputs : sequence of LinkInput
        In link order.
    target : Architecture
        What to link for.
    flags : sequence of str
        nvJitLink's further flags.
    ptx : bool
        Return the PTX that link-time optimisation makes, not the cubin; all inputs must be LTO-IR. What no input
        defines is no error then: it stays ``.extern``.

    Raises
    ------
    UnresolvedSymbolError
        If a function or variable is defined by no input. (nvJitLink lets a missing variable pass with a warning.)
    VersionError, ArchitectureError
        If an input is too new for this nvJitLink, or for another architecture.
    LinkError
        If nvJitLink refuses for another reason.
    """
    _refuse_duplicates(inputs)
    nvjitlink = toolkit.bindings("nvjitlink")
    kinds = nvjitlink.InputType
    version = toolkit.nvjitlink_version()
    check_target(target, version)
    options = [f"-arch={target.sm}", *flags, *(["-ptx"] if ptx else [])]
    try:
        handle = nvjitlink.create(len(options), options)
    except nvjitlink.nvJitLinkError as error:
        raise LinkError(
            f"nvJitLink {version} refuses the options {' '.join(options)}: {error}",
            hint="see nvJitLink's documentation for the options of this version",
        ) from error
    try:
        at = inputs[0].name if inputs else ""
        try:
            for number, item in enumerate(inputs):
                at = item.name
                kind = getattr(kinds, item.kind.upper())
                nvjitlink.add_data(handle, kind, item.data, len(item.data), _letter(number))
            at = ""
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = _named(_log(nvjitlink, handle, "error") + _log(nvjitlink, handle, "info"), inputs)
            raise _link_error(str(error), log, at, target, version) from error
        log = _named(_log(nvjitlink, handle, "info"), inputs)
        _refuse_unresolved(log)
        what = "ptx" if ptx else "cubin"
        buffer = bytearray(getattr(nvjitlink, f"get_linked_{what}_size")(handle))
        getattr(nvjitlink, f"get_linked_{what}")(handle, buffer)
        if not ptx:
            # After a link that failed in ptxas, nvJitLink lets undefined functions pass (seen in 12.9 and 13.5).
            _refuse_undefined(find_undefined(bytes(buffer)), log)
    finally:
        nvjitlink.destroy(handle)
    return Linked(bytes(buffer).rstrip(b"\0") if ptx else bytes(buffer), log)


def refuse_undefined_in(linked: Linked) -> None:
    """Refuse linked PTX that leaves something to be defined, as a cubin that does is refused.

    Raises
    ------
    UnresolvedSymbolError
        If it does.
    """
    _refuse_undefined([symbol.name for symbol in parse_ptx(linked.data.decode()).requires], linked.log)


def _letter(number: int) -> str:
    """The name under which nvJitLink knows an input: one character.

    nvJitLink keeps the pointer to a name, and cuda.bindings frees what it points to. Objects of one byte live for ever.
    """
    return chr(ord("!") + number) if number < _LETTERS else "~"


def _named(log: str, inputs: Sequence[LinkInput]) -> str:
    """nvJitLink's log with the inputs' own names."""
    names = {_letter(number): item.name for number, item in enumerate(inputs[:_LETTERS])}
    return _LETTER.sub(lambda match: names.get(match[0], match[0]), log)


def _log(nvjitlink: object, handle: int, which: str) -> str:
    size = getattr(nvjitlink, f"get_{which}_log_size")(handle)
    if size <= 1:
        return ""
    buffer = bytearray(size)
    getattr(nvjitlink, f"get_{which}_log")(handle, buffer)
    return buffer.rstrip(b"\0").decode("utf-8", "replace")


def _refuse_unresolved(log: str) -> None:
    _refuse_undefined([match[1] or match[2] for match in _UNRESOLVED.finditer(log)], log)


def _refuse_undefined(names: Iterable[str], log: str) -> None:
    missing = sorted(set(names))
    if missing:
        listed = ", ".join(map(demangle, missing))
        raise UnresolvedSymbolError(
            f"no input of the link defines {listed}",
            log=log,
            hint="add the fragment, source or library that defines it",
        )


def _refuse_duplicates(inputs: Sequence[LinkInput]) -> None:
    """Two definitions in PTX: nvJitLink prints a line and keeps the first, or crashes (seen in 12.9 and 13.5)."""
    owners: dict[str, LinkInput] = {}
    for item in inputs:
        if item.kind is not InputKind.PTX:
            continue
        try:
            module = parse_ptx(item.data.decode("utf-8", "replace"))
        except JitltoError:
            continue  # no PTX: nvJitLink says what is wrong with it
        for symbol in module.provides:
            if not symbol.weak and owners.setdefault(symbol.name, item) is not item:
                names = f"{owners[symbol.name].name} and {item.name}"
                raise LinkError(
                    f"{demangle(symbol.name)} is defined by more than one input of the link: {names}",
                    hint="leave one of them out, or make it inline or static",
                )


def _link_error(status: str, log: str, at: str, target: Architecture, version: Version) -> LinkError:
    _refuse_unresolved(log)
    if duplicate := _DUPLICATE.search(log):
        name = demangle(duplicate[1] or duplicate[2])
        return LinkError(
            f"{name} is defined by more than one input of the link",
            log=log,
            hint="leave one of them out, or make it inline or static",
        )
    if "newer version of nvJitLink" in log or "Unsupported .version" in log:
        return VersionError(
            f"an input was made by a newer toolkit than nvJitLink {version}: {_last_line(log)}",
            log=log,
            hint="install an nvJitLink at least as new as the compiler",
        )
    if any(words in log for words in _OTHER_ARCHITECTURE):
        return ArchitectureError(
            f"an input is for another architecture than {target.sm}: {_last_line(log)}",
            log=log,
            hint="link for a later architecture, or build the input for this one",
        )
    place = f" at input {at!r}" if at else ""
    return LinkError(f"nvJitLink {version} refuses the link{place}: {_last_line(log) or status}", log=log)


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("INFO")]
    return lines[0] if lines else ""
