"""Linking with nvJitLink: inputs and flags in, a cubin or PTX out, its messages mapped to errors. No GPU needed."""

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from jitlto.base.errors import (
    ArchitectureError,
    LinkError,
    ToolchainError,
    UnresolvedSymbolError,
    VersionError,
)
from jitlto.base.mangling import demangle
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import libraries
from jitlto.cuda.compatibility import check_target, machine_code_links
from jitlto.cuda.elf import read_architecture, read_sections, read_symbols
from jitlto.cuda.nvfatbin import find_unfit
from jitlto.cuda.ptx import is_toolkit_symbol, missing_symbol_hint
from jitlto.cuda.toolkit import find_library, needed


class InputKind(StrEnum):
    """Kinds of inputs (``nvJitLinkInputType``); ``fatbin`` holds LTO-IR, PTX or SASS."""

    LTOIR = "ltoir"
    PTX = "ptx"
    FATBIN = "fatbin"
    CUBIN = "cubin"
    OBJECT = "object"
    LIBRARY = "library"


class LinkInput(Struct, frozen=True):
    """One input of a link: its kind, its bytes, and its name in messages.

    ``has_inline`` is false for what holds no inline functions that can be compared with those of other inputs.
    """

    kind: InputKind
    data: bytes
    name: str
    has_inline: bool = True


def stored_input(data: bytes, name: str) -> LinkInput:
    """Return an image of a database as an input: a fatbin, or an archive of them."""
    return LinkInput(InputKind.LIBRARY if data.startswith(ARCHIVE) else InputKind.FATBIN, data, name)


class Linked(Struct, frozen=True):
    """Output of a link: a cubin or PTX, and nvJitLink's info log."""

    data: bytes
    log: str


_UNRESOLVED = r"Unresolved extern (?:function|variable) '([^']+)'|Undefined reference to '([^']+)'(?: in '([^']*)')?"
#: How an archive begins.
ARCHIVE = b"!<arch>\n"
_LETTERS = ord("~") - ord("!")
_LETTER = r"(?m)(?<= in ')[!-}](?=')|^[!-}](?=: link error)|(?<=bad input: )[!-}]$"
_DUPLICATE = r"Linking globals named '([^']+)': symbol multiply defined|Multiple definition of '([^']+)'"
_NEWER_INPUT = ("newer version of nvJitLink", "Unsupported .version")
_OTHER_ARCHITECTURE = (
    "newer than target arch",
    "cannot be compiled for architecture",
    "future architecture",
    "SM version specified by .target is higher",
)
#: What nvJitLink says of a kernel's limit of registers, and a function that needs more.
FEW_REGISTERS = r"max regcount of (\d+) calls function '([^']+)' with regcount of (\d+)"
_OTHER_INPUT = "link for what it was built for, build it for this architecture, or pass its source, LTO-IR or PTX"
_NEEDS_LTO = ("cannot be used without LTO", "input without LTO")
_CONTAINERS = (InputKind.FATBIN, InputKind.OBJECT, InputKind.LIBRARY)
# The beginnings of ptxas's own symbols: .nv.reservedSmem.offset0 and the like, and unified function and data tables.
_PTXAS_SYMBOLS = (".", "__UFT", "__UDT", "__cuda_sm")
# When it logs this about machine code, nvJitLink does not release its lock (seen in 12.9 and 13.5): the thread itself
# can go on linking, and every other would wait for ever.
_LOCKED = "ERROR 4: bad input"
_is_locked = False
_this_thread = threading.local()  # not an id, which a later thread may have


@cache
def version() -> Version:
    """Return the version of nvJitLink.

    Raises:
        ToolchainError: If it is not installed, or cannot be loaded.
    """
    with needed("cannot load nvJitLink"), uninterrupted:
        return Version(*libraries.nvjitlink.version())


def name_loaded(error: VersionError, linker: Version) -> VersionError:
    """Say in an error about versions where nvJitLink comes from, if another library has loaded one of its own."""
    loaded = libraries.load("nvJitLink")
    if loaded.is_foreign:
        error.hint = (
            f"nvJitLink {linker} is the one that was already loaded in this process, from {loaded.path}: "
            f"update or remove what loads it, or use jitlto before that does; otherwise {error.hint}"
        )
    return error


