"""The build engine: each distinct source once, from the cache or a compiler, the most expensive first.

The engine owns no process: it submits jobs to any :class:`concurrent.futures.Executor` and keeps just as many in
flight as that can work on, so that another build with the same cache finds the rest free to claim.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

import filelock

from jitlto.build.cache import keys
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import Recipe
from jitlto.build.compilers.compiled_source import Job, Unit
from jitlto.build.execution.compile_result import Report
from jitlto.build.execution.costs import estimate
from jitlto.build.execution.events import Observer, Span
from jitlto.build.execution.workers import WorkerDied
from jitlto.build.failures import Failure
from jitlto.build.templates import RenderedSource
from jitlto.cuda import nvrtc
from jitlto.errors import CompileError, JitltoError
from jitlto.model.headers import Source, split_leading_includes

_POLL = 0.05  # seconds between two looks at what another build is compiling
_PATIENCE = 900.0  # seconds to wait for another build before compiling the same
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A rendered source and how it is to be compiled."""

    rendered: RenderedSource
    recipe: Recipe


@dataclass
class Outcome:
    """What the engine has done.

    Parameters
    ----------
    units : dict of int to Unit
        By position of the request.
    failures : list of (int, Failure)
        Positions and reasons of those that have none, by position.
    compiled : int
        How many compiles were run.
    """

    units: dict[int, Unit] = field(default_factory=dict)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    compiled: int = 0


@dataclass
class _Task:
    """One compile, for all requests whose sources and headers are the same."""

    first: str
    request: Request
    positions: list[int]
    source: Source
    cost: int
    sharers: int = 1
    extra: tuple[str, ...] = ()
    claim: filelock.BaseFileLock | None = None
    deaths: int = 0

    @property
    def key(self) -> str:
        """What two builds must not compile at once: the first level and everything that is given to the compiler."""
        return keys.second(self.first, self.source.sha256)


Submit = Callable[[Job], "Future[Report]"]


