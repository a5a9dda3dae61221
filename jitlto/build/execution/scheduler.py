"""The build scheduler: takes each distinct source from the cache or compiles it, the most expensive first.

The headers of a source are looked for while others are compiled. Jobs are submitted to any
:class:`concurrent.futures.Executor`, never more than keep its workers busy, so that other builds with the same cache
can claim the rest.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from jitlto.base.errors import BuildError, CompileError, JitltoError
from jitlto.build.cache.cache import Cache, Inputs, TakenUnit
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.cache.use import Layer
from jitlto.build.execution.costs import estimate
from jitlto.build.execution.events import Observer, Span
from jitlto.build.execution.request import CompileRequest
from jitlto.build.execution.shared_lookup import SharedLookup
from jitlto.build.execution.task import Missing, Task
from jitlto.build.execution.waiting import WaitingTasks, in_order
from jitlto.build.execution.workers import WorkerDied
from jitlto.build.failures import Failure
from jitlto.compile import diagnostics
from jitlto.compile.compiler import CompiledSource, CompileJob, CompileResult
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey

_POLL = 0.05  # seconds between two checks of jobs that another build is compiling
_PATIENCE = 900.0  # seconds to wait for another build before compiling the same job
_ASKED = 256  # sources that shared stores are asked for at a time
_MOST_DEATHS = 2  # worker deaths until a job fails: the first may be a different job's fault
_log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """The results of the requests."""

    requests: list[CompileRequest] = field(default_factory=list)  # of all batches, in order
    sources: dict[int, CompiledSource] = field(default_factory=dict)  # by position of the request
    failures: list[tuple[int, Failure]] = field(default_factory=list)  # with positions of requests, in their order
    compiled: int = 0  # compiles that were run
    #: The requests that were not compiled, by the layer that they came from.
    layers: Counter[Layer] = field(default_factory=Counter)
    seconds_saved: float = 0.0  # that these took to compile, where it is known


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
    #: Called with the name of the compiler for each of the first jobs, up to ``width``, long before they are submitted.
    announce: Callable[[str], object] = lambda toolchain: None  # noqa: ARG005
    keep_going: bool = False  # after a failure; otherwise nothing more is compiled, and nothing awaited
    _outcome: Outcome = field(default_factory=Outcome, init=False)
    _shared: SharedLookup = field(init=False)
    _announced: int = field(default=0, init=False)
    _waiting: WaitingTasks = field(default_factory=WaitingTasks, init=False)
    _tasks: dict[str, Task] = field(default_factory=dict, init=False)  # by key, those that are done too
    _claimed: list[Task] = field(default_factory=list, init=False)  # by other builds
    _running: dict[Future[CompileResult], Task] = field(default_factory=dict, init=False)
    _done: SimpleQueue[Future[CompileResult]] = field(default_factory=SimpleQueue, init=False)  # of those that run
    _seconds: dict[str, float] = field(default_factory=dict, init=False)
    _history: dict[FragmentKey, Inputs] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._shared = SharedLookup(self.cache)

    def run(self, batches: Iterable[Sequence[CompileRequest]]) -> Outcome:
        """Find or compile all requests.

        Args:
            batches: Requests; the next batch is asked for when all sources of the last are submitted or wait.

        Raises:
            ToolchainError: If a worker cannot compile for this client.
        """
        coming: Iterator[Sequence[CompileRequest]] | None = iter(batches)
        missing: deque[Missing] = deque()
        try:
            while (coming or missing or self._waiting or self._claimed or self._running) and not self._stopped:
                if self._shared.is_pending:
                    self._find_again()
                self._start_tasks()
                done: list[Future[CompileResult]] = []
                if missing:
                    self._find_tasks([missing.popleft() for _ in range(min(len(missing), self._width_of_finding))])
                elif coming and (batch := next(coming, None)) is not None:
                    missing += self._find_missing(batch)
                elif coming:
                    coming = None
                elif self._running:
                    polls = self._shared.is_pending or (self._claimed and not self._waiting)
                    with suppress(Empty):
                        done.append(self._done.get(timeout=_POLL if polls else None))
                else:
                    time.sleep(_POLL if self._claimed else 0)
                done += [self._done.get() for _ in range(self._done.qsize())]
                for future in sorted(done, key=lambda future: self._running[future].positions):
                    self._finish(self._running.pop(future), future)
        finally:
            for future in self._running:
                future.cancel()
            for task in (*self._running.values(), *self._waiting, *self._claimed):
                task.release()
            if self.cache is not None:
                self.cache.record_costs(self._seconds)
                self.cache.record_history(self._history)
        self._outcome.failures.sort(key=lambda item: item[0])
        return self._outcome

    @property
    def _stopped(self) -> bool:
        return bool(self._outcome.failures) and not self.keep_going

    def _find_missing(self, batch: Sequence[CompileRequest]) -> list[Missing]:
        """Take results from the cache; return the other sources in the order in which to look for their headers."""
        positions_of: dict[tuple[str, CompileConfig], list[int]] = {}
        for position, request in enumerate(batch, len(self._outcome.requests)):
            positions_of.setdefault((request.source_key, request.config), []).append(position)
        self._outcome.requests += batch
        recorded = self.cache.costs() if self.cache else {}
        found: list[tuple[str, CompileRequest, list[int]]] = []
        for (source_key, config), positions in positions_of.items():
            request = self._outcome.requests[positions[0]]
            if self.cache and (held := self.cache.find_unit(source_key, config)) is not None:
                seconds = recorded.get(str(request.key), 0.0)
                self._take_cached(positions, held.compiled, Layer.DIRECTORY, seconds, held.manifest)
                if self.cache.fills_stores:
                    with suppress(JitltoError):  # without all of its headers it has no place there
                        self.cache.share(request.place, held.manifest, held.encoded, seconds)
            else:
                found.append((source_key, request, positions))
        sharers = Counter(request.head for _, request, _ in found)
        missing = [Missing(*each, sharers[each[1].head], recorded.get(str(each[1].key))) for each in found]
        if not self._shared.has_stores:
            self._announce(request for _, request, _ in found)
        return in_order(missing)

    @property
    def _width_of_finding(self) -> int:
        return _ASKED if self._shared.has_stores else 1

    def _announce(self, requests: Iterable[CompileRequest]) -> None:
        """Tell the executor which compilers are wanted next, for as many jobs as it runs at a time."""
        for request in requests:
            if self._announced >= self.width:
                break
            self.announce(request.config.toolchain.name)
            self._announced += 1

    def _find_tasks(self, missing: Sequence[Missing]) -> None:
        """Make tasks of sources that shared stores do not have either."""
        tasks = [task for each in missing if (task := self._find_task(each)) is not None]
        if self._shared.has_stores:
            self._take_shared(self._shared.find(tasks))
            tasks = [task for task in tasks if task.answer is None]
            self._announce(task.request for task in tasks)
        for task in tasks:
            self._waiting.add(task)

    def _take_shared(self, found: Iterable[tuple[Task, TakenUnit]]) -> None:
        for task, unit in found:
            task.answer = unit.compiled
            self._take_cached(task.positions, unit.compiled, Layer.STORE, unit.seconds, unit.manifest)

    def _find_again(self) -> None:
        """Take from shared stores what they had not answered before they were open."""
        if found := self._shared.find_again(self._waiting):
            self._take_shared(found)
            self._waiting.remove_answered()

    def _find_task(self, missing: Missing) -> Task | None:
        """Look for the headers of a source, and make it a task of its own unless there is one for the same."""
        request, positions, config = missing.request, missing.positions, missing.request.config
        try:
            source = request.closure
            complete = config.complete(source)
        except JitltoError as error:
            if not self.keep_going:
                raise
            self._report(positions, error)
            return None
        seconds = missing.seconds
        cost = estimate(source, len(config.architectures)) if seconds is None else int(seconds * 1000)
        task = Task(missing.source_key, request, positions, complete, cost, missing.sharers)
        same = self._tasks.setdefault(task.key, task)
        if same is task:
            return task
        if same.answer is None:
            same.positions += positions
        elif isinstance(same.answer, CompiledSource):
            self._take_cached(positions, same.answer)
        else:
            self._report(positions, same.answer)
        return None

    def _start_tasks(self) -> None:
        """Submit as many tasks as keep the workers busy, except those that another build is compiling."""
        for task in list(self._claimed):
            if len(self._running) < self.width and self._claim(task):
                self._claimed.remove(task)
                self._start(task)
        while self._waiting and len(self._running) < self.width:
            task = self._waiting.pop()
            if self._claim(task):
                self._start(task)
            else:
                self._waiting.end(task)
                self._claimed.append(task)

    def _claim(self, task: Task) -> bool:
        """Return whether to compile a task: no other build is compiling it, or one has been for too long."""
        if self.cache is None or task.claim is not None:
            return True
        task.claim = self.cache.store.claim(task.key)
        if task.claim is not None:
            return True
        now = time.monotonic()
        task.waiting_since = task.waiting_since or now
        waited = now - task.waiting_since
        if waited > _PATIENCE:
            _log.warning("another build has been compiling %s for %d s; compiling it too", task.request.key, waited)
            return True
        return False

    def _start(self, task: Task) -> None:
        # Another build may have finished it between the look-up and the claim.
        if self.cache and (held := self.cache.find_unit(task.source_key, task.request.config)) is not None:
            task.release()
            self._waiting.end(task)
            task.answer = held.compiled
            self._take_cached(task.positions, held.compiled, Layer.DIRECTORY, manifest=held.manifest)
        else:
            # Without a cache nobody asks which headers decide whether to compile again.
            job = replace(task.job(), lists_reads=self.cache is not None)
            future = self.submit(job)
            self._running[future] = task
            future.add_done_callback(self._done.put)

    def _finish(self, task: Task, future: Future[CompileResult]) -> None:
        self._waiting.end(task)
        try:
            result = future.result()
        except CompileError as error:
            # A header included through a macro is not in the textual closure: send it too.
            config = task.request.config
            name = diagnostics.find_further_header(error, config.search, task.extra)
            if name is None:
                self._fail(task, error)
            else:
                task.extra = (*task.extra, name)
                task.source = config.complete(config.closure(task.request.rendered.source, task.extra))
                self._waiting.add(task)
        except WorkerDied as error:
            task.deaths += 1
            if task.deaths == _MOST_DEATHS:
                self._fail(task, error)
            else:
                self._waiting.add(task)
        except JitltoError:
            task.release()
            raise
        else:
            compiled = task.request.name_parameters(result.compiled)
            self._take_result(task, replace(result, compiled=compiled))

    def _take_result(self, task: Task, result: CompileResult) -> None:
        """Store a compiled source and give it to all its requests."""
        config, source = task.request.config, task.request.rendered.source
        names = [self._outcome.requests[each].key for each in task.positions]
        self._outcome.compiled += 1
        task.answer = result.compiled
        if self.cache is not None:
            manifest = config.manifest(source, result.compiled.reads)
            data = self.cache.put(task.source_key, manifest, result.compiled)
            self.cache.share(task.place, manifest, data, result.seconds)
            self._record(task.positions, manifest)
        task.release()
        self._seconds |= dict.fromkeys(map(str, names), result.seconds)
        first, *rest = task.positions
        if self._accept(first, result.compiled):
            start = time.perf_counter() - self.begin - result.seconds
            self.observer.compiled(Span(names[0], result.worker, start, result.seconds))
        self._take_cached(rest, result.compiled)

    def _record(self, positions: Sequence[int], manifest: bytes) -> None:
        """Remember the inputs of fragments."""
        requests = [self._outcome.requests[position] for position in positions]
        fields = requests[0].config.fields(requests[0].rendered.source)
        self._history |= {each.key: Inputs(each.checkout, fields, manifest) for each in requests}

    def _take_cached(
        self,
        positions: Sequence[int],
        compiled: CompiledSource,
        layer: Layer = Layer.MEMORY,
        seconds: float = 0.0,
        manifest: bytes | None = None,
    ) -> None:
        """Give requests a compiled source, which came from a layer and took so long to compile."""
        if manifest is not None:
            self._record(positions, manifest)
        self._outcome.seconds_saved += seconds
        for position in positions:
            if self._accept(position, compiled):
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

    def _fail(self, task: Task, error: JitltoError) -> None:
        task.release()
        task.answer = error
        self._report(task.positions, error)

    def _report(self, positions: Sequence[int], error: JitltoError) -> None:
        for position in positions:
            request = self._outcome.requests[position]
            described = request.describe(error)
            self._outcome.failures.append((position, Failure(request.rendered, described)))
            self.observer.failed(request.key, described)
