"""Options of the link, which hold for all fragments of a kernel, and rules for options of the compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from jitlto.base.cached import decoder
from jitlto.base.errors import JitltoError
from jitlto.base.text import abbreviate, suggest

# Patterns are texts, which re compiles at their first use: a first launch uses none.
_HOST_OPTION = r"(?:-Xcompiler|--compiler-options)\b"
_HOST_FILES = r"[=, ]-(?:I|i(?:nclude|macros|quote|system|dirafter))"
_OPTION = r"(?:-D|--define-macro[= ]|-U|--undefine-macro[= ])\s*(\w+)"
_DEFINITION = r"(?s)--?(D|define-macro[= ]|U|undefine-macro[= ])\s*([\w$]+)(.*)"
# Options that read or write files or change names, without leading dashes: NVRTC accepts most with one dash or two
# (NVRTC's «Supported Compile Options»). Behind them nvcc's.
_FILES = frozenset((
    "include", "pre-include", "pch", "create-pch", "use-pch", "pch-dir", "time", "fdevice-time-trace", "include-path",
    "Xptxas", "ptxas-options", "frandom-seed",
    "ccbin", "compiler-bindir", "isystem", "system-include", "o", "output-file", "odir", "output-directory", "optf",
    "options-file", "M", "MM", "MD", "MMD", "MF", "keep", "save-temps", "keep-dir", "dryrun", "E", "c", "dc", "ptx",
    "cubin", "fatbin", "ldir", "idp", "ddp",
))  # fmt: skip
# Options for nvcc's programs alone, which NVRTC does not take.
_OF_NVCC = frozenset(["Xcompiler", "Xfatbin", "Xlinker", "Xarchive", "Xnvlink"])
# Options for the front end and the optimiser behind NVRTC can read and write any file: these cannot.
_HARMLESS = r"-Xcudafe[= ]--?(?:diag_(?:suppress|remark|warn|warning|error)=[\w,]+|display_error_number|no_warnings)"
# Options that make ptxas read or write a file (`ptxas --help`), and those that make it only print (help, version),
# which end in an internal error of nvJitLink.
_PTXAS_FILES = frozenset(
    [
        *("options-file", "optf", "apply-controls", "output-file", "o", "input-as-string", "ias"),
        *("help", "h", "version", "V", ""),
    ]
)

# Far beyond any use. From a length between 65,000 and 100,000 on, an option crashes nvJitLink 13.5, and so the process;
# a NUL would end it.
_LONGEST_OPTION, _MOST_OPTIONS = 1000, 100
_LONGEST_COMPILE_OPTION = 30_000  # less than a process takes as one argument
_LARGEST_COUNT = (1 << 31) - 1
_MOST_REGISTERS = 255  # of a thread, on every architecture (CUDA C++ Programming Guide, «Compute Capabilities»)
# Compile options, without dashes, that are declared elsewhere, mostly under [link]: the link has to know them too.
_DECLARED = {
    "maxrregcount": "max_registers", "Xptxas": "ptxas", "ptxas-options": "ptxas", "use_fast_math": "fast_math",
    "O0": "optimization", "O3": "optimization", "ftz": "ftz", "fmad": "fma", "prec-div": "prec_div",
    "prec-sqrt": "prec_sqrt", "lineinfo": "lineinfo", "generate-line-info": "lineinfo", "G": "lineinfo",
    "device-debug": "lineinfo", "arch": "archs", "gpu-architecture": "archs", "gencode": "archs",
    "generate-code": "archs", "code": "archs", "gpu-code": "archs", "I": "include", "include-path": "include",
    "std": "std", "ccbin": "NVCC_CCBIN in the environment", "compiler-bindir": "NVCC_CCBIN in the environment",
}  # fmt: skip
_OF_PTXAS = ["max_registers", "optimization", "ptxas"]  # no effect on machine code
_ALWAYS = frozenset(["dlto", "rdc", "relocatable-device-code"])
_Library: TypeAlias = Annotated[str, Meta(max_length=100, pattern=r"\A[A-Za-z0-9_]+\Z")]  # no path
_Assembler: TypeAlias = Annotated[str, Meta(max_length=_LONGEST_OPTION, pattern=r"\A-[ -~]*\Z")]


class LinkOptions(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options for nvJitLink, beside the architecture (names and meaning: nvJitLink's «Supported Link Options»).

    Args:
        fast_math: Flush denormals, approximate division and square root, contract: sets the four options below that are
            unset. Under ``[link]`` it is given to the compiler too, which alone takes approximate sines, logarithms and
            the like.
        ftz, prec_div, prec_sqrt, fma: Flush denormals to zero; precise division; precise square root; contraction.
            None: nvJitLink's default. Under ``[link]`` they are given to the compiler too: it alone decides square
            roots, and all of them for linked PTX.
        max_registers: Most registers a thread may use, at most 255.
        optimization: 0 or 3.
        lineinfo: Keep line numbers for profilers; declared under ``[link]``, so that the compiler makes them.
        split_compile: Threads for optimising one kernel in parts; 0 for all cores.
        ptxas: Options passed on to ptxas, one each.
        libraries: Device libraries of the toolkit that are linked too, such as ``cudadevrt``.
        tiered: Begin with a kernel that is linked of cubins, and link with LTO behind the first launches. Declared
            under ``[link]``; a caller may turn it off.
    """

    fast_math: bool = False
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    fma: bool | None = None
    max_registers: Annotated[int, Meta(ge=1, le=_MOST_REGISTERS)] | None = None
    optimization: Literal[0, 3] | None = None
    lineinfo: bool = False
    split_compile: Annotated[int, Meta(ge=0, le=_LARGEST_COUNT)] | None = None
    ptxas: Annotated[tuple[_Assembler, ...], Meta(max_length=_MOST_OPTIONS)] = ()
    libraries: Annotated[tuple[_Library, ...], Meta(max_length=_MOST_OPTIONS)] = ()
    tiered: bool = False

    def __post_init__(self) -> None:
        for option in self.ptxas:
            if option.startswith(("-g", "--device-debug")):
                what = "ptxas: device debugging and link-time optimisation exclude each other"
                raise _invalid(what, hint='use lineinfo = true, or link_mode="ptx"')
            if not option.startswith("-") or _option_name(option) in _PTXAS_FILES:  # a word without a dash is a file
                hint = "write an option and its value as one string that begins with a dash; none may name a file"
                raise _invalid(f"ptxas: {abbreviate(option)} makes ptxas read or write a file", hint=hint)

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> LinkOptions:
        """Read a ``[link]`` table or a caller's mapping.

        Raises:
            JitltoError: On an unknown name or a value of the wrong kind.
            TypeError: If ``options`` is not a mapping.
        """
        if not isinstance(options, Mapping):
            raise TypeError(f"link options must be a dict, not {type(options).__name__}")
        for name in options:
            if name not in cls.__struct_fields__:
                known = cls.__struct_fields__
                hint = suggest(abbreviate(name), known, f"the link options are {', '.join(known)}")
                raise JitltoError(f"unknown link option {abbreviate(name)}", code="jitlto-link-option", hint=hint)
        try:
            decoder(cls)
            return convert(dict(options), cls)
        except (ValidationError, ValueError) as error:
            what, _, place = str(error).partition(" - at `$.")
            name = re.split(r"\W", place)[0] or ", ".join(options)
            raise _invalid(f"{name}: {abbreviate(options.get(name))}: {what}") from None

    def merge(self, options: Mapping[str, object]) -> LinkOptions:
        """Return these options with the given ones put over them."""
        over = self.from_mapping(options)  # checks all of them, the unknown ones too
        return replace(self, **{name: getattr(over, name) for name in options})

    def flags(self) -> tuple[str, ...]:
        """Return nvJitLink's flags in canonical order: equal flags mean an equal link."""
        flags = [f"-{name.replace('_', '-')}={int(v)}" for name, v in self._arithmetic().items() if v is not None]
        if self.max_registers is not None:
            flags.append(f"-maxrregcount={self.max_registers}")
        if self.optimization is not None:
            flags.append(f"-O{self.optimization}")
        if self.lineinfo:
            flags.append("-lineinfo")
        if self.split_compile is not None:
            flags.append(f"-split-compile={self.split_compile}")
        return (*flags, *(f"-Xptxas={option}" for option in self.ptxas))

    def compile_flags(self) -> tuple[str, ...]:
        """Return the compiler's flags for the options that a link alone cannot set.

        The compiler decides which functions ``sinf`` and the like call, and the precision of square roots; line numbers
        have to be there before they can be kept; PTX, which is linked without optimisation, is what it made it.
        """
        names = {"ftz": "--ftz", "prec_div": "--prec-div", "prec_sqrt": "--prec-sqrt", "fma": "--fmad"}
        chosen = {names[name]: value for name, value in self._arithmetic().items() if value is not None}
        flags = ["--use_fast_math"] if self.fast_math else []
        flags += [f"{name}={'true' if value else 'false'}" for name, value in chosen.items()]
        return (*flags, "--generate-line-info") if self.lineinfo else tuple(flags)

    def find_ineffective(self, built: LinkOptions, link_mode: str) -> list[str]:
        """Return the names of options that differ from those a family was built with and that no link can change."""
        mine, theirs = self._arithmetic(), built._arithmetic()
        late = {name for name in mine if link_mode != "lto" or (name == "prec_sqrt" and self.prec_sqrt is not None)}
        differing = sorted(name for name in late if _effective(name, mine) != _effective(name, theirs))
        if self.fast_math != built.fast_math and (built.fast_math or link_mode != "lto"):
            differing.append("fast_math")
        others = (["lineinfo"] if self.lineinfo else []) + (_OF_PTXAS if link_mode == "sass" else [])
        if self.tiered and not built.tiered:  # what it needs is not built, and results may differ
            differing.append("tiered")
        return [*differing, *(name for name in others if getattr(self, name) != getattr(built, name))]

    def _arithmetic(self) -> dict[str, bool | None]:
        """Return the four arithmetic switches, with what ``fast_math`` makes of those that are unset."""
        fast = {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": True} if self.fast_math else {}
        given = {"ftz": self.ftz, "prec_div": self.prec_div, "prec_sqrt": self.prec_sqrt, "fma": self.fma}
        return {name: fast.get(name) if value is None else value for name, value in given.items()}


def _invalid(what: str, hint: str | None = None) -> JitltoError:
    return JitltoError(f"invalid link option {what}", code="jitlto-link-option", hint=hint)


def _effective(name: str, arithmetic: Mapping[str, bool | None]) -> bool:
    """Return the value of a switch; for an unset one, the default of NVRTC and nvJitLink."""
    value = arithmetic[name]
    return name != "ftz" if value is None else value


def _option_name(option: str) -> str:
    """Return an option's name without dashes; no compiler sees what follows a NUL."""
    option = option.partition("\0")[0]
    return re.split(r"[=\s]", option.strip().lstrip("-"), maxsplit=1)[0]


def touches_files(option: str) -> bool:
    """Return whether a compile option names a file or directory, or does not begin with a dash."""
    name = _option_name(option).replace("_", "-")
    passed_on = name.startswith("X") and name not in _OF_NVCC and not re.fullmatch(_HARMLESS, option)
    is_path = re.search(r"""["<]\s*/|has_include""", option)  # of a macro, which directives could name, or ask with
    passed_on = passed_on or bool(re.match(_HOST_OPTION, option) and re.search(_HOST_FILES, option))
    return not option.startswith("-") or passed_on or name in _FILES or name.startswith("I") or is_path is not None


def describe_invalid_option(option: str) -> tuple[str, str | None] | None:
    """Describe what is wrong with a compile option that an author declares, and what to do; None if it is valid."""
    if len(option) > _LONGEST_COMPILE_OPTION or not option.isprintable() or not option.startswith("-"):
        what = f"option {abbreviate(option)} does not begin with a dash, cannot be printed, or is too long"
        hint = f"write an option and its value as one string of at most {_LONGEST_COMPILE_OPTION} characters"
        return what, f"{hint}, joined by ="
    name = _option_name(option)
    if place := _DECLARED.get("I" if name.startswith("I") else name):
        return f"option {option!r} has a place of its own", (
            f"declare {place}{' under [link]' if place in LinkOptions.__struct_fields__ else ''}"
        )
    if name in _ALWAYS:
        return f"option {option!r} is not allowed: code is always relocatable LTO-IR", None
    if touches_files(option):
        what = f"option {option!r} reads or writes files, or changes names, which a build must not depend on"
        return what, "give a header's directory under include, and its name relative to it"
    return None


def option_macros(options: Iterable[str]) -> dict[str, str]:
    """Return the macros that compiler options define or undefine, each with its option."""
    found: dict[str, str] = {}
    for option in options:
        if re.match(_HOST_OPTION, option):  # nvcc gives them to the preprocessor of device code, too
            found |= dict.fromkeys(re.findall(_OPTION, option), option)
        elif match := re.match(_OPTION, option):
            found[match[1]] = option
    return found


def macro_values(options: Iterable[str]) -> dict[str, str | None]:
    """Return the values of macros that compiler options define, None for those that they undefine."""
    values: dict[str, str | None] = {}
    for option in options:
        if match := re.fullmatch(_DEFINITION, option):
            parameters, _, value = (match[3] or "=1").partition("=")
            values[match[2]] = None if match[1][0] in "Uu" else f"{parameters}{value}"
    return values
