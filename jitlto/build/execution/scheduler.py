"""The scheduler of a build: takes each distinct source from the cache or compiles it, the most expensive first.

Sources are looked up, with their headers, while others are compiled. Jobs are submitted to any
:class:`concurrent.futures.Executor`, never more than keep its workers busy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from queue import Empty, SimpleQueue

from jitlto.base.errors import BuildError, CompileError, JitltoError
from jitlto.build.cache.cache import Cache, Layer, Unit
from jitlto.build.execution.events import Observer, Span
from jitlto.build.execution.request import CompileRequest
from jitlto.build.execution.workers import WorkerDied
from jitlto.build.failures import Failure
from jitlto.compile.compiler import CompiledSource, CompileJob, CompileResult
from jitlto.families.templates import RenderedSource

_POLL = 0.05  # seconds between two looks at stores that are not open yet
_CHUNK = 16  # sources that are looked up between two looks at what workers have done
_ASKED = 256  # that shared stores are asked for at a time
_MOST_DEATHS = 2  # worker deaths until a job fails: the first may be a different job's fault


@dataclass
class Outcome:
    """The results of the requests."""

    requests: list[CompileRequest] = field(default_factory=list)  # of all batches, in order
    sources: dict[int, CompiledSource] = field(default_factory=dict)  # by position of the request
    failures: list[tuple[int, Failure]] = field(default_factory=list)  # with positions of requests, in their order
    compiled: int = 0  # compiles that were run
    #: The requests that were not compiled, by the layer that they came from.
    layers: Counter[Layer] = field(default_factory=Counter)
    seconds_saved: float = 0.0  # that these took to compile


@dataclass(eq=False)
class _Task:
    """One compile, for all requests whose sources and headers are the same."""

    request: CompileRequest  # the first
    sharers: int  # requests with the same head
    positions: list[int]
    deaths: int = 0
    answer: CompiledSource | JitltoError | None = None  # for requests that turn out to be for the same

    @property
    def rank(self) -> tuple[int, int]:
        """The lowest is compiled first: the most expensive."""
        source = self.request.closure
        return -_count_templates(source.text) - sum(map(_count_templates, source.headers.values())), self.positions[0]


@lru_cache(maxsize=4096)  # fragments share their headers
def _count_templates(text: bytes) -> int:
    # Predicts the time of a compile to within half; the size of headers predicts little, since most of them is skipped.
    return text.count(b"template")


@dataclass
class Scheduler:
    """Finds or compiles the sources of one build."""

    submit: Callable[[CompileJob], Future[CompileResult]]
    width: int  # number of jobs to submit at a time, at least 1
    cache: Cache | None  # where compiled sources are looked up and stored
    observer: Observer  # notified of each request once: cached, compiled or failed
    begin: float  # time.perf_counter() at the start of the build
    #: Called with each request and its compiled source; if it raises a BuildError, the request has failed.
    accept: Callable[[RenderedSource, CompiledSource], object] = lambda rendered, compiled: None  # noqa: ARG005
    keep_going: bool = False  # after a failure; otherwise nothing more is compiled, and nothing awaited
    _outcome: Outcome = field(default_factory=Outcome, init=False)
    _tasks: dict[str, _Task] = field(default_factory=dict, init=False)  # by key, those that are done too
    _waiting: list[tuple[tuple[int, int], str]] = field(default_factory=list, init=False)  # a heap of ranks and keys
    _unasked: list[str] = field(default_factory=list, init=False)  # keys to ask stores for when they are open
    _running: dict[Future[CompileResult], str] = field(default_factory=dict, init=False)
    _done: SimpleQueue[Future[CompileResult]] = field(default_factory=SimpleQueue, init=False)  # of those that run

    def run(self, batches: Iterable[Sequence[CompileRequest]]) -> Outcome:
        """Find or compile all requests.

        Args:
            batches: Requests; the next batch is asked for when all sources of the last are submitted or wait.

        Raises:
            ToolchainError: If a worker cannot compile for this client.
        """
        chunks, more = self._chunks(batches), True
        try:
            while (more or self._waiting or self._running) and not self._stopped:
                self._ask_again()
                while self._waiting and len(self._running) < self.width:
                    key = heappop(self._waiting)[1]
                    if (task := self._tasks[key]).answer is None:
                        self._running[future := self.submit(task.request.job(task.sharers))] = key
                        future.add_done_callback(self._done.put)
                done: list[Future[CompileResult]] = []
                if more:
                    more = self._look_up(next(chunks, ()))
                elif self._running:
                    with suppress(Empty):
                        done.append(self._done.get(timeout=_POLL if self._unasked else None))
                done += [self._done.get() for _ in range(self._done.qsize())]
                for future in sorted(done, key=lambda each: self._tasks[self._running[each]].positions):
                    self._finish(self._running.pop(future), future)
        finally:
            for future in self._running:
                future.cancel()
        self._outcome.failures.sort(key=lambda item: item[0])
        return self._outcome

    @property
    def _stopped(self) -> bool:
        return bool(self._outcome.failures) and not self.keep_going

    def _chunks(self, batches: Iterable[Sequence[CompileRequest]]) -> Iterator[list[tuple[int, int]]]:
        """Yield positions of requests, each with the number of those that have the same head.

        The first of each head come first, which workers then read at the same time, side by side.
        """
        size = _ASKED if self.cache is not None and self.cache.stores is not None else _CHUNK
        for batch in batches:
            begin = len(self._outcome.requests)
            self._outcome.requests += batch
            heads = [request.head for request in batch]
            sharers, first = Counter(heads), dict(zip(reversed(heads), reversed(range(len(heads))), strict=True))
            order = sorted(range(len(batch)), key=lambda number: first[heads[number]] != number)
            for start in range(0, len(order), size):
                yield [(begin + number, sharers[heads[number]]) for number in order[start : start + size]]

    def _look_up(self, chunk: Sequence[tuple[int, int]]) -> bool:
        """Find requests in the cache, or make tasks of them; return whether there were any."""
        new: list[str] = []
        for position, sharers in chunk:
            request = self._outcome.requests[position]
            try:
                key = request.cache_key
            except JitltoError as error:
                if not self.keep_going:
                    raise
                self._report([position], error)
                continue
            if (task := self._tasks.get(key)) is None:
                self._tasks[key] = _Task(request, sharers, [position])
                new.append(key)
            elif task.answer is None:
                task.positions.append(position)
            else:
                self._answer(task, [position])
        self._take(new)
        missing = [key for key in new if self._tasks[key].answer is None]
        for key in missing:
            heappush(self._waiting, (self._tasks[key].rank, key))
        if self.cache is not None and self.cache.is_opening:
            self._unasked += missing
        return bool(chunk)

    def _ask_again(self) -> None:
        """Take from shared stores what still waits and they had not answered before they were open."""
        if self._unasked and self.cache is not None and not self.cache.is_opening:
            waiting = {key for _, key in self._waiting}
            unasked, self._unasked = self._unasked, []
            self._take([key for key in unasked if key in waiting])

    def _take(self, keys: Sequence[str]) -> None:
        """Answer those tasks that the cache has."""
        if self.cache is None:
            return
        found = self.cache.find_units({key: self._tasks[key].request.config for key in keys})
        for key in keys:
            if key in found:
                unit, layer = found[key]
                task = self._tasks[key]
                task.answer = unit.compiled
                self._outcome.seconds_saved += unit.seconds
                self._answer(task, task.positions, layer)

    def _finish(self, key: str, future: Future[CompileResult]) -> None:
        task = self._tasks[key]
        try:
            result = future.result()
        except (CompileError, WorkerDied) as error:
            task.deaths += isinstance(error, WorkerDied)
            if isinstance(error, WorkerDied) and task.deaths < _MOST_DEATHS:
                heappush(self._waiting, (task.rank, key))
            else:
                task.answer = error
                self._answer(task, task.positions)
            return
        task.answer = compiled = task.request.name_parameters(result.compiled)
        self._outcome.compiled += 1
        if self.cache is not None:
            headers = task.request.config.found_headers(task.request.closure, compiled.reads)
            self.cache.put_unit(key, Unit(compiled, headers, result.seconds))
        first, *rest = task.positions
        if self._accept(first, compiled):
            start = time.perf_counter() - self.begin - result.seconds
            self.observer.compiled(Span(task.request.key, result.worker, start, result.seconds))
        self._answer(task, rest)

    def _answer(self, task: _Task, positions: Sequence[int], layer: Layer = Layer.MEMORY) -> None:
        """Give requests the answer of a task, which came from a layer."""
        if isinstance(task.answer, JitltoError):
            self._report(positions, task.answer)
            return
        for position in positions:
            if task.answer is not None and self._accept(position, task.answer):
                self._outcome.layers[layer] += 1
                layer = Layer.MEMORY
                self.observer.cached(self._outcome.requests[position].key)

    def _accept(self, position: int, compiled: CompiledSource) -> bool:
        request = self._outcome.requests[position]
        try:
            self.accept(request.rendered, compiled)
        except BuildError as error:
            self._report([position], error)
            return False
        self._outcome.sources[position] = compiled
        return True

    def _report(self, positions: Sequence[int], error: JitltoError) -> None:
        for position in positions:
            request = self._outcome.requests[position]
            described = request.describe(error)
            self._outcome.failures.append((position, Failure(request.rendered, described)))
            self.observer.failed(request.key, described)
