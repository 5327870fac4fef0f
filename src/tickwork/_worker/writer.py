"""Writes the outcomes of attempts to the database, in batches.

Each outcome is written exactly once, also when the connection breaks: a batch whose answer was
lost is sent again, and the store writes only what an earlier call has not committed.
"""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._kernel.plurals import count_of
from tickwork._worker.completions import check_completions
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.log_capture import LINES_MAX, LogCapture
from tickwork._worker.reporter import Reporter
from tickwork._worker.run_log import log_run
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable, TickworkError
from tickwork.stores.contract import Store

REJECTED_RETRY_AFTER: Final = 10.0
"""Seconds after which an outcome that the database rejected is sent again."""

UNWRITABLE: Final = "Its outcome could not be written."

_log: Final = logging.getLogger("tickwork.worker")


class WriteResult(NamedTuple):
    """What became of a batch."""

    size: int
    may_unblock: bool = False  # other runs may have waited for one of these
    is_limited: bool = False  # most of them were runs with limits
    jobs: frozenset[str] = frozenset()
    written: Sequence[Transition] = ()


NOTHING: Final = WriteResult(0)


class Writer:
    """Writes finished transitions. Those that cannot be written wait in memory.

    Several pumps share it. Attempts append their transitions to ``outbox``. A batch whose answer
    was lost, or a part of a batch that was rejected, is written again: it may be stored already.
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
        self._lock = Lock()
        self.outbox: deque[Transition] = deque()
        self._retries: deque[Sequence[Transition]] = deque()
        self._rejected: deque[tuple[float, Transition]] = deque()  # with the time of the retry

    def __len__(self) -> int:
        """Count the transitions in memory, except those that are being written now."""
        return self.pending + len(self._rejected)

    @property
    def pending(self) -> int:
        """The same without those that the database rejected."""
        return len(self.outbox) + sum(map(len, list(self._retries)))

    def write(self) -> WriteResult:
        """Write one batch.

        Raises:
            StoreUnavailable: The database is unreachable. Everything is kept for the next try.
            StoreBusy: The same.
        """
        self._retry_rejected()
        steps, may_be_stored = self._take_batch()
        if not steps:
            return NOTHING
        try:
            self.write_logs()
            unwritten, completed = check_completions(self._store, steps)
            lost = self._store.record(unwritten, may_be_stored=may_be_stored)
        except OutcomeUnknown:
            self._retries.append(steps)
            raise
        except (StoreUnavailable, StoreBusy):
            if may_be_stored:
                self._retries.appendleft(steps)
            else:
                self.outbox.extendleft(reversed(steps))
            raise
        except Exception as error:  # noqa: BLE001  # one bad transition must not block the others
            self._split(steps, error)
            return WriteResult(len(steps))
        claims = [step.claim for step in steps]
        self._held.drop_all(claims)
        written = [*completed, *unwritten] if completed else unwritten
        self._reporter.report_written(written, lost=lost, at=self._clock.now())
        limited = len([claim for claim in claims if claim.limit_keys])
        return WriteResult(
            len(steps),
            may_unblock=_may_unblock(steps),
            is_limited=2 * limited > len(steps),
            jobs=frozenset([claim.job for claim in claims]),
            written=written,
        )

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
        except (StoreUnavailable, StoreBusy):
            self._log_capture.put_back(lines)
            raise
        except Exception:  # noqa: BLE001  # outcomes matter more than logs
            _log.exception("Log lines of %s could not be written.", count_of(len(lines), "run"))

    def _take_batch(self) -> tuple[Sequence[Transition], bool]:
        with suppress(IndexError):  # there is none, or another pump took it
            return self._retries.popleft(), True
        outbox = self.outbox
        # Only this takes from the deque, one pump at a time: it has as many as were counted.
        with self._lock:
            return [outbox.popleft() for _ in range(min(len(outbox), self._batch))], False

    def _split(self, steps: Sequence[Transition], error: Exception) -> None:
        """Halve a batch that was rejected as a whole, until the bad transition is alone."""
        if len(steps) > 1:
            half = len(steps) // 2
            self._retries.extendleft([steps[half:], steps[:half]])
            return
        step = steps[0]
        claim = step.claim
        text = "the database rejected the outcome of run %s: %s"
        log_run(logging.ERROR, claim, text, claim.run_id, error)
        if not step.reason.startswith(UNWRITABLE):
            # Its result or error may be the reason: write as little as possible.
            step = Transition(
                claim,
                RunStatus.FAILED_PERMANENT,
                OutcomeKind.FAILED,
                step.ended_at,
                step.started_at,
                reason=f"{UNWRITABLE} {_cause_of(error)}",
            )
            self._retries.appendleft([step])
            return
        retry_at = self._clock.monotonic() + REJECTED_RETRY_AFTER
        self._rejected.append((retry_at, step))

    def _retry_rejected(self) -> None:
        with suppress(IndexError):
            if self._rejected and self._rejected[0][0] <= self._clock.monotonic():
                self._retries.append([self._rejected.popleft()[1]])

    def _is_lost(self, run_id: RunId) -> bool:
        run = self._held.get(run_id)
        return run is not None and run.is_lost


def _cause_of(error: Exception) -> str:
    """Why the database rejected a batch, without the values in it."""
    return error.what if isinstance(error, TickworkError) else type(error).__name__


def _may_unblock(steps: Sequence[Transition]) -> bool:
    """Whether one of them can make a run ready: one that waited for it, or the run itself."""
    succeeded = OutcomeKind.SUCCEEDED
    for step in steps:
        claim = step.claim
        if (
            step.outcome is not succeeded
            or claim.limit_keys
            or claim.schedule is not None
            or step.follow_ups
        ):
            return True
    return False
