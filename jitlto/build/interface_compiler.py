"""What compilers are asked of interfaces, beside the sources: each question is compiled once, and answers are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import msgspec

from jitlto.base.errors import CompileError
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution import transport
from jitlto.compile.compiler import TEXT, CompiledSource, CompileJob
from jitlto.compile.nvrtc_program import program_name
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

#: What logs call the text of a question.
PROBE_NAME = "interfaces.cu"
_KIND, _REVISION = "interfaces", 3  # of entries in the build cache
_SYNTAX_ONLY = {"nvrtc": ("--fdevice-syntax-only",)}
_NUMBER = re.compile(r"-?\d+")


class Answer(msgspec.Struct, frozen=True):
    """What a compile said, as kept in the build cache: its log if it failed, else what was found in its PTX."""

    log: str = ""
    found: dict[str, str] = {}


@dataclass(frozen=True)
class Question:
    """A text, how it is compiled, and what is asked of it.

    Args:
        config: How.
        text: The text.
        ask: Takes the job and gives the answer, in a worker: one of the functions of this module.
        headers: Those that the text can reach.
    """

    config: CompileConfig
    text: str
    ask: Callable[[CompileJob], Answer]
    headers: Mapping[str, bytes] = field(compare=False)

    @property
    def source(self) -> Source:
        """The text and the headers."""
        return Source(self.text.encode(), self.headers)

    @property
    def key(self) -> str:
        """The key of its answer in the build cache."""
        return self.config.key(self.source, f"{_REVISION} {self.ask.__name__}")

    def job(self) -> CompileJob:
        """What a worker compiles."""
        images = (ImageKind.LTOIR if self.ask is ask_syntax else ImageKind.PTX,)
        tool, how = self.config.toolchain, self.config
        return CompileJob(tool.name, tool.identify(images), self.source, how.architectures, how.options, images)


def ask_syntax(job: CompileJob) -> Answer:
    """Ask whether a job compiles for each of its architectures."""
    compiler = transport.find_compiler(job.toolchain)
    syntax = replace(job, options=(*job.options, *_SYNTAX_ONLY.get(job.toolchain, ())))
    try:
        for architecture in job.architectures:
            compiler.compile_ltoir(syntax, architecture)
    except CompileError as error:
        return Answer(error.log or str(error))
    return Answer()


def ask_symbols(job: CompileJob) -> Answer:
    """Ask for the symbols that a job's PTX has for any of its architectures."""
    return _ask(job, lambda compiled: {symbol.name: "" for symbol in (*compiled.provides, *compiled.requires)})


def ask_texts(job: CompileJob) -> Answer:
    """Ask for the texts of a job's variables called ``jitlto_text_...``, by the rest of their names."""
    return _ask(job, _texts)


def _ask(job: CompileJob, read: Callable[[CompiledSource], dict[str, str]]) -> Answer:
    compiler = transport.find_compiler(job.toolchain)
    found: dict[str, str] = {}
    try:
        for architecture in job.architectures:
            found |= read(compiler.compile(replace(job, architectures=(architecture,))))
    except CompileError as error:
        return Answer(error.log or str(error))
    return Answer(found=dict(sorted(found.items())))


def _texts(compiled: CompiledSource) -> dict[str, str]:
    found = {}
    for name, initialiser in compiled.texts:
        text = bytes(int(each) & 255 for each in _NUMBER.findall(initialiser))
        found[name.removeprefix(TEXT)] = text.rstrip(b"\0").decode("utf-8", "replace")
    return found


class InterfaceCompiler:
    """Has questions compiled, all at the same time and each once.

    Args:
        submit: Runs a function with a job in a worker.
        cache: Where answers are looked up and kept.
    """

    def __init__(self, submit: Callable[..., Future[Answer]], cache: Cache | None) -> None:
        self._submit, self._cache = submit, cache
        self._running: dict[Question, tuple[str, Answer | Future[Answer]]] = {}

    def start(self, questions: Iterable[Question]) -> None:
        """Compile what the cache does not know."""
        keys = {question: question.key for question in questions if question not in self._running}
        found = self._cache.find(_KIND, keys.values()) if self._cache else {}
        for question, key in keys.items():
            known = _decode(found[key][0]) if key in found else None
            self._running[question] = key, self._submit(question.job(), run=question.ask) if known is None else known

    def answer(self, question: Question) -> Answer:
        """Return the answer, with a log if the text does not compile."""
        self.start([question])
        key, answer = self._running[question]
        if isinstance(answer, Answer):
            return answer
        made = answer.result()
        made = Answer(made.log.replace(program_name(question.source), PROBE_NAME), made.found)
        if self._cache is not None:
            self._cache.put(_KIND, key, msgspec.json.encode(made))
        return made


def _decode(data: bytes) -> Answer | None:
    try:
        return msgspec.json.decode(data, type=Answer)
    except (msgspec.MsgspecError, ValueError):
        return None
