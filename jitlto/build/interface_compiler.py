"""What compilers are asked of interfaces, beside the sources: texts are compiled to PTX once, and answers are kept."""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import msgspec

from jitlto.base.errors import CompileError
from jitlto.build.cache.cache import Cache, decode
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution import transport
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc_program import program_name
from jitlto.compile.snapshot import LEAST_SHARERS
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

#: What logs call a text.
PROBE_NAME = "interfaces.cu"
_KIND, _REVISION = "interfaces", 7  # of entries in the build cache


class Answer(msgspec.Struct, frozen=True):
    """What a compile said, as kept in the build cache: its log if it failed, else the symbols of its PTX."""

    log: str = ""
    found: tuple[str, ...] = ()


def compile_text(job: CompileJob) -> Answer:
    """Compile a job to PTX for each of its architectures."""
    compiler = transport.find_compiler(job.toolchain)
    try:
        texts = compiler.make(job, [(ImageKind.PTX, each) for each in job.architectures]).images.values()
    except CompileError as error:
        return Answer((error.log or str(error)).replace(program_name(job.source.text), PROBE_NAME))
    return Answer(found=tuple(dict.fromkeys(name for text in texts for name in parse_ptx(text.decode()).declarations)))


class InterfaceCompiler:
    """Has texts compiled, all at the same time and each once.

    Args:
        pool: Where they are compiled.
        cache: Where answers are looked up and kept.
    """

    def __init__(self, pool: Executor, cache: Cache | None) -> None:
        self._pool, self._cache = pool, cache
        self._asked: dict[str, Callable[[], Answer]] = {}

    def ask(self, config: CompileConfig, text: str, headers: Mapping[str, bytes]) -> Callable[[], Answer]:
        """Begin to compile a text, which can reach some headers; return what waits for the answer."""
        source = Source(text.encode(), headers)
        key = config.key(source, f"{_KIND} {_REVISION}")
        if key not in self._asked:
            tool = config.toolchain
            how = config.architectures, config.options, ()
            job = CompileJob(tool.name, tool.identify(()), source, *how, sharers=LEAST_SHARERS)
            self._asked[key] = functools.cache(self._start(key, job))
        return self._asked[key]

    def _start(self, key: str, job: CompileJob) -> Callable[[], Answer]:
        if self._cache is not None and (known := decode(self._cache.find(_KIND, [key]).get(key, (b"",))[0], Answer)):
            return lambda: known
        running = transport.submit(self._pool, job, compile_text)

        def finish() -> Answer:
            answer = transport.result_of(running)
            if self._cache is not None:
                self._cache.put(_KIND, key, msgspec.msgpack.encode(answer))
            return answer

        return finish
