"""Writes the outcomes of attempts to the database, in batches.

Each outcome is written exactly once, also when the connection breaks: a batch whose answer was
lost is sent again, and the store writes only what an earlier call has not committed.

An outcome is never invented. Only an error that depends on a value shortens an outcome, and then it
stays what it is. With all other errors the database cannot write now: the outcome is kept.
"""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Lock
from typing import Final, NamedTuple

from tickwork._domain.health import UnwrittenOutcomes
from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.transitions import Transition, shorten_transition
from tickwork._engines.attempt import ROLLED_BACK
from tickwork._kernel.clock import Clock
from tickwork._kernel.plain_text import count_of
from tickwork._stores.contract import RunStore, Store
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.job_pace import JobPace, latest_by_job
from tickwork._worker.attempts.log_capture import LINES_MAX, LogCapture
from tickwork._worker.attempts.reporter import Reporter, log_run
from tickwork._worker.wakeup import Backoff
from tickwork.errors import (
    OutcomeUnknown,
    RowRejected,
    StatementFailed,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TickworkError,
    ValueRejected,
)


def check_completions(
    store: RunStore, transitions: Sequence[Transition]
) -> tuple[Sequence[Transition], Sequence[Transition]]:
    """Separate transitions that have to be written from those that handlers wrote already.

    A run in history is completed; the store then releases its limits. A run that is not was
    rolled back: its attempt failed. The check can be repeated.
    """
    claims = [
        transition.claim for transition in transitions if transition.if_rolled_back is not None
    ]
    if not claims:
        return transitions, ()
    committed = set(store.after_complete(claims))
    unwritten: list[Transition] = []
    completed: list[Transition] = []
    for transition in transitions:
        otherwise = transition.if_rolled_back
        if otherwise is None:
            unwritten.append(transition)
        elif transition.claim.run_id in committed:
            completed.append(transition._replace(if_rolled_back=None))
            if otherwise.outcome is OutcomeKind.FAILED and otherwise.reason != ROLLED_BACK:
                text = "run %s was completed; its handler failed afterwards: %s"
                log_run(
                    logging.ERROR, transition.claim, text, transition.claim.run_id, otherwise.reason
                )
        else:
            unwritten.append(otherwise)
    return unwritten, completed


ASIDE_FIRST: Final = 1.0
ASIDE_LONGEST: Final = 10.0
"""Seconds between two tries of outcomes that were set aside. Each tries one of them.

The fault lasts until a person ends it, so the waits grow.
"""

ENDING_FIRST: Final = 0.05
ENDING_LONGEST: Final = 0.5
"""The same while the worker ends: shorter, because ten seconds are left for all of them."""

LOG_EVERY: Final = 60.0
"""Seconds between two log records about outcomes that are kept, so that the log stays readable."""

_log: Final = logging.getLogger("tickwork.worker")


class WriteResult(NamedTuple):
    """What became of a batch."""

    size: int
    may_unblock: bool = False  # other runs may have waited for one of these
    is_limited: bool = False  # most of them were runs with limits
    jobs: frozenset[str] = frozenset()
    written: Sequence[Transition] = ()


NOTHING: Final = WriteResult(0)


class _OutcomeBatch(NamedTuple):
    """Transitions that are written together."""

    transitions: Sequence[Transition]
    may_be_stored: bool = False
    whole: Transition | None = None  # the only transition before it was shortened
    is_probe: bool = False  # its transition was set aside


class _WriteFault(NamedTuple):
    """Why outcomes are kept."""

    reason: str
    since: float  # monotonic
    is_store_ill: bool


