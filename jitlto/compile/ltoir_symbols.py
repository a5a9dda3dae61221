"""The symbols of LTO-IR with kernels, which nvJitLink can tell in a fraction of the time of another compiler run.

A link to PTX, which does not optimise, lists kernels, variables, and what they need. It makes all functions internal,
so that what a source without kernels provides takes PTX of the compiler's.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import SymbolKind

_FLAGS = ("-lto", "-O0")
# Static functions, those of unnamed namespaces, and static variables of inline functions.
_INTERNAL = re.compile(r"_INTERNAL_|_GLOBAL__N_|^_ZZ|\$")


def read_modules(ltoir: Mapping[Architecture, bytes]) -> list[Module] | None:
    """Return the modules of LTO-IR: what it provides and requires, without code.

    Of functions beside a kernel only those of C++ that the kernel calls are listed, and as weak ones, since nvJitLink
    does not say. Those of C may be NVRTC's own, such as ``fmaf``.

    Args:
        ltoir: Bare LTO-IR of one source, by architecture, of a compiler of nvJitLink's release.

    Returns:
        The modules, sorted by architecture; None if there is no kernel, or nvJitLink rejects the LTO-IR.
    """
    modules = []
    for architecture, data in sorted(ltoir.items()):
        try:
            linked = nvjitlink.link([LinkInput(InputKind.LTOIR, data, "source")], architecture, _FLAGS, ptx=True)
        except LinkError:
            return None
        module = parse_ptx(linked.data.decode())
        listed = {name: replace(d, text="") for name, d in module.declarations.items()}
        if not any(d.defined and d.kind is SymbolKind.KERNEL for d in listed.values()):
            return None
        helpers = [d for d in listed.values() if d.defined and not d.linkage and d.name.startswith("_Z")]
        functions = (d for d in helpers if d.kind is SymbolKind.FUNCTION and not _INTERNAL.search(d.name))
        listed |= {d.name: replace(d, linkage="weak") for d in functions}
        modules.append(replace(module, declarations=listed))
    return modules