@cache
def read_device_library(name: str) -> tuple[LinkInput, str]:
    """Return a static library of device code, such as ``cudadevrt``, and the SHA-256 of its content.

    It is looked for beside nvJitLink, in NVIDIA's packages, and in the toolkit that the environment names.
    cuda.pathfinder knows ``cudadevrt`` alone, of any CUDA major, and only packages in the interpreter's site-packages.

    Raises:
        ToolchainError: If it is nowhere.
    """
    file, cu12 = f"lib{name}.a", version().major == 12
    beside = Path(find_library("nvJitLink")).resolve().parent
    packaged = libraries.find_packaged(f"{'cuda_runtime' if cu12 else 'cu13'}/lib/{file}", f"nvshmem/lib/{file}")
    roots = filter(None, map(os.environ.get, ("CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME")))
    places = [beside / file, packaged, *(f"{root}/{name}/{file}" for root in roots for name in ("lib64", "lib"))]
    for found in (Path(place) for place in places if place and os.path.isfile(place)):  # noqa: PTH113 - any text
        data = found.read_bytes()
        return LinkInput(InputKind.LIBRARY, data, file), hashlib.sha256(data).hexdigest()
    hint = (
        f"install the package that has it, as nvidia-cuda-runtime{'-cu12' * cu12} has libcudadevrt.a, or set CUDA_PATH"
    )
    raise ToolchainError(f"there is no {file}", code="toolchain-missing", where=str(beside), hint=hint)


def link(inputs: Sequence[LinkInput], target: Architecture, flags: Sequence[str], *, ptx: bool = False) -> Linked:
    """Link inputs for an architecture.

    Args:
        inputs: In link order.
        target: The architecture to link for.
        flags: Further flags of nvJitLink. With ``-r``, which nvJitLink 12 does not have, the cubin can be linked again,
            and undefined symbols are no error.
        ptx: Return the PTX that link-time optimisation makes, not the cubin; all inputs must be LTO-IR. Undefined
            symbols are no error then: they stay ``.extern``.

    Raises:
        UnresolvedSymbolError: If no input defines a function or variable. (nvJitLink only warns about a missing
            variable.)
        VersionError, ArchitectureError: If an input is too new for this nvJitLink, or for another architecture.
        LinkError: If nvJitLink fails for another reason, such as two definitions of a function, or failed in another
            thread so that it cannot be used here. (Of two in PTX it keeps one, or crashes: plans find them.)
    """
    global _is_locked
    linker = version()
    check_target(target, linker)
    _check_inputs(inputs, target)
    if _is_locked and not hasattr(_this_thread, "has_lock"):
        raise LinkError(
            "nvJitLink failed on an input in another thread and is locked since; only that thread can link",
            code="link-locked",
            hint="restart the process, without the input of the earlier error",
        )
    options = [f"-arch={target.sm}", *flags, *(["-ptx"] if ptx else [])]
    output = "ptx" if ptx else "cubin"
    with uninterrupted:
        nvjitlink = libraries.nvjitlink
        try:
            handle = nvjitlink.create(len(options), options)
        except nvjitlink.nvJitLinkError as error:
            raise LinkError(
                f"nvJitLink {linker} rejected the options {' '.join(options)}: {error}",
                code="link-options",
                hint="see nvJitLink's documentation for the options of this version",
            ) from error
        current = None
        try:
            for number, current in enumerate(inputs):
                kind = getattr(nvjitlink.InputType, current.kind.upper())
                nvjitlink.add_data(handle, kind, current.data, len(current.data), _letter(number))
            current = None
            nvjitlink.complete(handle)
            log = _read_log(nvjitlink, handle, "info")
            if log:  # else no pattern has to be compiled
                log = _with_names(log, inputs)
                _check_log(log)
            buffer = bytearray(getattr(nvjitlink, f"get_linked_{output}_size")(handle))
            getattr(nvjitlink, f"get_linked_{output}")(handle, buffer)
        except nvjitlink.nvJitLinkError as error:
            log = _with_names(_read_log(nvjitlink, handle, "error") + _read_log(nvjitlink, handle, "info"), inputs)
            if _LOCKED in log:
                _is_locked = _this_thread.has_lock = True
            raise _link_error(str(error), log, current, target, linker) from error
        finally:
            nvjitlink.destroy(handle)
    if ptx:
        return Linked(bytes(buffer).rstrip(b"\0"), log)
    # After a link that failed in ptxas, nvJitLink lets undefined functions pass (seen in 12.9 and 13.5).
    if "-r" not in flags:
        _check_none_undefined(find_undefined(bytes(buffer)), log)
    return Linked(bytes(buffer), log)


def _letter(number: int) -> str:
    """Return the name under which nvJitLink knows an input: one character.

    nvJitLink keeps the pointer to a name, and cuda.bindings frees the string. The interpreter keeps one-byte strings.
    """
    return chr(ord("!") + number) if number < _LETTERS else "~"


def _with_names(log: str, inputs: Sequence[LinkInput]) -> str:
    names = {_letter(number): item.name for number, item in enumerate(inputs[:_LETTERS])}
    return re.sub(_LETTER, lambda match: names.get(match[0], match[0]), log)


