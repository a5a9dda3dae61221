"""The scheduler of a build: takes each distinct source from the cache or compiles it, the most expensive first.

Sources are looked up, with their headers, while others are compiled. Jobs are submitted to any
:class:`concurrent.futures.Executor`, never more than keep its workers busy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
from jitlto.compile.compiler import CompiledSource, CompileJob, CompileResult
from jitlto.families.templates import RenderedSource

_POLL = 0.05  # seconds between two looks at stores that are not open yet
_CHUNK = 16  # sources that are looked up between two looks at what workers have done
_ASKED = 256  # that shared stores are asked for at a time
_MOST_DEATHS = 2  # worker deaths until a job fails: the first may be a different job's fault


@dataclass
class Outcome:
    """The results of the requests."""

    requests: list[CompileRequest] = field(default_factory=list)  # of all batches
    sources: dict[CompileRequest, CompiledSource] = field(default_factory=dict)
    failures: list[tuple[CompileRequest, JitltoError]] = field(default_factory=list)  # in the order of the requests
    compiled: int = 0  # compiles that were run
    #: The requests that were not compiled, by the layer that they came from.
    layers: Counter[Layer] = field(default_factory=Counter)
    seconds_saved: float = 0.0  # that these took to compile


@dataclass(eq=False)
class _Task:
    """One compile, for all requests whose sources and headers are the same."""

    key: str  # in the cache
    rank: tuple[int, int]  # the lowest is compiled first
    requests: list[CompileRequest]
    deaths: int = 0
    answer: CompiledSource | JitltoError | None = None  # for requests that turn out to be for the same

    def __lt__(self, other: _Task) -> bool:
        return self.rank < other.rank


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
    _sharers: Counter[Hashable] = field(default_factory=Counter, init=False)  # requests by their head
    _tasks: dict[str, _Task] = field(default_factory=dict, init=False)  # by key, those that are done too
    _waiting: list[_Task] = field(default_factory=list, init=False)  # a heap
    _running: dict[Future[CompileResult], _Task] = field(default_factory=dict, init=False)
    _done: SimpleQueue[Future[CompileResult]] = field(default_factory=SimpleQueue, init=False)  # of those that run
    _asks_again: bool = field(default=False, init=False)  # when shared stores have opened

    def run(self, batches: Iterable[Sequence[CompileRequest]]) -> Outcome:
        """Find or compile all requests.

        Args:
            batches: Requests; the next batch is asked for when all sources of the last are submitted or wait.

        Raises:
            ToolchainError: If a worker cannot compile for this client.
        """
        chunks, outcome = self._chunks(batches), self._outcome
        try:
            while self.keep_going or not outcome.failures:
                for task in self._next_tasks():
                    request = task.requests[0]
                    future = self.submit(request.job(self._sharers[request.head]))
                    self._running[future] = task
                    future.add_done_callback(self._done.put)
                if (chunk := next(chunks, None)) is not None:
                    self._look_up(chunk)
                elif not (self._waiting or self._running):
                    break
                for future in self._ended(wait=chunk is None):
                    self._finish(self._running.pop(future), future)
        finally:
            for future in self._running:
                future.cancel()
        order = {request: number for number, request in enumerate(outcome.requests)}
        outcome.failures.sort(key=lambda failure: order[failure[0]])
        return outcome

    def _chunks(self, batches: Iterable[Sequence[CompileRequest]]) -> Iterator[Sequence[CompileRequest]]:
        """Yield some requests at a time: the first of each head first, which workers then read side by side."""
        size = _ASKED if self.cache is not None and self.cache.stores is not None else _CHUNK
        for batch in batches:
            self._outcome.requests += batch
            self._sharers.update(request.head for request in batch)
            first = {request.head: request for request in reversed(batch)}
            order = sorted(batch, key=lambda request: first[request.head] is not request)
            yield from (order[start : start + size] for start in range(0, len(order), size))

    def _look_up(self, chunk: Sequence[CompileRequest]) -> None:
        """Find requests in the cache, or make tasks of them."""
        new: list[_Task] = []
        for request in chunk:
            try:
                key, source = request.cache_key, request.closure
            except JitltoError as error:
                self._fail([request], error)
                continue
            if (task := self._tasks.get(key)) is None:
                cost = _count_templates(source.text) + sum(map(_count_templates, source.headers.values()))
                self._tasks[key] = task = _Task(key, (-cost, len(self._tasks)), [request])
                new.append(task)
            elif task.answer is None:
                task.requests.append(request)
            else:
                self._answer(task, [request])
        self._take(new)
        for task in new:
            if task.answer is None:
                heappush(self._waiting, task)
        self._asks_again = self._asks_again or (self.cache is not None and self.cache.is_opening)

    def _take(self, tasks: Sequence[_Task]) -> None:
        """Answer those tasks that the cache has."""
        if self.cache is None:
            return
        found = self.cache.find_units({task.key: task.requests[0].config for task in tasks})
        for task in tasks:
            if task.key in found:
                unit, layer = found[task.key]
                task.answer = unit.compiled
                self._outcome.seconds_saved += unit.seconds
                self._answer(task, task.requests, layer)

    def _next_tasks(self) -> Iterator[_Task]:
        """Yield what is to be submitted, after another look at shared stores once they have opened."""
        if self._asks_again and self.cache is not None and not self.cache.is_opening:
            self._asks_again = False
            self._take(self._waiting)
        while self._waiting and len(self._running) < self.width:
            task = heappop(self._waiting)
            if task.answer is None:
                yield task

    def _ended(self, *, wait: bool) -> list[Future[CompileResult]]:
        """Return the jobs that have ended, in the order of their requests."""
        ended: list[Future[CompileResult]] = []
        if wait and self._running:
            with suppress(Empty):
                ended.append(self._done.get(timeout=_POLL if self._asks_again else None))
        ended += [self._done.get() for _ in range(self._done.qsize())]
        return sorted(ended, key=lambda each: self._running[each].rank[1])

    def _finish(self, task: _Task, future: Future[CompileResult]) -> None:
        try:
            result = future.result()
        except (CompileError, WorkerDied) as error:
            task.deaths += isinstance(error, WorkerDied)
            if isinstance(error, WorkerDied) and task.deaths < _MOST_DEATHS:
                heappush(self._waiting, task)
            else:
                task.answer = error
                self._answer(task, task.requests)
            return
        request, *others = task.requests
        task.answer = compiled = request.name_parameters(result.compiled)
        self._outcome.compiled += 1
        if self.cache is not None:
            headers = request.config.found_headers(request.closure, compiled.reads)
            self.cache.put_unit(task.key, Unit(compiled, headers, result.seconds))
        if self._accept(request, compiled):
            start = time.perf_counter() - self.begin - result.seconds
            self.observer.compiled(Span(request.key, result.worker, start, result.seconds))
        self._answer(task, others)

    def _answer(self, task: _Task, requests: Sequence[CompileRequest], layer: Layer = Layer.MEMORY) -> None:
        """Give requests the answer of a task, which came from a layer."""
        if isinstance(task.answer, JitltoError):
            self._fail(requests, task.answer)
            return
        for request in requests:
            if task.answer is not None and self._accept(request, task.answer):
                self._outcome.layers[layer] += 1
                layer = Layer.MEMORY
                self.observer.cached(request.key)

    def _accept(self, request: CompileRequest, compiled: CompiledSource) -> bool:
        try:
            self.accept(request.rendered, compiled)
        except BuildError as error:
            self._fail([request], error)
            return False
        self._outcome.sources[request] = compiled
        return True

    def _fail(self, requests: Sequence[CompileRequest], error: JitltoError) -> None:
        for request in requests:
            described = request.describe(error)
            self._outcome.failures.append((request, described))
            self.observer.failed(request.key, described)
