"""A run, for whoever dispatched it: look at it, move it, cancel it, wait for it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import wait as wait_for
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tickwork._client.insert import RunInserter
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._client.wait import Waits
from tickwork._define.options import Length
from tickwork._domain.identity import RunId
from tickwork._domain.rates import Turn
from tickwork._domain.run import NewRun, Run
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork._kernel.durations import as_delay, as_duration, later
from tickwork._kernel.ids import new_id
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import (
    AlreadyClaimed,
    NotCommitted,
    RunError,
    RunNotFound,
    RunUnsuccessful,
    WaitTimeout,
)
from tickwork.stores.contract import Attempt, Canceling, LogLine, Page, RunFilter, Store

if TYPE_CHECKING:
    from tickwork._client.asynchronous import AsyncRun

EVERYTHING: Final = RunFilter()
PAGE: Final = 500
MANY_MAX: Final = 100_000
"""Runs that are chosen at a time by what they have in common."""


class Runs:
    """What can be asked and done about runs, by id."""

    def __init__(
        self, *, store: Store, clock: Clock, inserter: RunInserter, bridge: ThreadBridge
    ) -> None:
        self._store = store
        self._clock = clock
        self._inserter = inserter
        self.bridge = bridge
        self.waits: Waits = Waits(self._look)

    def handle(
        self, run_id: RunId, *, is_new: bool = True, is_uncommitted: bool = False
    ) -> "RunHandle":
        """A handle on a run."""
        return RunHandle(self, run_id, is_new=is_new, is_uncommitted=is_uncommitted)

    def read(self, run_id: RunId) -> Run:
        """The run as it is now.

        Raises:
            RunNotFound: There is none.
        """
        found = self._store.get_run(run_id)
        if found is None:
            raise RunNotFound(run_id)
        return found

    def recent(self, where: RunFilter = EVERYTHING, *, limit: int = 100) -> list[Run]:
        """Runs, unfinished and finished, the newest first."""
        return self._store.list_runs(where, limit=limit).runs

    def page(
        self, where: RunFilter = EVERYTHING, *, cursor: str | None = None, limit: int = 100
    ) -> Page:
        """The same, one page at a time: ``cursor`` is that of the page before."""
        return self._store.list_runs(where, cursor=cursor, limit=limit)

    def several(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Runs by id, in no particular order; what is unknown is left out."""
        return self._store.get_runs(run_ids)

    def story(self, run_id: RunId) -> tuple[list[Attempt], list[LogLine]]:
        """Its finished attempts and its log."""
        found = self._store.story(run_id)
        if found is None:
            raise RunNotFound(run_id)
        return found.attempts, found.log

    def turn(self, run_id: RunId) -> Turn | None:
        """Where it stands, when it waits for its turn under a rate."""
        return self._store.find_turn(run_id)

    def cancel(self, run_id: RunId, *, reason: str = "") -> bool:
        """Cancel it, or ask its worker to; False when it had ended before."""
        answer = self._store.cancel(run_id, now=self._clock.now(), reason=reason)
        if answer is Canceling.UNKNOWN:
            raise RunNotFound(run_id)
        return answer is not Canceling.FINISHED

    def reschedule(self, run_id: RunId, due_at: datetime | timedelta) -> None:
        """Change when it is due, while nobody has claimed it."""
        now = self._clock.now()
        moment = later(now, due_at) if isinstance(due_at, timedelta) else due_at
        answer = self._store.reschedule(run_id, due_at=max(moment, now), now=now)
        if answer is Canceling.UNKNOWN:
            raise RunNotFound(run_id)
        if answer is not Canceling.DONE:
            raise AlreadyClaimed(run_id, status=self.read(run_id).status)

    def retry(self, run_id: RunId) -> "RunHandle":
        """Run a finished one again, as a new run that names this one.

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
        again = NewRun(
            id=RunId(new_id(now)),
            job=old.job,
            created_at=now,
            due_at=now,
            tenant=old.tenant,
            queue=old.queue,
            priority=old.priority,
            args=old.args,
            tags=old.tags,
            attempts_max=old.attempts_max,
            limit_keys=old.limit_keys,
            schedule=old.schedule,
            nominal_at=old.nominal_at,
            target=old.target,
            retry_of=old.id,
        )
        self._inserter.add([again])
        return self.handle(again.id)

    # ------------------------------------------------------------ many

    def matching(self, where: RunFilter, *, limit: int = MANY_MAX) -> list[RunId]:
        """The ids of all runs that fit, the oldest first; of more than so many, the newest."""
        found: list[RunId] = []
        for run in self._each(where):
            found.append(run.id)
            if len(found) >= limit:
                break
        return found[::-1]

    def retried(self, where: RunFilter) -> set[RunId]:
        """The runs of this job, queue and tenant that were run again, by whatever they are now."""
        again = RunFilter(tenant=where.tenant, job=where.job, queue=where.queue, is_retry=True)
        return {run.retry_of for run in self._each(again) if run.retry_of is not None}

    def retry_many(self, where: RunFilter) -> "list[RunHandle]":
        """Run all that fit, and have finished, again. Whoever asks twice gets none twice.

        >>> from tickwork import RunStatus, Tickwork
        >>> from tickwork.stores.contract import RunFilter
        >>> app = Tickwork("memory://")
        >>> @app.job
        ... def fails() -> None:
        ...     raise ValueError("no")
        >>> runs, made = [fails.dispatch() for _ in range(2)], app.run()
        >>> failed = RunFilter(job="fails", statuses=frozenset({RunStatus.FAILED_PERMANENT}))
        >>> len(app.runs.retry_many(failed)), len(app.runs.retry_many(failed))
        (2, 0)
        """
        chosen = self.matching(where)
        before = self.retried(where) if chosen else set[RunId]()
        return [self.retry(run_id) for run_id in chosen if run_id not in before]

    def _each(self, where: RunFilter) -> Iterator[Run]:
        cursor: str | None = None
        # It ends with the last page.
        while True:
            page = self._store.list_runs(where, cursor=cursor, limit=PAGE)
            yield from page.runs
            cursor = page.cursor
            if cursor is None:
                return

    # ------------------------------------------------------------ waiting

    def wait(self, run: Run, *, timeout: timedelta | None) -> Run:
        """Wait until this run, as it was just seen, has finished.

        Raises:
            WaitTimeout: It had not, after that time.
        """
        if run.is_finished:
            return run
        with self.waits.joined(run.id) as finished:
            wait_for([finished], None if timeout is None else timeout.total_seconds())
            if finished.done():
                return finished.result()
        assert timeout is not None, run
        return self.last_look(run.id, waited=timeout)

    def last_look(self, run_id: RunId, *, waited: timedelta) -> Run:
        """The run, if it has finished at the very end of a wait for it.

        Raises:
            WaitTimeout: It has not.
        """
        found = self.read(run_id)
        if not found.is_finished:
            raise WaitTimeout(run_id, status=found.status, waited=waited)
        return found

    def output(self, run: Run) -> Any:
        """What the handler of a finished run returned.

        Raises:
            RunUnsuccessful: It ended otherwise than completed.
        """
        if run.status is not RunStatus.COMPLETED:
            raise RunUnsuccessful(run.id, status=run.status, reason=run.reason)
        return None if run.result is None else decode(run.result)

    def _look(self, run_ids: Sequence[RunId]) -> list[Run]:
        return self._store.get_runs(run_ids)


class RunHandle:
    """One run. It knows its id; everything else is looked up when asked for.

    ``is_new`` is False when a unique key gave an earlier run instead. ``aio`` has the same
    verbs, to be awaited.
    """

    __slots__ = ("_is_uncommitted", "_runs", "id", "is_new")

    def __init__(
        self, runs: Runs, run_id: RunId, *, is_new: bool = True, is_uncommitted: bool = False
    ) -> None:
        self._runs = runs
        self.id: RunId = run_id
        self.is_new: bool = is_new
        self._is_uncommitted = is_uncommitted  # as far as we know

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def aio(self) -> "AsyncRun":
        """The same verbs for coroutines: ``await run.aio.wait()``."""
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.asynchronous import AsyncRun  # noqa: PLC0415

        return AsyncRun(self, self._runs, self._runs.bridge)

    def read(self) -> Run:
        """The run as it is now: a value.

        Raises:
            NotCommitted: It was dispatched in a transaction that is not committed.
            RunNotFound: There is none, or it was pruned.
        """
        try:
            found = self._runs.read(self.id)
        except RunNotFound:
            if self._is_uncommitted:
                raise NotCommitted(self.id) from None
            raise
        self._is_uncommitted = False
        return found

    @property
    def status(self) -> RunStatus:
        """Its status now."""
        return self.read().status

    def attempts(self) -> list[Attempt]:
        """Its finished attempts, with their errors."""
        return self._seen().story(self.id)[0]

    def log(self) -> list[LogLine]:
        """What its handler logged."""
        return self._seen().story(self.id)[1]

    def turn(self) -> Turn | None:
        """Where it stands when a rate keeps it waiting, and when its turn comes; or None.

        Not before that: whoever has a better priority comes first.
        """
        return self._seen().turn(self.id)

    def at(self, when: When) -> "RunHandle":
        """Change when it is due; a time in the past is due at once.

        Raises:
            AlreadyClaimed: A worker has taken it.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        self._seen().reschedule(self.id, as_instant(when))
        return self

    def delay(self, length: Length) -> "RunHandle":
        """Let it be due that long from now.

        Raises:
            AlreadyClaimed: A worker has taken it.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        self._seen().reschedule(self.id, as_delay(length))
        return self

    def cancel(self, reason: str = "") -> bool:
        """Cancel it, or ask its worker to stop it; False when it had ended before."""
        return self._seen().cancel(self.id, reason=reason)

    def retry(self) -> "RunHandle":
        """Run it again, as a new run; it must have finished."""
        return self._seen().retry(self.id)

    def wait(self, timeout: Length | None = None) -> RunStatus:
        """Wait until it has finished; return its final status.

        On a running event loop this holds up everything else: there, await ``run.aio.wait()``.

        Raises:
            WaitTimeout: It had not, after that time. It goes on all the same.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        return self._finished(timeout).status

    def result(self, timeout: Length | None = None) -> Any:
        """Wait until it has finished; return what its handler returned.

        Raises:
            RunUnsuccessful: It ended otherwise than completed.
            WaitTimeout: It had not finished after that time.
            NotCommitted: It was dispatched in a transaction that is not committed.
        """
        return self._runs.output(self._finished(timeout))

    def _finished(self, timeout: Length | None) -> Run:
        limit = None if timeout is None else as_duration(timeout)
        return self._runs.wait(self.read(), timeout=limit)

    def _seen(self) -> Runs:
        """See first that it is there: to change it, another connection would wait for yours."""
        if self._is_uncommitted:
            self.read()
        return self._runs
