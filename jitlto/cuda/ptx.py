"""Parser for PTX: the symbols that a module provides and requires, with their layouts.

It reads the directives that NVRTC, nvcc and nvJitLink emit (PTX ISA manual, chapter «Directives»).
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from jitlto.base.cached import cached_property
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.record.fragment import Symbol, SymbolKind

#: The start of the name of a function that :func:`jitlto.compile.nvrtc_program.anchor` adds, which is left out.
ANCHOR = "jitlto_anchor_"
#: Functions of the device runtime, which every device program may call.
TOOLKIT_SYMBOLS = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nanosleep"})
_TOOLKIT_PREFIXES = (
    "cudaGet", "cudaDevice", "cudaStream", "cudaEvent", "cudaGraph", "cudaLaunch", "cudaFunc", "cudaMemcpy",
    "cudaMemset", "cudaFree", "cudaMalloc", "cudaOccupancy", "cudaCGGet", "cudaRuntime", "cudaPeek", "cudaCtx",
    "__cuda_syscall", "_cuda", "cudaCG",
)  # fmt: skip

# Texts that re compiles at their first use: a first launch reads no PTX.
_TOKEN = r'(?s)"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{};]|[^{};"/]+|/'
_LINE_DIRECTIVE = r"(?m)^[ \t]*\.(?:version|target|address_size|file|loc)\b[^\n]*$"
# The optimiser moves a shared variable into the function that alone uses it.
_DEMOTED = r"(?m)^[ \t]*// demoted variable\n([ \t]*\.shared[^;]*;)"
_FUNCTION = (
    r"(?:\.(extern|visible|weak|common)\s+)?\.(func|entry)\s*"
    r"(?:\.attribute\s*\([^)]*\)\s*)?(?:\(([^)]*)\)\s*)?([\w$%.]+)\s*(?:\(([^)]*)\))?"
)
_VARIABLE = (
    r"(?:\.(extern|visible|weak|common)\s+)?\.(global|const|shared)\s*"
    r"(?:\.attribute\s*\([^)]*\)\s*)*(?:\.align\s+(\d+)\s*)?(?:\.v(\d)\s*)?\.([a-z]+)(\d*)\s*"
    r"([\w$%.]+)((?:\[\d*\])*)"
)
_PARAMETER = (
    r"\.param\s*(?:\.align\s+(\d+)\s*)?(?:\.v(\d)\s*)?\.([a-z]+)(\d*)\s*"
    r"(?:\.ptr\b[^,]*?)?([\w$%.]+)\s*(?:\[(\d*)\])?\s*$"
)
_HINT = "give the PTX text that NVRTC, nvcc -ptx or another compiler wrote"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One top-level function, kernel or variable of a module."""

    name: str  # as the linker sees it
    linkage: str  # extern, visible, weak, common or empty (internal to the module)
    kind: SymbolKind
    layout: str  # as of a Symbol; that of a variable begins with its state space
    parameters: tuple[tuple[int, int], ...]  # size and alignment of each, in bytes
    text: str  # the body of a function or the initialiser of a variable, empty for a declaration
    defined: bool  # whether this is a definition


@dataclass(frozen=True)
class Module:
    """A parsed PTX module: its ISA version, target and declarations by name."""

    isa: Version
    target: Architecture
    declarations: dict[str, Declaration] = field(default_factory=dict)

    @cached_property
    def provides(self) -> tuple[Symbol, ...]:
        """The symbols that other modules can refer to, sorted by name."""
        return tuple(
            sorted(
                Symbol(d.name, d.kind, d.layout, weak=d.linkage != "visible")
                for d in self.declarations.values()
                if d.defined and d.linkage and d.linkage != "extern"
            )
        )

    @cached_property
    def requires(self) -> tuple[Symbol, ...]:
        """The symbols that another module must define, sorted by name; without those of the toolkit."""
        return tuple(
            sorted(
                Symbol(d.name, d.kind, d.layout)
                for d in self.declarations.values()
                # `extern __shared__` is the launch's dynamic shared memory, which has no definition.
                if not d.defined and d.linkage == "extern"
                if not d.layout.startswith("shared ") and not is_toolkit_symbol(d.name)
            )
        )


def is_toolkit_symbol(name: str) -> bool:
    """Return whether the CUDA device runtime provides the symbol ``name``."""
    return name in TOOLKIT_SYMBOLS or name.startswith(_TOOLKIT_PREFIXES)


def missing_symbol_hint(name: str) -> str | None:
    """Return what to do where nothing defines a symbol of dynamic parallelism; None for every other symbol."""
    if not name.startswith(("__cudaCDP", "cudaLaunchDevice", "cudaGetParameterBuffer")):
        return None
    return (
        "this is dynamic parallelism, a kernel that launches kernels: link the toolkit's libcudadevrt.a, by "
        'libraries = ["cudadevrt"] under [link] or in link_options, or launch from the host, as jitlto.sequence does'
    )


