"""A run, for whoever dispatched it: look at it, move it, cancel it, wait for it."""

import time
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._domain.identity import RunId
from tickwork._domain.run import NewRun, Run
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork._kernel.durations import as_delay, as_duration, later
from tickwork._kernel.ids import new_id
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import AlreadyClaimed, RunError, RunFailed, RunNotFound, WaitTimeout
from tickwork.stores.contract import Attempt, Canceling, LogLine, RunFilter, Store

EVERYTHING: Final = RunFilter()
POLL_FIRST: Final = 0.005
POLL_MAX: Final = 0.25


class Runs:
    """What can be asked and done about runs, by id."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

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

    def story(self, run_id: RunId) -> tuple[list[Attempt], list[LogLine]]:
        """Its finished attempts and its log."""
        found = self._store.story(run_id)
        if found is None:
            raise RunNotFound(run_id)
        return found.attempts, found.log

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
        self._store.enqueue([again])
        return self.handle(again.id)

    def wait(self, run_id: RunId, *, timeout: timedelta | None) -> Run:
        """Look again and again until it has finished."""
        pause, begun = POLL_FIRST, time.monotonic()
        # It ends at the timeout; whoever gives none wants to wait as long as it takes.
        while True:
            found = self.read(run_id)
            if found.is_finished:
                return found
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout.total_seconds():
                raise WaitTimeout(run_id, status=found.status, waited=timeout)
            left = POLL_MAX if timeout is None else timeout.total_seconds() - waited
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, POLL_MAX)


class RunHandle:
    """One run. It knows its id; everything else is looked up when asked for.

    ``is_new`` is False when a unique key gave an earlier run instead.
    """

    __slots__ = ("_is_uncommitted", "_runs", "id", "is_new")

    def __init__(
        self, runs: Runs, run_id: RunId, *, is_new: bool = True, is_uncommitted: bool = False
    ) -> None:
        self._runs = runs
        self.id = run_id
        self.is_new = is_new
        self._is_uncommitted = is_uncommitted

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def read(self) -> Run:
        """The run as it is now: a value.

        Raises:
            RunNotFound: It was never committed, or it was pruned.
        """
        return self._runs.read(self.id)

    @property
    def status(self) -> RunStatus:
        """Its status now."""
        return self.read().status

    def attempts(self) -> list[Attempt]:
        """Its finished attempts, with their errors."""
        return self._runs.story(self.id)[0]

    def log(self) -> list[LogLine]:
        """What its handler logged."""
        return self._runs.story(self.id)[1]

    def at(self, when: When) -> "RunHandle":
        """Change when it is due.

        Raises:
            AlreadyClaimed: A worker has taken it.
        """
        self._runs.reschedule(self.id, as_instant(when))
        return self

    def delay(self, length: timedelta | float | str) -> "RunHandle":
        """Let it be due that long from now.

        Raises:
            AlreadyClaimed: A worker has taken it.
        """
        self._runs.reschedule(self.id, as_delay(length))
        return self

    def cancel(self, reason: str = "") -> bool:
        """Cancel it, or ask its worker to stop it; False when it had ended before."""
        return self._runs.cancel(self.id, reason=reason)

    def retry(self) -> "RunHandle":
        """Run it again, as a new run; it must have finished."""
        return self._runs.retry(self.id)

    def wait(self, timeout: timedelta | float | str | None = None) -> RunStatus:
        """Wait until it has finished; return its final status.

        Raises:
            WaitTimeout: It had not, after that time.
            RunError: It was dispatched in a transaction that may not be committed yet.
        """
        return self._finished(timeout).status

    def result(self, timeout: timedelta | float | str | None = None) -> Any:
        """Wait until it has finished; return what its handler returned.

        Raises:
            RunFailed: It ended otherwise than completed.
            WaitTimeout: It had not finished after that time.
        """
        run = self._finished(timeout)
        if run.status is not RunStatus.COMPLETED:
            raise RunFailed(self.id, status=run.status, reason=run.reason)
        return None if run.result is None else decode(run.result)

    def _finished(self, timeout: timedelta | float | str | None) -> Run:
        if self._is_uncommitted:
            raise RunError(
                self.id,
                f"The run {self.id} cannot be waited for here.",
                why="It was dispatched in a transaction of yours. No worker sees it before that "
                "is committed, and the wait would hold it open.",
                fix="Commit, then wait on app.runs.handle(run.id).",
            )
        limit = None if timeout is None else as_duration(timeout)
        return self._runs.wait(self.id, timeout=limit)
