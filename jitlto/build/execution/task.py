"""What the scheduler keeps of a source that is not in the user's cache, and of a compile."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from jitlto.base.errors import JitltoError
from jitlto.base.lock import Claim
from jitlto.build.cache import keys
from jitlto.build.execution.request import CompileRequest
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.record.headers import Source


@dataclass(frozen=True, slots=True)
class Missing:
    """A source that the cache does not have, for all requests for it."""

    source_key: str
    request: CompileRequest
    positions: list[int]
    sharers: int  # sources with the same head
    seconds: float | None  # that its last compile took


@dataclass
class Task:
    """One compile, for all requests whose sources and headers are the same."""

    source_key: str
    request: CompileRequest
    positions: list[int]
    source: Source
    cost: int
    sharers: int = 1
    extra: tuple[str, ...] = ()
    claim: Claim | None = None
    waiting_since: float | None = None
    deaths: int = 0
    answer: CompiledSource | JitltoError | None = None  # for requests that turn out to be for the same
    head: Hashable = field(init=False)
    place: str = field(init=False)  # in shared stores: the key before further headers are known

    def __post_init__(self) -> None:
        self.head = self.request.head
        self.place = self.key

    @property
    def key(self) -> str:
        """The key of the compiler's whole input, so that only one build compiles it at a time."""
        return keys.entry_key(self.source_key, self.source.sha256)

    @property
    def rank(self) -> tuple[int, list[int]]:
        """The highest is compiled first."""
        return self.cost, self.positions

    def job(self) -> CompileJob:
        return self.request.job(self.source, self.sharers)

    def release(self) -> None:
        if self.claim is not None:
            self.claim.release()
            self.claim = None
