"""What compilers are asked of interfaces, beside the sources: texts are compiled to PTX once, and answers are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec

from jitlto.base.errors import CompileError
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution import transport
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc_program import program_name
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.headers import Source

#: What logs call the text of a question.
PROBE_NAME = "interfaces.cu"
#: The beginning of the names of variables whose texts are wanted.
TEXT = "jitlto_text_"
_KIND, _REVISION = "interfaces", 4  # of entries in the build cache
_NUMBER = re.compile(r"-?\d+")


class Answer(msgspec.Struct, frozen=True):
    """What a compile said, as kept in the build cache: its log if it failed, else the symbols of its PTX.

    Each symbol has the text of a variable that begins with ``TEXT``, or an empty one.
    """

    log: str = ""
    found: dict[str, str] = {}


@dataclass(frozen=True)
class Question:
    """A text, how it is compiled, and the headers that it can reach."""

    config: CompileConfig
    text: str
    headers: Mapping[str, bytes] = field(compare=False)

    @property
    def source(self) -> Source:
        """The text and the headers."""
        return Source(self.text.encode(), self.headers)

    @property
    def key(self) -> str:
        """The key of its answer in the build cache."""
        return self.config.key(self.source, f"{_KIND} {_REVISION}")

    def job(self) -> CompileJob:
        """What a worker compiles."""
        tool, how = self.config.toolchain, self.config
        return CompileJob(tool.name, tool.identify(()), self.source, how.architectures, how.options, ())


def ask(job: CompileJob) -> Answer:
    """Compile a job to PTX for each of its architectures."""
    compiler = transport.find_compiler(job.toolchain)
    found: dict[str, str] = {}
    try:
        for text in compiler.make(job, job.architectures, ptx=True).ptx.values():
            for name, each in parse_ptx(text.decode()).declarations.items():
                found[name] = _decode_text(each.text) if name.startswith(TEXT) else ""
    except CompileError as error:
        return Answer(error.log or str(error))
    return Answer(found=found)


def _decode_text(initialiser: str) -> str:
    text = bytes(int(each) & 255 for each in _NUMBER.findall(initialiser))
    return text.rstrip(b"\0").decode("utf-8", "replace")


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
            self._running[question] = key, self._submit(question.job(), run=ask) if known is None else known

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
