"""The scheduler of a build: takes each distinct source from the cache or compiles it.

Jobs are submitted to any :class:`concurrent.futures.Executor`; while they run, the next family is looked up.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field

from jitlto.base.errors import CompileError, JitltoError
from jitlto.build.assemble import assemble
from jitlto.build.cache.cache import COMPILED, Cache, Layer, Unit, encode_unit
from jitlto.build.execution import transport
from jitlto.build.execution.events import Observer, Span
from jitlto.build.execution.request import CompileRequest
from jitlto.build.execution.workers import WorkerDied
from jitlto.build.interface_proof import InterfaceCompiler, read_interfaces
from jitlto.compile.compiler import CompiledSource, CompileResult
from jitlto.compile.snapshot import LEAST_SHARERS
from jitlto.record.fragment import Fragment


@dataclass(eq=False)
class _Task:
    """One compile, for all requests whose sources and headers are the same."""

    key: str  # in the cache
    requests: list[CompileRequest]
    answer: CompiledSource | JitltoError | None = None  # for requests that turn out to be for the same


@dataclass
class Scheduler:
    """Finds or compiles the sources of one build, and makes their fragments."""

    pool: Executor  # where sources are compiled
    interfaces: InterfaceCompiler
    cache: Cache | None  # where compiled sources are looked up and stored
    observer: Observer  # notified of each request once: cached, compiled or failed
    begin: float  # time.perf_counter() at the start of the build
    keep_going: bool = False  # after a failure; otherwise nothing more is compiled, or awaited
    fragments: list[Fragment] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)  # their images by hash
    sources: dict[CompileRequest, CompiledSource] = field(default_factory=dict)
    failures: list[tuple[CompileRequest, JitltoError]] = field(default_factory=list)
    compiled: int = 0  # compiles that were run
    #: The requests that were not compiled, by the layer that they came from.
    layers: Counter[str] = field(default_factory=Counter)
    _tasks: dict[str, _Task] = field(default_factory=dict, init=False)  # by key, those that are done too
    _running: dict[Future[CompileResult], _Task] = field(default_factory=dict, init=False)

    def run(self, batches: Iterable[Sequence[CompileRequest]]) -> None:
        """Find or compile all requests, or those up to the first failure.

        Args:
            batches: Requests; the next batch is asked for when all sources of the last are submitted.

        Raises:
            ToolchainError: If a worker cannot compile for this client.
        """
        try:
            for batch in batches:
                missing = self._look_up(batch)
                sharers = Counter(task.requests[0].head for task in missing)
                shared = (config for (config, _), count in sharers.items() if count >= LEAST_SHARERS)
                for config in dict.fromkeys(shared):
                    read_interfaces(self.interfaces, config)  # which would be waited for when the fragments are done
                for task in missing:
                    job = task.requests[0].job(sharers[task.requests[0].head])
                    self._running[transport.submit(self.pool, job, transport.compile_job)] = task
                self._finish_all(future for future in list(self._running) if future.done())
                if self._is_over:
                    return
            self._finish_all(as_completed(list(self._running)))
        finally:
            for future in self._running:
                future.cancel()

    @property
    def _is_over(self) -> bool:
        return bool(self.failures) and not self.keep_going

    def _finish_all(self, futures: Iterable[Future[CompileResult]]) -> None:
        for future in futures:
            self._finish(future, self._running.pop(future))
            if self._is_over:
                return

    def _look_up(self, batch: Sequence[CompileRequest]) -> list[_Task]:
        """Find requests in the cache; return the tasks of the others, in order."""
        new: list[_Task] = []
        for request in batch:
            try:
                key = request.cache_key
            except JitltoError as error:
                self._deliver(_Task("", [request]), error)
                continue
            if key not in self._tasks:
                self._tasks[key] = _Task(key, [])
                new.append(self._tasks[key])
            task = self._tasks[key]
            if task.answer is not None:
                self._deliver(_Task(key, [request]), task.answer)
            else:
                task.requests.append(request)
        wanted = {task.key: task.requests[0].config for task in new}
        for key, (unit, layer) in self.cache.find_units(wanted).items() if self.cache else ():
            self._deliver(self._tasks[key], unit.compiled, layer)
        missing = [task for task in new if task.answer is None and self._holds(task)]
        # The first of each head first: workers then read these side by side, for all that follow.
        first = {task.requests[0].head: task for task in reversed(missing)}
        return sorted(missing, key=lambda task: first[task.requests[0].head] is not task)

    def _holds(self, task: _Task) -> bool:
        """Check the source of a task; what the cache has was checked when it was compiled."""
        request = task.requests[0]
        try:
            request.check(request.rendered)
        except JitltoError as error:
            self._deliver(task, error)
        return task.answer is None

    def _finish(self, future: Future[CompileResult], task: _Task) -> None:
        try:
            result = transport.result_of(future)
        except (CompileError, WorkerDied) as error:
            self._deliver(task, error)
            return
        request = task.requests[0]
        compiled = request.name_parameters(result.compiled)
        self.compiled += 1
        if self.cache is not None:
            headers = request.config.found_headers(request.closure, compiled.reads)
            self.cache.put(COMPILED, task.key, encode_unit(Unit(compiled, headers)))
        self._deliver(task, compiled, result=result)

    def _deliver(
        self,
        task: _Task,
        answer: CompiledSource | JitltoError,
        layer: Layer = Layer.MEMORY,
        result: CompileResult | None = None,
    ) -> None:
        """Answer a task and its requests: for the first from a layer, or with the result of a compile."""
        task.answer = answer
        for request in task.requests:
            try:
                if isinstance(answer, JitltoError):
                    raise answer
                fragment, images = assemble(request.rendered, answer)
            except JitltoError as error:
                described = request.describe(error)
                self.failures.append((request, described))
                self.observer.failed(request.key, described)
                continue
            self.sources[request] = answer
            self.fragments.append(fragment)
            self.blobs.update(images)
            if result is not None:
                start = time.perf_counter() - self.begin - result.seconds
                self.observer.compiled(Span(request.key, result.worker, start, result.seconds))
            else:
                self.layers[layer] += 1
                self.observer.cached(request.key)
            layer, result = Layer.MEMORY, None