def _read_log(nvjitlink: Any, handle: int, which: str) -> str:
    size = getattr(nvjitlink, f"get_{which}_log_size")(handle)
    if size <= 1:
        return ""
    buffer = bytearray(size)
    getattr(nvjitlink, f"get_{which}_log")(handle, buffer)
    return buffer.rstrip(b"\0").decode("utf-8", "replace")


def _check_log(log: str) -> None:
    if duplicate := re.search(_DUPLICATE, log):
        raise LinkError(
            f"{demangle(duplicate[1] or duplicate[2])} is defined in more than one input of the link",
            code="link-duplicate",
            log=log,
            hint="remove one of them, or make it inline or static",
        )
    _check_none_undefined([match[1] or match[2] for match in re.finditer(_UNRESOLVED, log)], log)


def _check_none_undefined(names: Iterable[str], log: str) -> None:
    missing = tuple(sorted(set(names)))
    if missing:
        hint = next(
            filter(None, map(missing_symbol_hint, missing)), "add the fragment, source or library that defines it"
        )
        raise UnresolvedSymbolError(
            f"undefined in all inputs of the link: {', '.join(map(demangle, missing))}",
            symbols=missing,
            log=log,
            hint=hint,
        )


def find_undefined(cubin: bytes) -> list[str]:
    """Return the functions and variables that a cubin refers to and does not define, sorted; without the toolkit's.

    Args:
        cubin: As nvJitLink made it.

    Raises:
        LinkError: If it cannot be read as one.
    """
    try:
        _, undefined = read_symbols(cubin)
    except ValueError as error:
        raise LinkError(
            "nvJitLink made a malformed cubin", code="link-invalid-cubin", hint="use another version of nvJitLink"
        ) from error
    return sorted({symbol.name for symbol in undefined if not is_own_symbol(symbol.name)})


def is_own_symbol(name: str) -> bool:
    """Return whether a symbol is of ptxas, which may leave it without a name, or of the device runtime."""
    return not name or name.startswith(_PTXAS_SYMBOLS) or is_toolkit_symbol(name)


def _check_inputs(inputs: Sequence[LinkInput], target: Architecture) -> None:
    """Check what nvJitLink does not survive: machine code for another target, which may lock it, and broken objects.

    Raises:
        ArchitectureError, LinkError: If there is such an input.
    """
    for item in inputs:
        code = read_architecture(item.data) if item.kind is InputKind.CUBIN else None
        if code is not None and not machine_code_links(code, target):
            raise ArchitectureError(
                f"{item.name} is machine code for {code.sm}, which does not run on {target.sm}",
                code="link-architecture-input",
                hint=_OTHER_INPUT,
            )
        if item.kind is InputKind.OBJECT and item.data.startswith(b"\x7fELF"):
            try:
                read_sections(item.data)
            except ValueError as error:
                raise LinkError(
                    f"{item.name} is no whole object: {error}",
                    code="link-failed",
                    hint="pass the unchanged output of a compiler",
                ) from error


def _link_error(status: str, log: str, current: LinkInput | None, target: Architecture, linker: Version) -> LinkError:
    """Return the error that nvJitLink's messages mean; ``current`` is the input that it read, None if it had read all.

    Raises:
        UnresolvedSymbolError: If symbols are undefined: the same check finds them after a link that succeeds.
    """
    _check_log(log)
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("INFO")]
    reason, name = lines[0] if lines else "", current.name if current else "an input"
    if any(words in log for words in _NEWER_INPUT):
        return name_loaded(
            VersionError(
                f"an input was made by a newer toolkit than nvJitLink {linker}: {reason}",
                code="link-version-newer",
                log=log,
                hint="install an nvJitLink at least as new as the compiler",
            ),
            linker,
        )
    if any(words in log for words in _NEEDS_LTO):
        what, hint = f"{name} holds LTO-IR, which only link-time optimisation reads", 'link with link_mode="lto"'
        return LinkError(what, code="link-needs-lto", log=log, hint=f"{hint}, or give PTX too")
    if any(words in log for words in _OTHER_ARCHITECTURE):
        what = f"an input is for a different architecture than {target.sm}: {reason}"
    elif current and current.kind in _CONTAINERS and (held := find_unfit(current.data, target)):
        what = f"{name} holds code for {', '.join(held)}, which does not link for {target.sm}"
    else:
        place = f" at input {current.name!r}" if current else ""
        few, what = re.search(FEW_REGISTERS, log), f"nvJitLink {linker} failed{place}: {reason or status}"
        remedy = (
            f'link with link_mode="lto"; or declare sass_registers = {few[1]} for what cubins are made of'
            if few
            else None
        )
        return LinkError(what, code="link-failed", log=log, hint=remedy)
    return ArchitectureError(what, code="link-architecture-input", log=log, hint=_OTHER_INPUT)
