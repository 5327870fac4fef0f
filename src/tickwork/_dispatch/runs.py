"""Runs by id: read, reschedule, cancel, retry, wait."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import wait as wait_for
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar, overload

from tickwork._define.definition import Definition
from tickwork._define.options import Duration
from tickwork._dispatch.emitter import Emitter
from tickwork._dispatch.thread_bridge import ThreadBridge, result_within
from tickwork._dispatch.wait import RunWaiter
from tickwork._domain.identity import RunId
from tickwork._domain.limits.rates import Turn
from tickwork._domain.runs.outcome import JobResult
from tickwork._domain.runs.retention import RESULT_EXPIRED
from tickwork._domain.runs.run import Run, run_again
from tickwork._domain.runs.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_delay, as_duration, later
from tickwork._kernel.ids import new_id
from tickwork._kernel.instants import When, as_instant
from tickwork._payload.codec import decode
from tickwork._stores.contract import Attempt, ChangeResult, LogLine, RunFilter, RunPage, Store
from tickwork.errors import (
    AlreadyClaimed,
    NotCommitted,
    ResultExpired,
    RunError,
    RunNotFound,
    RunUnsuccessful,
    WaitTimeout,
)

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

EVERYTHING: Final = RunFilter()
PAGE_SIZE: Final = 500
SCAN_MAX: Final = 100_000
"""The most rows of each table that one statement reads to find those that match a filter."""

MATCHES_MAX: Final = 100_000
"""Runs that a filter selects at a time."""


class Runs:
    """``app.runs``: read and change runs by id, or by a filter."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        add: Callable[..., object],
        bridge: ThreadBridge,
        find: Callable[[str], Definition | None],
        find_emitter: Callable[[], Emitter],
        check_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._find_emitter = find_emitter
        self._find = find
        self._check_wait = check_wait
        self._store = store
        self._clock = clock
        self._add = add
        self.bridge = bridge
        self.waiter: RunWaiter = RunWaiter(self.get_many)

    def handle(
        self,
        run_id: RunId,
        *,
        is_new: bool = True,
        is_uncommitted: bool = False,
        is_replaced: bool = False,
    ) -> "RunHandle[Any]":
        """A handle on a run."""
        return RunHandle(
            self, run_id, is_new=is_new, is_uncommitted=is_uncommitted, is_replaced=is_replaced
        )

    @property
    def is_in_transaction(self) -> bool:
        """Whether calls of this thread take part in a transaction of the caller."""
        return self._store.caller_transaction is not None

    def read(self, run_id: RunId) -> Run:
        """Read a run.

        Raises:
            RunNotFound: There is no such run.
        """
        run = self._store.get_run(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def recent(self, where: RunFilter = EVERYTHING, *, limit: int = 100) -> list[Run]:
        """List runs, unfinished and finished, the newest first."""
        return self._store.list_runs(where, limit=limit).runs

    def page(
        self, where: RunFilter = EVERYTHING, *, cursor: str | None = None, limit: int = 100
    ) -> RunPage:
        """List one page of runs. ``cursor`` is the one of the page before."""
        return self._store.list_runs(where, cursor=cursor, limit=limit)

    def get_many(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Read runs by id, in no particular order. Unknown ids are left out."""
        return self._store.get_runs(run_ids)

    def attempts_and_log(self, run_id: RunId) -> tuple[list[Attempt], list[LogLine]]:
        """The finished attempts and the log of a run."""
        record = self._store.run_record(run_id)
        if record is None:
            raise RunNotFound(run_id)
        return record.attempts, record.log

    def turn(self, run_id: RunId) -> Turn | None:
        """The position of a run that waits for a rate limit; None if it does not wait."""
        return self._store.find_turn(run_id)

    def cancel(self, run_id: RunId, *, reason: str = "") -> bool:
        """Cancel a run, or ask its worker to stop it; False if it had finished."""
        answer = self._store.cancel(run_id, now=self._clock.now(), reason=reason)
        if answer is ChangeResult.UNKNOWN:
            raise RunNotFound(run_id)
        return answer is not ChangeResult.FINISHED

    def signal(self, run_id: RunId, event: str, data: Any) -> bool:
        """Emit an event of a run; False if it has got one of this name before."""
        tenant = self.read(run_id).tenant
        emitter = self._find_emitter()
        return emitter.emit(event, key=run_id, data=data, tenant=tenant, using=None).is_new

    def wake(self, run_id: RunId) -> bool:
        """End the sleep of a run; False if it does not sleep."""
        answer = self._store.wake(run_id, now=self._clock.now())
        if answer is ChangeResult.UNKNOWN:
            raise RunNotFound(run_id)
        return answer is ChangeResult.DONE

    def reschedule(self, run_id: RunId, due_at: datetime | timedelta) -> None:
        """Change when a run is due, unless a worker has claimed it."""
        now = self._clock.now()
        moment = later(now, due_at) if isinstance(due_at, timedelta) else due_at
        answer = self._store.reschedule(run_id, due_at=max(moment, now), now=now)
        if answer is ChangeResult.UNKNOWN:
            raise RunNotFound(run_id)
        if answer is not ChangeResult.DONE:
            raise AlreadyClaimed(run_id, status=self.read(run_id).status)

    def retry(self, run_id: RunId, *, fresh: bool = False) -> "RunHandle[Any]":
        """Run a finished run again, as a new run whose ``retry_of`` is this one.

        If it did not complete, the new run gets the values of its steps, and does not repeat them;
        with ``fresh`` it gets none.

        Raises:
            RunError: It has not finished yet.
        """
        old = self.read(run_id)
        if not old.is_finished:
            raise RunError(
                run_id,
                f"The run {run_id} cannot be run again: it is {old.status}.",
                fix="Wait for its end, or cancel it first.",
            )
        now = self._clock.now()
        again = run_again(old, RunId(new_id(now)), now=now)
        has_steps = old.status is not RunStatus.COMPLETED and self._store.load_steps(run_id)
        self._add([again], keeps_steps=bool(has_steps) and not fresh)
        return self.handle(again.id)

    def delete(self, run_ids: Sequence[RunId]) -> int:
        """Delete finished runs with their attempts and logs; return how many there were."""
        return self._store.delete_runs(run_ids)

    # ------------------------------------------------------------ many

    def find_ids(self, where: RunFilter, *, limit: int = MATCHES_MAX) -> list[RunId]:
        """The ids of the newest runs that match, the oldest of them first."""
        ids: list[RunId] = []
        cursor: str | None = None
        # It ends with the last page. Each statement reads a bounded number of rows.
        while len(ids) < limit:
            page = self._store.list_summaries(
                where, cursor=cursor, limit=min(limit - len(ids), PAGE_SIZE), scan_max=SCAN_MAX
            )
            ids += [run.id for run in page.runs]
            cursor = page.cursor
            if cursor is None:
                break
        return ids[::-1]

    def find_retried(self, where: RunFilter) -> set[RunId]:
        """The ids of the runs of this job, queue and tenant that were retried before."""
        again = RunFilter(tenant=where.tenant, job=where.job, queue=where.queue, is_retry=True)
        return {run.retry_of for run in self._each(again) if run.retry_of is not None}

    def retry_many(self, where: RunFilter) -> "list[RunHandle[Any]]":
        """Retry all finished runs that match, except those that were retried before.

        >>> from tickwork import RunStatus, Tickwork
        >>> from tickwork._stores.contract import RunFilter
        >>> app = Tickwork("memory://")
        >>> @app.job
        ... def fails() -> None:
        ...     raise ValueError("no")
        >>> runs, made = [fails.dispatch() for _ in range(2)], app.run()
        >>> failed = RunFilter(job="fails", statuses=frozenset({RunStatus.FAILED_PERMANENT}))
        >>> len(app.runs.retry_many(failed)), len(app.runs.retry_many(failed))
        (2, 0)
        """
        chosen = self.find_ids(where)
        before = self.find_retried(where) if chosen else set[RunId]()
        return [self.retry(run_id) for run_id in chosen if run_id not in before]

    def _each(self, where: RunFilter) -> Iterator[Run]:
        cursor: str | None = None
        # It ends with the last page.
        while True:
            page = self._store.list_runs(where, cursor=cursor, limit=PAGE_SIZE)
            yield from page.runs
            cursor = page.cursor
            if cursor is None:
                return

    # ------------------------------------------------------------ waiting

    def wait(self, run: Run, *, timeout: timedelta | None) -> Run:
        """Wait until this run, as it was read just now, has finished.

        Raises:
            WaitTimeout: It had not finished after that time.
            InvalidOption: The wait would block the loop on which the worker runs coroutines.
        """
        if run.is_finished:
            return run
        self._check_wait()
        with self.waiter.watch(run.id) as finished:
            wait_for([finished], None if timeout is None else timeout.total_seconds())
            if finished.done():
                return finished.result()
        assert timeout is not None, run
        return self.read_finished(run.id, waited=timeout)

    def read_finished(self, run_id: RunId, *, waited: timedelta) -> Run:
        """Read a run at the end of a wait for it.

        Raises:
            WaitTimeout: It has not finished.
        """
        run = self.read(run_id)
        if not run.is_finished:
            raise WaitTimeout(run_id, status=run.status, waited=waited)
        return run

    def result_of(self, run: Run) -> Any:
        """The return value of the handler of a finished run.

        Raises:
            RunUnsuccessful: It failed, was canceled or was skipped.
            ResultExpired: The result was deleted: see the option ``results``.
            PayloadMismatch: It does not fit the return annotation of the handler.
        """
        if run.status is not RunStatus.COMPLETED:
            raise RunUnsuccessful(run.id, status=run.status, reason=run.reason)
        if run.result is None and run.reason == RESULT_EXPIRED:
            raise ResultExpired(run.id)
        return self.decode_result(run.job, run.result)

    def decode_result(self, job: str, text: str | None) -> Any:
        """The return value of the handler of a job, as it is stored.

        Raises:
            PayloadMismatch: It does not fit the return annotation of the handler.
        """
        if text is None:
            return None
        definition = self._find(job)
        if definition is None:  # a job of another program
            return decode(text)
        return definition.payload.decode_result(text)


class RunHandle(Generic[R_co]):
    """One run. The handle holds only its id; everything else is read from the database.

    ``RunHandle[Order]`` is a run whose handler returns an ``Order``.

    ``is_new`` is False if a unique key or ``debounce`` led to an earlier run, and ``is_replaced``
    is True if that one waited and got the arguments of this dispatch. ``aio`` has the same methods
    for coroutines.

    >>> from tickwork import Tickwork
    >>> app = Tickwork("memory://")
    >>> @app.job
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> run = double.dispatch(number=21)
    >>> run.status, app.run(), run.result()
    (<RunStatus.PENDING: 'pending'>, 1, 42)
    """

    __slots__ = ("_is_uncommitted", "_runs", "id", "is_new", "is_replaced")

    def __init__(
        self,
        runs: Runs,
        run_id: RunId,
        *,
        is_new: bool = True,
        is_uncommitted: bool = False,
        is_replaced: bool = False,
    ) -> None:
        self._runs = runs
        self.id: RunId = run_id
        self.is_new: bool = is_new
        self.is_replaced: bool = is_replaced
        self._is_uncommitted = is_uncommitted  # as far as this process knows

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def aio(self) -> "AsyncRunHandle[R_co]":
        """The same methods for coroutines: ``await run.aio.wait()``."""
        return AsyncRunHandle(self, self._runs)

    def read(self) -> Run:
        """Read the run as it is now.

        Raises:
            NotCommitted: It was dispatched in a transaction that is not committed.
            RunNotFound: There is no such run, or it was pruned.
        """
        try:
            run = self._runs.read(self.id)
        except RunNotFound:
            if self._is_uncommitted:
                raise NotCommitted(self.id) from None
            raise
        self._is_uncommitted = self._is_uncommitted and self._runs.is_in_transaction
        return run

    @property
    def status(self) -> RunStatus:
        """The status of the run now."""
        return self.read().status

    def attempts(self) -> list[Attempt]:
        """The finished attempts, with their errors; empty if the first one succeeded."""
        return self._committed().attempts_and_log(self.id)[0]

    def log(self) -> list[LogLine]:
        """The lines that the handler logged."""
        return self._committed().attempts_and_log(self.id)[1]

    def turn(self) -> Turn | None:
        """The position of the run among those that wait for a rate limit; None if it does not wait.

        Its time is the earliest possible one: runs with a lower priority number may come first.
        """
        return self._committed().turn(self.id)

    def at(self, when: When) -> "RunHandle[R_co]":
        """Change when the run is due. A time in the past is due at once.

        Raises:
            AlreadyClaimed: A worker has claimed it.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        self._committed().reschedule(self.id, as_instant(when))
        return self

    def delay(self, length: Duration) -> "RunHandle[R_co]":
        """Make the run due this long from now.

        Raises:
            AlreadyClaimed: A worker has claimed it.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        self._committed().reschedule(self.id, as_delay(length))
        return self

    def cancel(self, reason: str = "") -> bool:
        """Cancel the run, or ask its worker to stop it; False if it had finished."""
        return self._committed().cancel(self.id, reason=reason)

    def wake(self) -> bool:
        """End the sleep of the run: it continues now. False if it does not sleep."""
        return self._committed().wake(self.id)

    def signal(self, event: str, data: Any = None) -> bool:
        """Emit an event of this run, for ``ctx.wait_for(event)`` in its handler.

        Returns False if the run has got one of this name before, which stays.
        """
        return self._committed().signal(self.id, event, data)

    def retry(self, *, fresh: bool = False) -> "RunHandle[R_co]":
        """Run it again, as a new run. It must have finished.

        If it did not complete, stored steps are not repeated, unless the retry is ``fresh``.
        """
        return self._committed().retry(self.id, fresh=fresh)

    def wait(self, timeout: Duration | None = None) -> RunStatus:
        """Wait until the run has finished; return its final status.

        This blocks the thread. In a coroutine, await ``run.aio.wait()``.

        Raises:
            WaitTimeout: It had not finished after that time. The run goes on.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        return self._wait(timeout).status

    @overload
    def result(self: "RunHandle[Coroutine[Any, Any, T]]", timeout: Duration | None = None) -> T: ...
    @overload
    def result(self: "RunHandle[JobResult]", timeout: Duration | None = None) -> Any: ...
    @overload
    def result(self, timeout: Duration | None = None) -> R_co: ...

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the run has finished; return the handler's return value.

        Raises:
            RunUnsuccessful: It failed, was canceled or was skipped.
            PayloadMismatch: The stored value does not fit the annotation of the handler.
            WaitTimeout: It had not finished after that time.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        return self._runs.result_of(self._wait(timeout))

    def _wait(self, timeout: Duration | None) -> Run:
        limit = None if timeout is None else as_duration(timeout)
        return self._runs.wait(self._read_before_wait(), timeout=limit)

    def _read_before_wait(self) -> Run:
        run = self.read()
        if self._is_uncommitted and not run.is_finished:
            raise NotCommitted(self.id)  # no worker can see it
        return run

    def _committed(self) -> Runs:
        """Check that the run is visible: otherwise a change would wait for your transaction."""
        if self._is_uncommitted:
            self.read()
        return self._runs


class AsyncRunHandle(Generic[R_co]):
    """The methods of a run for coroutines: ``await run.aio.result()``."""

    __slots__ = ("_bridge", "_run", "_runs")

    def __init__(self, run: RunHandle[R_co], runs: Runs) -> None:
        self._run = run
        self._runs = runs
        self._bridge = runs.bridge

    def __repr__(self) -> str:
        return f"<async {self._run!r}>"

    async def status(self) -> RunStatus:
        """As :attr:`RunHandle.status`."""
        return (await self.read()).status

    async def wait(self, timeout: Duration | None = None) -> RunStatus:  # noqa: ASYNC109  # as there
        """As :meth:`RunHandle.wait`. No thread is blocked, however many coroutines wait."""
        return (await self._wait(timeout)).status

    @overload
    async def result(
        self: "AsyncRunHandle[Coroutine[Any, Any, T]]",
        timeout: Duration | None = None,  # noqa: ASYNC109  # as there
    ) -> T: ...
    @overload
    async def result(
        self: "AsyncRunHandle[JobResult]",
        timeout: Duration | None = None,  # noqa: ASYNC109  # as there
    ) -> Any: ...
    @overload
    async def result(self, timeout: Duration | None = None) -> R_co: ...  # noqa: ASYNC109  # as there

    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  # as there
        """As :meth:`RunHandle.result`. No thread is blocked, however many coroutines wait."""
        return self._runs.result_of(await self._wait(timeout))

    async def _wait(self, timeout: Duration | None) -> Run:  # noqa: ASYNC109  # as there
        limit = None if timeout is None else as_duration(timeout)
        run_before = await self._bridge.call(self._run._read_before_wait)  # noqa: SLF001  # ours
        if run_before.is_finished:
            return run_before
        with self._runs.waiter.watch(run_before.id) as finished:
            run = await result_within(finished, limit)
        if run is not None:
            return run
        assert limit is not None, self._run
        return await self._bridge.call(self._runs.read_finished, run_before.id, waited=limit)

    # From here on, docs/async_methods.py writes the methods.

    async def read(self) -> Run:
        """As :meth:`RunHandle.read`."""
        return await self._bridge.call(self._run.read)

    async def attempts(self) -> list[Attempt]:
        """As :meth:`RunHandle.attempts`."""
        return await self._bridge.call(self._run.attempts)

    async def log(self) -> list[LogLine]:
        """As :meth:`RunHandle.log`."""
        return await self._bridge.call(self._run.log)

    async def turn(self) -> Turn | None:
        """As :meth:`RunHandle.turn`."""
        return await self._bridge.call(self._run.turn)

    async def at(self, when: When) -> "RunHandle[R_co]":
        """As :meth:`RunHandle.at`."""
        return await self._bridge.call(self._run.at, when)

    async def delay(self, length: Duration) -> "RunHandle[R_co]":
        """As :meth:`RunHandle.delay`."""
        return await self._bridge.call(self._run.delay, length)

    async def cancel(self, reason: str = "") -> bool:
        """As :meth:`RunHandle.cancel`."""
        return await self._bridge.call(self._run.cancel, reason)

    async def wake(self) -> bool:
        """As :meth:`RunHandle.wake`."""
        return await self._bridge.call(self._run.wake)

    async def signal(self, event: str, data: Any = None) -> bool:
        """As :meth:`RunHandle.signal`."""
        return await self._bridge.call(self._run.signal, event, data)

    async def retry(self, *, fresh: bool = False) -> "RunHandle[R_co]":
        """As :meth:`RunHandle.retry`."""
        return await self._bridge.call(self._run.retry, fresh=fresh)

    # The end of these methods.