def parse_ptx(text: str) -> Module:
    """Parse one PTX module.

    Args:
        text: PTX as NVRTC, nvcc or nvJitLink emit it.

    Returns:
        Module

    Raises:
        JitltoError: If ``text`` is not PTX.
    """
    version = re.search(r"^[ \t]*\.version\s+(\d+\.\d+)", text, re.M)
    target = re.search(r"^[ \t]*\.target\s+(sm_\w+)", text, re.M)
    if not version or not target:
        raise JitltoError("invalid PTX: missing .version or .target directive", code="jitlto-ptx", hint=_HINT)
    module = Module(Version.parse(version[1]), Architecture.parse(target[1]))
    plain = re.sub(_LINE_DIRECTIVE, "", text)
    for head, body in _statements(re.sub(_DEMOTED, "", plain) + "".join(re.findall(_DEMOTED, plain))):
        declaration = _declaration(head, body)
        if declaration is None or declaration.name.startswith(ANCHOR):
            continue
        seen = module.declarations.get(declaration.name)
        # A definition replaces its forward declaration.
        if seen is None or not seen.defined:
            module.declarations[declaration.name] = declaration
    return module


def write_stub(symbols: Iterable[Symbol]) -> str:
    """Return PTX that defines symbols as their layouts tell, for links that prove all else; it is not meant to run."""
    head = [".version 7.0", ".target sm_75", ".address_size 64"]
    # A database may hold any text: what is no symbol stays undefined.
    return "\n".join([*head, *(f".visible {define(each)}" for each in symbols if declare(each))])


def define(symbol: Symbol) -> str:
    """Return a definition of a symbol, which does nothing."""
    return declare(symbol) + (";" if symbol.kind is SymbolKind.VARIABLE else " { ret; }")


def declare(symbol: Symbol) -> str:
    """Return the declaration of a symbol as its layout tells; nothing for what is none."""
    name = symbol.name if re.fullmatch(r"[\w$]+", symbol.name, re.ASCII) else ""
    if name and (match := re.fullmatch(r"(global|const) (\?|\d{1,9})@(\d{1,9})", symbol.layout)):
        space, size, alignment = match.groups()
        return f".{space} .align {alignment} .b8 {name}[{alignment if size == '?' else size}]"
    if name and (match := re.fullmatch(r"\((b?\d{1,9})?\)\(((?:b?\d{1,9},?)*)\)", symbol.layout)):
        result, taken = (_parameters_of(sizes or "", of) for sizes, of in zip(match.groups(), "rp", strict=True))
        return f".func {f'({result})' if result else ''} {name} ({taken})"
    return ""


def _parameters_of(sizes: str, name: str) -> str:
    """Return parameters of some sizes, as a layout has them; nvJitLink does not compare alignments."""
    parts = (
        f".align 16 .b8 {name}{n}[{size[1:]}]" if size.startswith("b") else f".b{8 * int(size)} {name}{n}"
        for n, size in enumerate(re.findall(r"b?\d+", sizes))
    )
    return ", ".join(f".param {each}" for each in parts)


def _statements(text: str) -> list[tuple[str, str | None]]:
    """Split into top-level statements: the text before the braces and the text in them (None without braces)."""
    statements: list[tuple[str, str | None]] = []
    head: list[str] = []
    body: list[str] | None = None
    depth = 0
    for token in re.findall(_TOKEN, text):
        if token.startswith(("//", "/*")):
            continue
        depth += (token == "{") - (token == "}")
        if depth < 0:
            break
        if depth == 1 and token == "{":
            body = []
        elif depth == 0 and token in ("}", ";"):
            # A variable's initialiser is followed by a semicolon, a function's body by nothing.
            if token == ";" or "=" not in "".join(head):
                statements.append(("".join(head).strip(), None if body is None else "".join(body)))
                head, body = [], None
        else:
            (head if depth == 0 or body is None else body).append(token)
    if depth or "".join(head).strip():
        what = "invalid PTX: a statement or a brace is left open, as in a truncated file"
        raise JitltoError(what, code="jitlto-ptx", hint=_HINT)
    return statements


def _declaration(head: str, body: str | None) -> Declaration | None:
    if match := re.match(_FUNCTION, head):
        linkage, keyword, result, name, parameters = match.groups()
        taken = _parameters(parameters)
        layout = "".join(f"({','.join(text for text, _ in part)})" for part in (_parameters(result), taken))
        kind = SymbolKind.KERNEL if keyword == "entry" else SymbolKind.FUNCTION
        sizes = tuple(size for _, size in taken)
        return Declaration(name, linkage or "", kind, layout, sizes, body or "", body is not None)
    if match := re.match(_VARIABLE, head):
        linkage, space, align, vector, _, bits, name, dimensions = match.groups()
        element = int(bits or 64) // 8 * int(vector or 1)
        counts = re.findall(r"\[(\d*)\]", dimensions)
        size = element * math.prod(map(int, counts)) if all(counts) else "?"
        layout = f"{space} {size}@{align or element}"
        initialiser = head[match.end() :] + (body or "")
        defined = linkage != "extern"
        return Declaration(name, linkage or "", SymbolKind.VARIABLE, layout, (), initialiser, defined)
    return None


def _parameters(text: str | None) -> list[tuple[str, tuple[int, int]]]:
    """Return the layout of each parameter of a list, and its size and alignment."""
    parameters = []
    for part in (text or "").split(","):
        if match := re.search(_PARAMETER, part.strip()):
            align, vector, _, bits, _, count = match.groups()
            element = int(bits or 64) // 8 * int(vector or 1)
            size = element if count is None else element * int(count or 0)  # that of variable arguments is left open
            parameters.append((f"{size}" if count is None else f"b{size}", (size, int(align or element))))
    return parameters