class Engine:
    """Makes units of requests.

    Parameters
    ----------
    submit : callable
        Takes a job and gives the future of its report.
    width : int
        How many jobs can be worked on at once.
    cache : Cache or None
        Where units are looked for and kept.
    observer : Observer
        Told of each request once: cached, compiled or failed.
    begin : float
        ``time.perf_counter()`` when the build began.
    keep_going : bool
        Whether to go on after a failure; else the outcome holds the failure of the first request that fails, the
        same one every time.
    """

    def __init__(
        self,
        submit: Submit,
        width: int,
        cache: Cache | None,
        observer: Observer,
        begin: float,
        *,
        keep_going: bool = False,
    ) -> None:
        self._submit = submit
        self._width = max(1, width)
        self._cache = cache
        self._observer = observer
        self._keep_going = keep_going
        self._begin = begin
        self._outcome = Outcome()
        self._requests: Sequence[Request] = ()
        self._waiting: list[_Task] = []  # the next one last
        self._elsewhere: list[_Task] = []  # claimed by another build
        self._flying: dict[Future[Report], _Task] = {}
        self._costs: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def run(self, requests: Sequence[Request]) -> Outcome:
        """Find or compile all requests.

        Raises
        ------
        ToolchainError
            If a worker cannot compile for this client.
        """
        self._requests = requests
        missing = self._from_cache(requests)
        self._waiting = sorted(missing, key=lambda task: (task.cost, task.positions))
        try:
            while self._waiting or self._elsewhere or self._flying:
                self._launch()
                if self._flying:
                    patience = _POLL if self._elsewhere and not self._waiting else None
                    done, _ = wait(self._flying, timeout=patience, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._land(self._flying.pop(future), future)
                elif self._elsewhere:
                    time.sleep(_POLL)
        finally:
            for future, task in self._flying.items():
                future.cancel()
                _release(task)
            for task in (*self._waiting, *self._elsewhere):
                _release(task)
            if self._cache is not None:
                self._cache.record_costs(self._costs)
        self._outcome.failures.sort(key=lambda item: item[0])
        return self._outcome

    def _from_cache(self, requests: Sequence[Request]) -> list[_Task]:
        """Serve what the cache has; the rest as tasks, equal ones as one."""
        groups: dict[tuple[str, int], list[int]] = {}
        for position, request in enumerate(requests):
            first = request.recipe.first(request.rendered.source)
            groups.setdefault((first, id(request.recipe)), []).append(position)
        tasks: dict[str, _Task] = {}
        shared: dict[object, Mapping[str, bytes]] = {}
        for (first, _), positions in groups.items():
            request = requests[positions[0]]
            unit = self._cache.find(first, request.recipe) if self._cache else None
            if unit is not None:
                self._serve(positions, unit)
                continue
            task = self._task(first, request, positions, (), shared)
            if task.key in tasks:
                tasks[task.key].positions += positions
            else:
                tasks[task.key] = task
        recorded = self._cache.costs() if self._cache else {}
        for task in tasks.values():
            seconds = recorded.get(str(requests[task.positions[0]].rendered.key))
            if seconds is not None:
                task.cost = int(seconds * 1000)
        heads = list(map(_includes, tasks.values()))
        alike = Counter(heads)
        for task, head in zip(tasks.values(), heads, strict=True):
            task.sharers = alike[head]
        return list(tasks.values())

    def _task(
        self,
        first: str,
        request: Request,
        positions: list[int],
        extra: tuple[str, ...],
        shared: dict[object, Mapping[str, bytes]],
    ) -> _Task:
        recipe = request.recipe
        source = recipe.search.closure(request.rendered.source.encode(), extra)
        # Sources of one family with the same headers share one mapping, which then travels once.
        headers = shared.setdefault((id(recipe), frozenset(source.headers)), source.headers)
        source = Source(source.text, headers)
        cost = estimate(source, len(recipe.architectures))
        return _Task(first, request, positions, source, cost, extra=extra)

    def _launch(self) -> None:
        """Submit as much as can be worked on, of what no other build is compiling."""
        now = time.monotonic()
        for task in list(self._elsewhere):
            if len(self._flying) < self._width and self._claim(task, now):
                self._elsewhere.remove(task)
                self._start(task)
        while self._waiting and len(self._flying) < self._width:
            task = self._waiting.pop()
            if self._claim(task, now):
                self._start(task)
            else:
                self._elsewhere.append(task)

    def _claim(self, task: _Task, now: float) -> bool:
        """Whether this build may compile a task: nobody else does, or not for long."""
        if self._cache is None or task.claim is not None:
            return True
        task.claim = self._cache.store.claim(task.key)
        if task.claim is not None:
            return True
        waited = self._since.setdefault(task.key, now)
        if now - waited > _PATIENCE:
            _log.warning("another build is compiling %s since %d s; compiling it too", self._name(task), now - waited)
            return True
        return False

    def _start(self, task: _Task) -> None:
        if self._cache is not None:
            # Between our look and our claim another build may have finished it.
            unit = self._cache.find(task.first, task.request.recipe)
            if unit is not None:
                _release(task)
                self._serve(task.positions, unit)
                return
        recipe = task.request.recipe
        job = Job(
            recipe.toolchain.name,
            recipe.toolchain.identity,
            task.source,
            recipe.architectures,
            recipe.options,
            recipe.images,
            task.sharers,
        )
        self._flying[self._submit(job)] = task

    def _land(self, task: _Task, future: Future[Report]) -> None:
        try:
            report = future.result()
        except CompileError as error:
            # An include through a macro, which no reading of the text can follow: give that header too.
            name = nvrtc.further_header(error, task.request.recipe.search, task.extra)
            if name is not None:
                again = self._task(task.first, task.request, task.positions, (*task.extra, name), {})
                again.claim, again.sharers = task.claim, task.sharers
                self._waiting.append(again)
                return
            self._fail(task, error)
        except WorkerDied as error:
            task.deaths += 1
            if task.deaths < 2:  # perhaps of another's sins: a fresh process may do it
                self._waiting.append(task)
                return
            self._fail(task, error)
        except JitltoError:
            _release(task)
            raise
        else:
            self._hold(task, report)

    def _hold(self, task: _Task, report: Report) -> None:
        """Keep a unit and give it to all that wait for it."""
        recipe, unit = task.request.recipe, report.unit
        self._outcome.compiled += 1
        if self._cache is not None:
            manifest = recipe.manifest(task.request.rendered.source, unit.reads)
            self._cache.keep(task.first, manifest, unit)
            fields = recipe.fields(task.request.rendered.source) | {"headers": recipe.headers(manifest)}
            for position in task.positions:  # of one source
                self._cache.record_history(self._requests[position].rendered.key, fields)
        _release(task)
        for position in task.positions:
            self._costs[str(self._requests[position].rendered.key)] = report.seconds
        first, *rest = task.positions
        self._outcome.units[first] = unit
        start = time.perf_counter() - self._begin - report.seconds
        self._observer.compiled(Span(self._requests[first].rendered.key, report.worker, start, report.seconds))
        self._serve(rest, unit)

    def _serve(self, positions: Sequence[int], unit: Unit) -> None:
        for position in positions:
            self._outcome.units[position] = unit
            self._observer.cached(self._requests[position].rendered.key)

    def _fail(self, task: _Task, error: JitltoError) -> None:
        _release(task)
        for position in task.positions:
            rendered = self._requests[position].rendered
            described = describe(error, rendered)
            self._outcome.failures.append((position, Failure(rendered, described)))
            self._observer.failed(rendered.key, described)
        if not self._keep_going:
            # What comes before may fail too, and is then the first to fail, whatever was compiled first.
            first = min(position for position, _ in self._outcome.failures)
            self._waiting = [t for t in self._waiting if t.positions[0] < first]
            self._elsewhere = [t for t in self._elsewhere if t.positions[0] < first]

    def _name(self, task: _Task) -> str:
        return str(self._requests[task.positions[0]].rendered.key)


def describe(error: JitltoError, rendered: RenderedSource) -> JitltoError:
    """An error of a compile in terms of the fragment: template, combination, lines of the source."""
    if isinstance(error, CompileError):
        return nvrtc.annotate(error, f"{rendered.key}.cu", rendered.text, rendered.origin)
    error.where = error.where or rendered.origin
    return error


def _includes(task: _Task) -> object:
    """What sources must have in common to be compiled from one snapshot."""
    return (id(task.request.recipe), split_leading_includes(task.source.text)[0])


def _release(task: _Task) -> None:
    if task.claim is not None:
        task.claim.release()
        task.claim = None