class Writer:
    """Writes finished transitions. Those that cannot be written wait in memory.

    Several pumps share it. Attempts append their transitions to ``outbox``. A batch whose answer
    was lost is written again: it may be stored already. A batch with a bad row is halved, so that
    the others are written. A row that cannot be written alone is set aside and tried again.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        held: HeldRuns,
        reporter: Reporter,
        log_capture: LogCapture,
        batch: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._held = held
        self._reporter = reporter
        self._log_capture = log_capture
        self._batch = batch
        self._size = batch  # of the next batch: smaller while statements fail
        self._lock = Lock()
        self.outbox: deque[Transition] = deque()
        self._retries: deque[_OutcomeBatch] = deque()
        self._aside: deque[_OutcomeBatch] = deque()  # of one transition each
        self._aside_backoff = Backoff(ASIDE_FIRST, ASIDE_LONGEST)
        self._aside_at = 0.0  # when the next one of them is tried
        self._fault: _WriteFault | None = None
        self._log_at = 0.0
        self._has_kept_logs = False
        self._job_pace: JobPace | None = None  # None: the rows of jobs are written with each batch

    def __len__(self) -> int:
        """Count the transitions in memory, except those that are being written now."""
        return self.pending + len(self._aside)

    @property
    def pending(self) -> int:
        """The same without those that were set aside."""
        return len(self.outbox) + sum(len(batch.transitions) for batch in list(self._retries))

    def find_unwritten(self) -> UnwrittenOutcomes | None:
        """Return the outcomes that are kept because the database did not store them."""
        fault, count = self._fault, len(self)
        if fault is None or not count:
            return None
        waited = timedelta(seconds=max(self._clock.monotonic() - fault.since, 0))
        return UnwrittenOutcomes(
            number=count, reason=fault.reason, waited=waited, is_store_ill=fault.is_store_ill
        )

    def write(self) -> WriteResult:
        """Write one batch.

        Raises:
            StoreError: The database cannot write now. Everything is kept for the next try.
        """
        self._try_aside()
        batch = self._take_batch()
        transitions = batch.transitions
        if not transitions:
            return NOTHING
        try:
            self.write_logs()
            unwritten, completed = check_completions(self._store, transitions)
            lost = self._record(unwritten, may_be_stored=batch.may_be_stored)
        except OutcomeUnknown as error:
            self._retries.append(batch._replace(may_be_stored=True))
            self._note_fault(error, is_store_ill=True)
            raise
        except (ValueRejected, RowRejected) as error:
            self._split(batch, error)
            return WriteResult(len(transitions))
        except StoreError as error:
            if self._keep(batch, error):
                raise
            return NOTHING
        except Exception as error:  # noqa: BLE001  # one bad transition must not block the others
            self._split(batch, error)
            return WriteResult(len(transitions))
        self._on_written(batch)
        claims = [transition.claim for transition in transitions]
        self._held.drop_all(claims)
        written = [*completed, *unwritten] if completed else unwritten
        self._reporter.report_written(written, lost=lost, at=self._clock.now())
        limited = len([claim for claim in claims if claim.limit_keys])
        return WriteResult(
            len(transitions),
            may_unblock=_may_unblock(transitions),
            is_limited=2 * limited > len(transitions),
            jobs=frozenset([claim.job for claim in claims]),
            written=written,
        )

    def _record(self, transitions: Sequence[Transition], *, may_be_stored: bool) -> list[RunId]:
        """Record a batch; the rows of its jobs only now and then."""
        pace = self._job_pace
        if pace is None:
            return self._store.record(transitions, may_be_stored=may_be_stored)
        by_job, succeeded = latest_by_job(transitions), OutcomeKind.SUCCEEDED
        others = [each for each in transitions if each.outcome is not succeeded]
        if not others and not pace.should_write(by_job):
            lost = self._store.record(transitions, may_be_stored=may_be_stored, touches_jobs=False)
            if lost:
                by_job = latest_by_job([t for t in transitions if t.claim.run_id not in lost])
            pace.defer(by_job)
            return lost
        self._touch_jobs(pace.take_before(others))
        lost = self._store.record(transitions, may_be_stored=may_be_stored)
        pace.note_written(by_job)
        return lost

    def pace_jobs(self) -> None:
        """Begin to write the rows of jobs at most once a second; see :meth:`write_jobs`."""
        self._job_pace = JobPace(self._clock)

    def write_jobs(self, *, is_ending: bool = False) -> None:
        """Write the rows of jobs that were deferred: a worker calls this every second."""
        if self._job_pace is not None:
            self._touch_jobs(self._job_pace.take_due(is_ending=is_ending))

    def _touch_jobs(self, transitions: Sequence[Transition]) -> None:
        if not transitions or self._job_pace is None:
            return
        try:
            self._store.touch_jobs(transitions)
        except Exception:
            self._job_pace.put_back(transitions)
            raise
        self._job_pace.note_written(latest_by_job(transitions))

    def write_logs(self) -> None:
        """Write the log lines of attempts.

        Raises:
            StoreUnavailable: The database is unreachable. The lines are kept.
        """
        lines = self._log_capture.take()
        # Lines of an attempt that was lost do not belong to the attempt that replaced it.
        lines = {run_id: logged for run_id, logged in lines.items() if not self._is_lost(run_id)}
        if not lines:
            return
        try:
            self._store.append_logs(lines, lines_max=LINES_MAX)
        except Exception as error:
            if _is_unreachable(error):
                self._log_capture.put_back(lines)
                raise
            # Outcomes matter more than logs: they have other tables, and are written all the same.
            runs = count_of(len(lines), "run")
            if isinstance(error, StoreError) and not isinstance(error, ValueRejected):
                self._log_capture.put_back(lines)
                if not self._has_kept_logs:
                    _log.warning("Log lines of %s wait in memory: %s %s", runs, *_texts_of(error))
                self._has_kept_logs = True
            else:
                _log.exception("Log lines of %s could not be written.", runs)
        else:
            self._has_kept_logs = False

    def hurry(self) -> None:
        """Try outcomes that were set aside at once, and then more often: the worker ends."""
        self._aside_backoff = Backoff(ENDING_FIRST, ENDING_LONGEST)
        self._retry_all_aside()

    def _retry_all_aside(self) -> None:
        with suppress(IndexError):  # another pump took the last one
            while self._aside:
                self._retries.append(self._aside.popleft())

    def _take_batch(self) -> _OutcomeBatch:
        outbox = self.outbox
        # Only this takes from the deque, one pump at a time: it has as many as were counted.
        with self._lock:
            size = self._size
            if self._retries:
                batch = self._retries.popleft()
                if len(batch.transitions) > size:
                    self._retries.appendleft(batch._replace(transitions=batch.transitions[size:]))
                    batch = batch._replace(transitions=batch.transitions[:size])
                return batch
            return _OutcomeBatch([outbox.popleft() for _ in range(min(len(outbox), size))])

    # ------------------------------------------------------------ batches that were not written

    def _keep(self, batch: _OutcomeBatch, error: StoreError) -> bool:
        """Keep a batch while the database cannot write; False if the others can be tried."""
        self._note_fault(error, is_store_ill=True)
        if not _is_unreachable(error):
            # A row may be the cause after all, as with the policies of a table. So the next batch
            # is smaller, and a row that fails alone does not block the others.
            self._report_fault(error)
            if not batch.is_probe:
                self._size = max(len(batch.transitions) // 2, 1)
            if len(batch.transitions) == 1:
                self._set_aside(batch)
                return not batch.is_probe
        if batch.may_be_stored or batch.whole is not None or batch.is_probe:
            self._retries.appendleft(batch)
        else:
            self.outbox.extendleft(reversed(batch.transitions))
        return True

    def _split(self, batch: _OutcomeBatch, error: Exception) -> None:
        """Halve a batch that was rejected as a whole, until the bad transition is alone."""
        transitions = batch.transitions
        if len(transitions) > 1:
            half = len(transitions) // 2
            halves = [
                batch._replace(transitions=transitions[half:]),
                batch._replace(transitions=transitions[:half]),
            ]
            self._retries.extendleft(halves)
            return
        [transition] = transitions
        if isinstance(error, ValueRejected) and batch.whole is None and not transition.is_short:
            claim = transition.claim
            text = "the database rejected a value of the outcome of run %s: %s"
            log_run(logging.ERROR, claim, text, claim.run_id, error)
            short = shorten_transition(transition, f"{error.what} {error.fix}".rstrip())
            self._retries.appendleft(batch._replace(transitions=[short], whole=transition))
            return
        self._note_fault(error, is_store_ill=False)
        self._report_fault(error)
        self._set_aside(batch)

    def _set_aside(self, batch: _OutcomeBatch) -> None:
        """Keep a single outcome for later, with all that it had."""
        if batch.whole is not None:
            batch = batch._replace(transitions=[batch.whole], whole=None)
        if not self._aside:
            self._aside_at = self._clock.monotonic() + self._aside_backoff.seconds()
        self._aside.append(batch._replace(is_probe=True))

    def _try_aside(self) -> None:
        """Try one of those that were set aside, when it is time. If it is written, all follow."""
        if self._aside and self._clock.monotonic() >= self._aside_at:
            self._aside_at = self._clock.monotonic() + self._aside_backoff.seconds()
            with suppress(IndexError):  # another pump took it
                self._retries.appendleft(self._aside.popleft())

    def _on_written(self, batch: _OutcomeBatch) -> None:
        self._size = min(2 * self._size, self._batch)
        if self._fault is None:
            return
        if batch.is_probe:
            self._retry_all_aside()
        if self._aside or any(one.is_probe for one in list(self._retries)):
            self._fault = self._fault._replace(is_store_ill=False)
            return
        self._fault = None
        self._aside_backoff.reset()
        if self._log_at:
            self._log_at = 0.0
            _log.warning("The database stores outcomes again.")

    # ------------------------------------------------------------ reports

    def _note_fault(self, error: Exception, *, is_store_ill: bool) -> None:
        fault = self._fault
        since = self._clock.monotonic() if fault is None else fault.since
        # A row that is rejected says nothing about the database.
        is_store_ill = is_store_ill or (fault is not None and fault.is_store_ill)
        self._fault = _WriteFault(_reason_of(error), since, is_store_ill)

    def _report_fault(self, error: Exception) -> None:
        """Log why outcomes are kept: at first, and then once in a while."""
        now = self._clock.monotonic()
        if self._log_at and now < self._log_at:
            return
        self._log_at = now + LOG_EVERY
        _log.error(
            "Outcomes wait in memory, because the database did not store them: %s %s",
            *_texts_of(error),
        )

    def _is_lost(self, run_id: RunId) -> bool:
        run = self._held.get(run_id)
        return run is not None and run.is_lost


def _is_unreachable(error: Exception) -> bool:
    """Whether no statement can be executed now, on no table."""
    is_unavailable = isinstance(error, StoreUnavailable) and not isinstance(error, StatementFailed)
    return is_unavailable or isinstance(error, StoreBusy)


def _reason_of(error: Exception) -> str:
    """What happened, without the values of rows: ``tickwork doctor`` shows it."""
    if isinstance(error, StatementFailed):
        return f"{error.what} {error.why.partition(chr(10))[0]}"
    return error.what if isinstance(error, TickworkError) else type(error).__name__


def _texts_of(error: Exception) -> tuple[str, str]:
    """What happened, and why."""
    if isinstance(error, TickworkError):
        return error.what, error.why
    return type(error).__name__, str(error)


def _may_unblock(transitions: Sequence[Transition]) -> bool:
    """Whether one of them can make a run ready: one that waited for it, or the run itself."""
    succeeded = OutcomeKind.SUCCEEDED
    for transition in transitions:
        claim = transition.claim
        if (
            transition.outcome is not succeeded
            or claim.limit_keys
            or claim.schedule is not None
            or transition.follow_ups
        ):
            return True
    return False
