"""One meaning in all ways in which an interface is compiled: options, architectures, standards, compilers.

Where they differ, each compiler is asked what the macros are on which the interfaces depend, before and behind them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.compilers.base import CompileJob
from jitlto.build.execution import transport
from jitlto.build.execution.request import CompileRequest
from jitlto.build.interface_proof import Answer, InterfaceCompiler
from jitlto.errors import BuildError, CompileError
from jitlto.model.declarations import Conflict, line_of
from jitlto.model.fragment import ImageKind
from jitlto.model.headers import interfaces_first
from jitlto.model.meaning import Question, questions
from jitlto.model.versions import Architecture
from jitlto.storage.declaration import FamilyDeclaration

_HOLDS = {"defined": "defined", "has": "true"}
_CALLERS = "callers' code"
_PLACES = ("before", "behind")
_DATA = re.compile(r"\bjitlto_(\w+)_(\d+)\[\d+\](?: = \{([^}]*)\})?;")
_FAULT = re.compile(r"^interfaces\.cu\((\d+)\): [\w ]*error", re.M)
_NAME = re.compile(r"jitlto_[a-z]+_(\d+)\[")
_HEAD = "#define jitlto_text(...) #__VA_ARGS__\n#define jitlto_meaning(...) jitlto_text(__VA_ARGS__)\n"
# Not to be asked for, or other ones at each place.
_NO_MACROS = re.compile(
    r"defined|__VA_\w+|__has_\w+|__(?:LINE|FILE|BASE_FILE|FILE_NAME|COUNTER|DATE|TIME|TIMESTAMP|INCLUDE_LEVEL)__"
    r"|_Pragma|__pragma|and|and_eq|bitand|bitor|compl|not|not_eq|or|or_eq|xor|xor_eq"
)
# Macros of the toolkit with parameters, which are no text without a call; and those for all architectures of a compile.
_OF_ARCHITECTURE = re.compile(
    r"NV_\w+|_CCCL_PTX_ARCH|CUB_PTX_ARCH|__CUDA_(?:ARCH_)?HAS_\w+|__CUDA_(?:MINIMUM_ARCH__|ARCH_LIST__)"
)
_OF_COMPILER = re.compile(r"_CCCL_\w*COMPILER\w*")
# In declarations NVRTC and nvcc spell other words differently that mean the same to both, such as __align__.
_SPELLED = re.compile(r"(?!__[A-Z]|__cplusplus\b)\w+")


class _Side(NamedTuple):
    """Whose sources are compiled in one way."""

    family: str
    who: str


@dataclass(frozen=True, eq=False)
class _Way:
    """How one side is compiled for one architecture."""

    who: str
    config: CompileConfig
    architecture: Architecture

    @property
    def compiler(self) -> str:
        return self.config.toolchain.name

    def __str__(self) -> str:
        return f"{self.who} ({' '.join([self.compiler, *self.config.options])} for {self.architecture})"


def expand(job: CompileJob) -> Answer:
    """Compile a job in this process; find the texts of its variables."""
    try:
        compiled = transport.find_compiler(job.toolchain).compile(job)
    except CompileError as error:
        return Answer(error.log or str(error))
    ptx = next(data for kind, _, data in compiled.images if kind is ImageKind.PTX).decode()
    found: dict[str, str] = {}
    for match in _DATA.finditer(ptx):
        text = bytes(int(each) & 255 for each in (match[3] or "0").split(","))
        found[f"{match[1]} {match[2]}"] = text.rstrip(b"\0").decode("utf-8", "replace")
    return Answer(found=found)


def check_ways(
    families: Sequence[FamilyDeclaration],
    requests: Iterable[CompileRequest],
    callers: Callable[[FamilyDeclaration], CompileConfig | None],
    submit: Callable[..., Future[Answer]],
    cache: Cache | None,
) -> dict[str, str]:
    """Check that interfaces mean the same in all ways in which the fragments that share them are compiled.

    Args:
        families: All of a build.
        requests: Those of all fragments.
        callers: Gives how callers' sources are compiled for a family; None if that cannot be told here.
        submit: Runs a function with a job in a worker.
        cache: Where answers are looked up and kept.

    Returns:
        What means something else in callers' sources, for each family of which something does.

    Raises:
        BuildError: Something does not mean the same in all fragments; or in callers' sources, where callers supply a
            group.
    """
    configs: dict[str, dict[CompileConfig, _Side]] = defaultdict(dict)
    for request in requests:
        name, group = request.key.family, request.key.group
        configs[name].setdefault(request.config, _Side(name, f"{name}/{group}"))
    compiler = InterfaceCompiler(submit, cache, expand)
    found: dict[str, str] = {}
    for family in families:
        own = configs[family.name]
        if not own or not family.interfaces:
            continue
        users = [each for each in families if family.name in each.all_used()]
        sides = own | {config: who for each in users for config, who in configs[each.name].items()}
        if difference := _compare(compiler, family, sides):
            raise _error(family, difference)
        theirs = callers(family)
        both = own if theirs is None else own | {theirs: _Side(family.name, _CALLERS)}
        if difference := _compare(compiler, family, both):
            if any(group.template is None for each in (family, *family.all_used().values()) for group in each.groups):
                raise _error(family, difference)
            found[family.name] = difference
    return found


def _error(family: FamilyDeclaration, difference: str) -> BuildError:
    hint = "give all groups the same, under [family]; or ask for it in the bodies of functions alone"
    return BuildError(difference, code="build-interface-architecture", where=str(family.path), hint=hint)


def _compare(compiler: InterfaceCompiler, family: FamilyDeclaration, sides: Mapping[CompileConfig, _Side]) -> str:
    """Return what the interfaces of a family depend on that is not the same for all sides; empty if all is."""
    several = any(config.candidates for config in sides) or len({_architectures(config) for config in sides}) > 1
    # Each family looks for headers in its own directories.
    unlike: dict[tuple[object, str], CompileConfig] = {}
    for config, side in sides.items():
        unlike.setdefault((_settings(config), side.family), config)
    if len(unlike) == 1 and not several:
        return ""
    headers = next(iter(sides)).own_closure(interfaces_first(family.interfaces)).headers
    asked = questions(headers)
    if len({config.toolchain.name for config in sides}) > 1:
        asked = {question: header for question, header in asked.items() if not _is_spelling(question)}
    if not any(question.kind == "has" for question in asked):
        unlike = {(how, ""): config for (how, _), config in reversed(unlike.items())}
        if len(unlike) == 1 and not several:
            return ""
    groups: dict[Architecture | None, list[_Way]] = defaultdict(list)
    for config in sorted(unlike.values(), key=[*sides].index):
        for each in _architectures(config):
            alone = replace(config, architectures=(each,), images=(ImageKind.PTX,), candidates=())
            groups[None if several else each].append(_Way(sides[config].who, alone, each))
    words = [*dict.fromkeys(q.word for q in asked if q.kind == "has" or not _NO_MACROS.fullmatch(q.word))]
    text = _ask(family, words)
    compiler.start((way.config, text, 1) for group in groups.values() for way in group)
    for group in groups.values():
        answers = {way: answer for way in group if (answer := _answer(compiler, family, way, words)) is not None}
        for question, header in asked.items():
            values = [(way, _value(question, way, answer)) for way, answer in answers.items()]
            unequal = [(one, other) for one, other in combinations(values, 2) if one[1] != other[1]]
            if unequal:
                pair = next((two for two in unequal if two[0][0].who != two[1][0].who), unequal[0])
                line = line_of(headers[header], Conflict("mention", question.word, header))
                what = f"{header}:{line} depends on {question.word}, which is not the same on both sides"
                return f"{what}: {'; '.join(f'{value} in {way}' for way, value in pair)}"
    return ""


def _architectures(config: CompileConfig) -> tuple[Architecture, ...]:
    return tuple(sorted({*config.architectures, *config.candidates}))


def _settings(config: CompileConfig) -> tuple[str, tuple[str, ...], tuple[Architecture, ...]]:
    return config.toolchain.name, config.options, _architectures(config)


def _ask(family: FamilyDeclaration, words: Sequence[str]) -> str:
    """Return a source with a variable for each macro that is defined, before and behind the interfaces."""
    before, behind = ("".join(_variable(n, word, place) for n, word in enumerate(words)) for place in _PLACES)
    includes = "".join(f'#include "{interface}"\n' for interface in family.interfaces)
    return f"{_HEAD}{before}{includes}{behind}"


def _variable(number: int, word: str, place: str) -> str:
    condition, value = (f"#if {word}", "") if word.endswith(")") else (f"#ifdef {word}", f" jitlto_meaning({word})")
    return f'{condition}\nextern "C" __device__ char jitlto_{place}_{number}[] = "="{value};\n#endif\n'


def _answer(
    compiler: InterfaceCompiler, family: FamilyDeclaration, way: _Way, words: Sequence[str]
) -> Mapping[str, str] | None:
    """Return texts by place and word; None if callers' sources do not compile behind the interfaces."""
    left = list(words)
    while True:
        answer = compiler.answer(way.config, text := _ask(family, left))
        if not answer.log:
            return {
                f"{place} {left[int(n)]}": each for key, each in answer.found.items() for place, n in (key.split(),)
            }
        lines = text.split("\n")
        near = (" ".join(lines[int(match[1]) - 1 :][:2]) for match in _FAULT.finditer(answer.log))
        faulty = {left[int(name[1])] for each in near if (name := _NAME.search(each))}
        if not faulty and way.who == _CALLERS:
            return None
        if not faulty:
            what = f"the interfaces of {family.name} do not compile for {way}: {answer.log.partition(chr(10))[0]}"
            raise BuildError(what, code="build-interface-alone", where=str(family.path))
        left = [word for word in left if word not in faulty]


def _value(question: Question, way: _Way, answer: Mapping[str, str]) -> str:
    """Return what a question gives in one way."""
    if question.kind == "value" and _OF_ARCHITECTURE.fullmatch(question.word):
        return f"that of {way.architecture}"
    if question.kind == "value" and _OF_COMPILER.fullmatch(question.word):
        return f"that of {way.compiler}"
    texts = [answer.get(f"{place} {question.word}") for place in _PLACES]
    if question.kind != "value":
        texts = [text and f"={_HOLDS[question.kind]}" for text in texts]
    missing = "false" if question.kind == "has" else "not defined"
    return ", then ".join(dict.fromkeys(missing if text is None else text[1:] or "empty" for text in texts))


def _is_spelling(question: Question) -> bool:
    return question.kind == "value" and not question.is_condition and bool(_SPELLED.fullmatch(question.word))
